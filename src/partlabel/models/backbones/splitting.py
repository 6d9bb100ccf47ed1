"""A network as two parts: a lower one that is frozen, and an upper one that is trained."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module

from partlabel.base.errors import InputError
from partlabel.models.backbones.family import Ending, FamilyMaps

LAST_BLOCKS = 2
"""How many of the equal blocks of a network are trained, unless a setting says otherwise."""

_CHAINS = ("blocks", "stages", "layers")  # of timm networks: what features go through in turn


def split(
    name: str, network: nn.Module, ending: Ending, size: int, blocks: int | None
) -> tuple[nn.Module, nn.Module]:
    """Split a network after its last map of stride 16, or before its last blocks.

    The map of stride 16 is that of a network whose maps become smaller. A network whose blocks are
    all equal, such as a Vision Transformer, is split before the last of them.

    Args:
        name: for messages.
        network: a timm network; it becomes the upper part.
        ending: how it ends.
        size: image size in pixels.
        blocks: number of equal blocks in the upper part; None for :data:`LAST_BLOCKS`.

    Returns:
        The lower part, and the upper part, which maps the features of the lower one to maps.
    """
    network.eval()
    message = f"the backbone '{name}' cannot be split for --unfreeze last"
    chain = _find_chain(network)
    sizes = [] if chain is None else _count_positions(network, chain, size)
    is_equal = len(sizes) > 1 and min(sizes) == max(sizes)
    if blocks is not None and not is_equal:
        raise InputError(
            f"--unfreeze-blocks {blocks}: the backbone '{name}' has no equal blocks; without it, "
            "what follows the last map of stride 16 is trained"
        )
    if ending.is_plain:
        try:
            return _split_graph(network, size)
        except _NotTraceableError as error:
            message = f"{message} ({error})"
    if chain is None or len(sizes) < 2:
        raise InputError(f"{message}; use --frozen, or train all of it")
    if is_equal:
        number = LAST_BLOCKS if blocks is None else blocks
        if number >= len(sizes):
            raise InputError(
                f"--unfreeze-blocks {number}: the backbone '{name}' has {len(sizes)} blocks, and "
                "at least one must stay frozen; use --unfreeze all"
            )
        cut = len(sizes) - number
    else:
        cut = _cut_after_stride_16(sizes, size)
    lower, upper = LowerBlocks(network, chain, cut), UpperBlocks(network, ending, chain, cut, size)
    upper.equal_blocks = len(sizes) - cut if is_equal else None
    features = _check_split(message, network, lower, upper, ending, size)
    _exempt_unused(upper, features)
    return lower, upper


# -- networks whose layers form a graph ------------------------------------------------------------


class _NotTraceableError(Exception):
    """The layers of a network do not form a graph with a single map of stride 16."""


class _BlockTracer(fx.Tracer):
    """Traces a network as a chain of blocks: it only enters plain containers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, (nn.Sequential, nn.ModuleList))


