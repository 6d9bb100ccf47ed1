"""Networks of many families: frozen features, a training step, and caches, with random weights."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import print_result
from partlabel.base.errors import InputError
from partlabel.images.pictures import Pictures
from partlabel.labels import scenes
from partlabel.models import Backbone, Classifier, Frozen
from partlabel.models.backbones.family import FamilyMaps
from partlabel.models.features import cached_maps
from partlabel.models.heads import HEADS

# the smallest network of each family, and a small size that it can take
FAMILIES = {
    "resnet18": 64,
    "resnext26ts": 64,
    "convnext_atto": 64,
    "convnextv2_atto": 64,
    "efficientnet_b0": 64,
    "tf_efficientnetv2_b0": 64,
    "mobilenetv3_small_050": 64,
    "mobilenetv4_conv_small_035": 64,
    "regnetx_002": 64,
    "densenet121": 64,
    "vit_tiny_patch16_224": 64,
    "deit3_small_patch16_224": 64,
    "deit_tiny_distilled_patch16_224": 64,
    "vit_small_patch14_reg4_dinov2": 56,
    "vit_small_patch16_dinov3": 64,
    "vit_base_patch32_clip_224": 64,
    "vit_base_patch16_siglip_224": 64,
    "eva02_tiny_patch14_224": 56,
    "beit_base_patch16_224": 64,
    "swin_tiny_patch4_window7_224": 64,
    "swinv2_cr_tiny_ns_224": 64,
    "maxvit_rmlp_pico_rw_256": 64,
    "coatnet_pico_rw_224": 64,
    "hiera_tiny_224": 64,
    "levit_128s": 64,
    "fastvit_t8": 64,
    "xcit_nano_12_p8_224": 64,
    "vit_tiny_r_s16_p8_224": 64,
    "mambaout_femto": 64,
}


def pooled_by_timm(backbone: Backbone, images: Tensor) -> Tensor:
    """[B, D] what timm's own network gives to its classifier."""
    lower: Any = backbone.lower
    network: Any = lower.network if isinstance(lower, FamilyMaps) else lower
    features = network.forward_features((images - backbone.mean) / backbone.std)
    pooled: Tensor = network.forward_head(features, pre_logits=True)
    return pooled if pooled.ndim == 2 else pooled.mean(dim=(2, 3))


def check_pooling(backbone: Backbone, images: Tensor) -> None:
    """The mean of a frozen map is the vector that the family pools."""
    with torch.no_grad():
        maps, pooled = backbone(images), pooled_by_timm(backbone, images)
    assert maps.shape[1:] == (backbone.channels, *backbone.grid)
    torch.testing.assert_close(maps.mean(dim=(2, 3)), pooled, rtol=1e-4, atol=1e-5)


def check_step(name: str, frozen: Frozen, size: int, images: Tensor, head: str) -> None:
    """A training step changes the weights that are trained, and no others."""
    torch.manual_seed(0)
    backbone = Backbone(name, "none", frozen, size)
    model = Classifier(backbone, HEADS[head](backbone.channels, 3), list("abc")).train()
    fixed = {key: value.clone() for key, value in backbone.frozen_state().items()}
    trained = [*backbone.trained_parameters(), *model.head.parameters()]
    before = [parameter.detach().clone() for parameter in trained]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(images), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert torch.isfinite(loss)
    assert all(torch.equal(value, backbone.frozen_state()[key]) for key, value in fixed.items())
    changed = [not torch.equal(old, new) for old, new in zip(before, trained, strict=True)]
    assert sum(changed) > len(changed) // 4  # layers that begin as zeros pass no gradient on
    assert (frozen == "all") == (not list(backbone.trained_parameters()))


def check_cache(backbone: Backbone, pictures: Pictures, cache: Path) -> None:
    """Cached maps, and cached means, equal computed ones to what half precision can hold."""
    rows = np.arange(len(pictures))
    (images,) = pictures.batches([rows], ("clean",))
    with torch.no_grad():
        expected = backbone.lower_maps(images.views["clean"])
    for pooled in (False, True) if backbone.frozen == "all" else (False,):
        values = expected.mean(dim=(2, 3), keepdim=True) if pooled else expected
        for _ in range(2):  # computed, then read
            (maps,) = cached_maps(backbone, pictures, cache, pooled=pooled).batches(
                [rows], ("clean",)
            )
            scale = float(values.abs().max())
            torch.testing.assert_close(
                maps.views["clean"], values, rtol=2e-3, atol=1e-3 * max(scale, 1e-3)
            )


def check_family(name: str, size: int, pictures: Pictures, cache: Path) -> None:
    """All checks of one network."""
    torch.manual_seed(0)
    images = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    for frozen in ("all", "lower", "nothing"):
        backbone = Backbone(name, "none", frozen, size).eval()
        if frozen == "all":
            check_pooling(backbone, images)
        if frozen != "nothing":
            check_cache(backbone, pictures, cache)
        check_step(name, frozen, size, images, "linear" if frozen == "nothing" else "saliency")


def run() -> None:
    """Check all families."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = scenes.write(folder / "s", 4, scenes.World(classes=3, size=64, seed=0))
        paths = [folder / "s" / "images" / image for image in table.ids]
        for network, size in FAMILIES.items():
            start, reason = time.perf_counter(), ""
            pictures = Pictures(list(table.ids), paths, size, seed=0)
            try:
                check_family(network, size, pictures, folder / "cache")
            except (AssertionError, InputError, RuntimeError) as error:
                reason = (str(error) or "failed").splitlines()[0]
            seconds = f"{time.perf_counter() - start:.1f} s"
            print_result(f"family {network}", reason[:60] or seconds, "all checks", not reason)
