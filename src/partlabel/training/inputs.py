"""What a model is shown of images: pixels, or feature maps that are computed once."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from partlabel.base.allocation import keep_freed_memory
from partlabel.base.terminal import progress
from partlabel.images.pictures import Pictures
from partlabel.labels import LabelTable
from partlabel.learning.methods import Method
from partlabel.models import Classifier
from partlabel.models.features import Bank, CachedMaps, cache_pixels, cached_maps, default_cache
from partlabel.models.prediction import InputSource
from partlabel.training.settings import Settings

_NO_BANK = Bank()
_STRONG_VIEWS = 2  # strong versions of a picture that a frozen backbone is shown


def bank_for(settings: Settings, method: Method, pictures: int) -> Bank:
    """The views of training pictures that a frozen backbone is shown beside the clean one."""
    if settings.frozen == "nothing":
        return _NO_BANK
    wanted = "strong" in method.views
    number = settings.view_bank or _STRONG_VIEWS
    return Bank(pictures, wanted or settings.view_bank is not None, number if wanted else 0)


def make_inputs(
    model: Classifier,
    table: LabelTable,
    paths: list[Path],
    settings: Settings,
    cache: str | os.PathLike[str] | None,
    broken: Callable[[str], object],
    *,
    bank: Bank = _NO_BANK,
    told: Callable[[str], object] = lambda message: None,
    found: Callable[[CachedMaps], object] = lambda maps: None,
    whole: bool = False,
) -> InputSource:
    """Pictures, or their cached maps if a part of the backbone is frozen.

    Args:
        broken: is told about pictures that cannot be decoded, if that is found out here.
        bank: which further views are cached.
        told: is told what is worth knowing before a bank is made.
        found: is given cached maps before they are reduced.
        whole: leave all places of a map, even if the head only looks at their mean.
    """
    keep_freed_memory()
    pictures = Pictures(list(table.ids), paths, settings.size, settings.seed)
    folder = Path(cache) if cache is not None else default_cache()
    if settings.frozen == "nothing":
        if settings.cache_pixels:
            with progress("decoding") as bar:
                cache_pixels(pictures, folder, settings.workers, bar)
        return pictures
    with progress("computing features") as bar:
        maps = cached_maps(
            model.backbone,
            settings.backbone,
            pictures,
            folder,
            bank=bank,
            workers=settings.workers,
            progress=bar,
            broken=broken,
            told=told,
        )
    found(maps)
    _reduce(model, maps, settings, whole=whole)
    return maps


def _reduce(model: Classifier, inputs: CachedMaps, settings: Settings, *, whole: bool) -> None:
    """Reduce cached maps as the model would, and leave only what its head looks at."""
    if settings.frozen != "all":
        return
    pooled = not whole and not getattr(model.head, "needs_maps", True)
    if settings.reduce is None and not pooled:
        return
    places = 1 if pooled else int(np.prod(inputs.maps.shape[2:]))
    size = inputs.used * model.backbone.channels * places * (4 if pooled else 2)
    device = next(model.backbone.buffers()).device

    def prepare(maps: Tensor) -> Tensor:
        with torch.inference_mode():
            seen = maps.mean(dim=(2, 3), keepdim=True) if pooled else maps
            reduced: Tensor = model.backbone.reduction(seen.to(device)).cpu()
        return (reduced if pooled else reduced.half()).clone()

    inputs.apply(prepare, in_memory=_fits(size))


def _fits(size: int) -> bool:
    """Whether so many bytes are well below the free memory; else maps are read from disk."""
    return size < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