def _split_graph(network: nn.Module, size: int) -> tuple[nn.Module, nn.Module]:
    """Split a network after its last map of stride 16 on which all later layers depend."""
    try:
        whole = fx.GraphModule(network, _BlockTracer().trace(network))
        ShapeProp(whole).propagate(torch.zeros((1, 3, size, size)))
    except Exception as error:  # tracing a network with control flow can raise anything
        raise _NotTraceableError(str(error)) from error
    nodes = list(whole.graph.nodes)
    position = {node: number for number, node in enumerate(nodes)}
    cut = None
    for number, node in enumerate(nodes[:-1]):
        shape: tuple[int, ...] = getattr(node.meta.get("tensor_meta"), "shape", ())
        bypassed = any(position[user] > number for early in nodes[:number] for user in early.users)
        if len(shape) == 4 and shape[-1] == -(-size // 16) and not bypassed:
            cut = number
    if cut is None:
        raise _NotTraceableError("it has no single map of stride 16")
    parts = split_module(whole, network, lambda node: int(position[node] > cut))
    lower, upper = parts.submod_0, parts.submod_1
    assert isinstance(lower, nn.Module)
    assert isinstance(upper, nn.Module)
    return lower, upper


# -- networks with a chain of blocks ---------------------------------------------------------------


class _ReachedError(Exception):
    """Ends the lower part of a network; carries the features at this point."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features


class _End(nn.Module):
    """Takes the place of the first block of the upper part."""

    def forward(self, features: Tensor, *_: Any, **__: Any) -> Tensor:
        raise _ReachedError(features)


class _Skip(nn.Module):
    """Takes the place of a block of the lower part."""

    def forward(self, features: Tensor, *_: Any, **__: Any) -> Tensor:
        return features


class _Insert(nn.Module):
    """Takes the place of the last block of the lower part: gives features from elsewhere."""

    features: Tensor | None = None

    def forward(self, *_: Any, **__: Any) -> Tensor:
        assert self.features is not None
        return self.features


class LowerBlocks(nn.Module):
    """A copy of a network that ends before one of its blocks.

    Args:
        network: a timm network.
        chain: the name of its list of blocks.
        cut: number of blocks in this part.
    """

    def __init__(self, network: nn.Module, chain: str, cut: int) -> None:
        super().__init__()
        whole: Any = copy.deepcopy(network)
        with contextlib.suppress(Exception):  # some families cannot drop their pooling
            whole.reset_classifier(0, "")
        self.network = whole
        blocks = getattr(whole, chain)
        blocks[cut] = _End()
        for number in range(cut + 1, len(blocks)):
            blocks[number] = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images [B, 3, S, S] to the features before the upper part."""
        try:
            self.network.forward_features(images)
        except _ReachedError as reached:
            return reached.features
        raise AssertionError("the end of the lower part was not reached")


class UpperBlocks(nn.Module):
    """The blocks of a network after a lower part, and what follows them.

    The network itself runs, so that it computes what blocks need beside features, such as rotary
    position embeddings. It runs on one blank image, and the features of the lower part take the
    place of those of this image.

    Args:
        network: a timm network. Blocks of the lower part are removed from it.
        ending: how it ends.
        chain: the name of its list of blocks.
        cut: number of blocks in the lower part.
        size: image size in pixels.

    Attributes:
        equal_blocks: number of blocks in this part, if all blocks of the network are equal.
    """

    equal_blocks: int | None = None

    def __init__(self, network: nn.Module, ending: Ending, chain: str, cut: int, size: int) -> None:
        super().__init__()
        self.size = size
        network = copy.copy(network)
        network._modules = dict(network._modules)
        blocks = copy.copy(getattr(network, chain))
        blocks._modules = dict(blocks._modules)
        setattr(network, chain, blocks)
        self.insert = _Insert()
        for number in range(cut):
            blocks[number] = _Skip()
        blocks[cut - 1] = self.insert
        self.maps = FamilyMaps(network, ending)

    def forward(self, features: Tensor) -> Tensor:
        """Features of the lower part to maps [B, D, H, W]."""
        self.insert.features = features
        try:
            maps: Tensor = self.maps(features.new_zeros((1, 3, self.size, self.size)))
        finally:
            self.insert.features = None
        return maps


def _find_chain(network: nn.Module) -> str | None:
    """The name of a network's list of blocks."""
    for name in _CHAINS:
        if isinstance(getattr(network, name, None), (nn.Sequential, nn.ModuleList)):
            return name
    return None


@torch.no_grad()
def _count_positions(network: nn.Module, chain: str, size: int) -> list[int]:
    """Number of positions after each block of a chain; empty if they do not run one by one."""
    numbers: list[int] = []
    is_last = getattr(network, "output_fmt", "NCHW") == "NHWC"

    def note(_: nn.Module, __: Any, features: Any) -> None:
        if isinstance(features, Tensor) and features.ndim in (3, 4):
            channels = features.shape[-1 if is_last or features.ndim == 3 else 1]
            numbers.append(features[0].numel() // channels)

    blocks: Any = getattr(network, chain)
    with _hooks(blocks, note):
        whole: Any = network
        whole.forward_features(_blank(network, size))
    return numbers if len(numbers) == len(blocks) else []


@contextlib.contextmanager
def _hooks(blocks: nn.Module, note: Any) -> Iterator[None]:
    handles = [block.register_forward_hook(note) for block in blocks.children()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _blank(network: nn.Module, size: int) -> Tensor:
    return torch.zeros((1, 3, size, size)).to(next(network.parameters()))


def _cut_after_stride_16(positions: list[int], size: int) -> int:
    """The number of blocks up to the last with a map of stride 16, but not all.

    >>> _cut_after_stride_16([3136, 784, 196, 49], 224)
    3
    """
    large = [number for number, count in enumerate(positions) if count >= (-(-size // 16)) ** 2]
    return min(large[-1] + 1 if large else 1, len(positions) - 1)


@torch.no_grad()
def _check_split(
    message: str,
    network: nn.Module,
    lower: nn.Module,
    upper: nn.Module,
    ending: Ending,
    size: int,
) -> Tensor:
    """Raise an error if both parts, one after the other, do not equal the network.

    Returns:
        Features of the lower part.
    """
    image = torch.linspace(-1, 1, 3 * size * size).view(1, 3, size, size)
    try:
        features: Tensor = lower.eval()(image)
        both, whole = upper.eval()(features), FamilyMaps(network, ending)(image)
        fits = both.shape == whole.shape and torch.allclose(both, whole, rtol=1e-3, atol=1e-4)
    except Exception as error:  # blocks that need more than features raise anything
        raise InputError(f"{message} ({error}); use --frozen, or train all of it") from error
    if not fits:
        raise InputError(f"{message}; use --frozen, or train all of it")
    return features


def _exempt_unused(upper: nn.Module, features: Tensor) -> None:
    """Parameters of an upper part that have no effect, such as those of its stem, stay as they are.

    Args:
        upper: the upper part.
        features: its input.
    """
    parameters = list(upper.parameters())
    with torch.enable_grad():
        gradients = torch.autograd.grad(upper(features).sum(), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.requires_grad_(gradient is not None)
