"""Several networks side by side: their feature maps are joined along the channels."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from partlabel.base.errors import InputError
from partlabel.models.backbones.backbone import Backbone, Frozen
from partlabel.models.precision import Precision
from partlabel.models.reduction import Reduction


def join(maps: Sequence[Tensor]) -> Tensor:
    """Maps [B, D_i, H_i, W_i] as one map [B, sum of D_i, H, W] with the largest H and W.

    A smaller map is enlarged, and shifted so that the mean over its positions stays the same.
    """
    side = max(part.shape[-1] for part in maps)
    return torch.cat([_enlarge(part, side) for part in maps], dim=1)


def _enlarge(maps: Tensor, side: int) -> Tensor:
    if maps.shape[-1] == side:
        return maps
    larger = interpolate(maps, size=(side, side), mode="bilinear", align_corners=False)
    change = maps.mean(dim=(2, 3), keepdim=True) - larger.mean(dim=(2, 3), keepdim=True)
    return larger + change


class JoinedBackbone(Backbone):
    """Networks A and B of a name ``A+B``, with the channels of both.

    All get the same images, of the same size and resized in the same way, but each normalises them
    as it was trained. Frozen maps are cached for each network separately.

    Args:
        name: names of timm networks with ``+`` between them.
        weights: as for :class:`Backbone`, for all networks; or one for each, with ``+`` between.
        frozen: ``"nothing"`` or ``"all"``.
        size, reduce, power, precision, mirror: see :class:`Backbone`.
    """

    def __init__(
        self,
        name: str,
        weights: str,
        frozen: Frozen,
        size: int,
        reduce: int | None = None,
        power: float = 1.0,
        *,
        precision: Precision = "32",
        mirror: bool = False,
    ) -> None:
        nn.Module.__init__(self)
        names = name.split("+")
        if len(set(names)) < len(names):
            raise InputError(f"--backbone {name}: a network is joined with itself")
        if frozen == "lower":
            raise InputError(
                f"--backbone {name}: joined networks cannot be split for --unfreeze last; use "
                "--frozen, or train all of them"
            )
        sources = weights.split("+") if "+" in weights else [weights] * len(names)
        if len(sources) != len(names):
            raise InputError(
                f"--weights {weights}: {len(sources)} for {len(names)} networks; give one for all, "
                "or one for each"
            )
        pairs = zip(names, sources, strict=True)
        self.networks = nn.ModuleList(
            Backbone(part, source, frozen, size, precision=precision, mirror=mirror)
            for part, source in pairs
        )
        self.name, self.frozen, self.size, self.precision = name, frozen, size, precision
        self.mirror = mirror
        self.interpolation = self.parts[0].interpolation
        for part in self.parts:
            part.interpolation = self.interpolation
        self.pooling = "; ".join(f"{part.name}: {part.pooling}" for part in self.parts)
        self.channels = sum(part.channels for part in self.parts)
        self.grid = max(part.grid for part in self.parts)
        self.reduction: nn.Module = nn.Identity()
        if reduce is not None:
            self.reduction = Reduction(self.channels, reduce, power)
            self.channels = reduce
        self.reduction.eval()

    @property
    def parts(self) -> list[Backbone]:
        """The networks."""
        return [part for part in self.networks if isinstance(part, Backbone)]

    def train(self, mode: bool = True) -> "JoinedBackbone":
        """Set the mode of the trained parts."""
        self.training = mode
        for part in self.parts:
            part.train(mode)
        return self

    def lower_maps(self, images: Tensor) -> Tensor:
        """The joined maps of the networks, if these are frozen.

        Args:
            images: [B, 3, S, S] uint8
        """
        return join([part.lower_maps(images) for part in self.parts])

    def forward(self, inputs: Tensor) -> Tensor:
        """Feature maps [B, D, H, W].

        Args:
            inputs: images [B, 3, S, S] (uint8), or reduced maps of frozen networks (float).
        """
        if inputs.dtype != torch.uint8:
            return inputs
        maps: Tensor = self.reduction(join([part(inputs) for part in self.parts]))
        return maps

    def trained_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that training may change."""
        for part in self.parts:
            yield from part.trained_parameters()

    def frozen_state(self) -> dict[str, Tensor]:
        """The weights of the frozen parts and of the reduction."""
        own = {f"reduction.{name}": value for name, value in self.reduction.state_dict().items()}
        return own | self._states([part.frozen_state() for part in self.parts])

    def trained_state(self) -> dict[str, Tensor]:
        """The weights of the trained parts."""
        return self._states([part.trained_state() for part in self.parts])

    @staticmethod
    def _states(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        return {
            f"networks.{number}.{name}": value
            for number, state in enumerate(states)
            for name, value in state.items()
        }
