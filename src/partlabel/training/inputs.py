"""What the model is given of images: pixels, or feature maps that are computed once."""

import os
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from partlabel.base.allocation import keep_freed_memory
from partlabel.base.terminal import progress
from partlabel.images.pictures import Pictures
from partlabel.images.stored import ImageFile
from partlabel.labels import LabelTable
from partlabel.learning.methods import Method
from partlabel.models import Backbone, Classifier
from partlabel.models.features import Bank, CachedMaps, cache_pixels, cached_maps, default_cache
from partlabel.models.heads import needs_maps
from partlabel.models.prediction import InputSource
from partlabel.training.settings import Execution, Settings

_NO_BANK = Bank()
_STRONG_VIEWS = 2  # strong views per image that are cached for a frozen backbone


def bank_for(settings: Settings, method: Method, images: int) -> Bank:
    """The views of training images that are cached beside the clean one."""
    if settings.frozen == "nothing":
        return _NO_BANK
    needs_strong = "strong" in method.views
    number = settings.view_bank or _STRONG_VIEWS
    has_bank = needs_strong or settings.view_bank is not None
    return Bank(images, has_bank, number if needs_strong else 0)


def make_pictures(
    backbone: Backbone, table: LabelTable, paths: list[ImageFile], seed: int
) -> Pictures:
    """The images of a table, decoded as a backbone needs them."""
    return Pictures(list(table.ids), paths, backbone.size, seed, backbone.interpolation)


def make_inputs(
    model: Classifier,
    table: LabelTable,
    paths: list[ImageFile],
    settings: Settings,
    execution: Execution,
    on_broken: Callable[[str], object],
    *,
    bank: Bank = _NO_BANK,
    on_note: Callable[[str], object] = lambda message: None,
    on_maps: Callable[[CachedMaps], object] = lambda maps: None,
    keep_maps: bool = False,
) -> InputSource:
    """Images, or their cached feature maps if a part of the backbone is frozen.

    Args:
        on_broken: called with a message per image that cannot be decoded, if that is noticed here.
        bank: which further views are cached.
        on_note: called with what is worth knowing before maps are computed.
        on_maps: called with the cached maps before they are reduced.
        keep_maps: keep all positions of a map, even if the head only uses their mean.
    """
    keep_freed_memory()
    pictures = make_pictures(model.backbone, table, paths, settings.seed)
    folder = execution.cache if execution.cache is not None else default_cache()
    if settings.frozen == "nothing":
        if execution.cache_pixels:
            with progress("decoding") as bar:
                cache_pixels(pictures, folder, execution.workers, bar)
        return pictures
    with progress("computing features") as bar:
        maps = cached_maps(
            model.backbone,
            pictures,
            folder,
            pooled=caches_means(model, settings) and not keep_maps,
            bank=bank,
            workers=execution.workers,
            progress=bar,
            broken=on_broken,
            on_note=on_note,
        )
    on_maps(maps)
    _reduce(model, maps, settings, keep_maps=keep_maps)
    return maps


def caches_means(model: Classifier, settings: Settings) -> bool:
    """Whether only the means of maps are cached.

    Scores are then nearly those of the images themselves: they differ by less than 1e-4. Whole maps
    are cached in half precision, which moves scores further.
    """
    return _uses_means(model, settings) and settings.reduce is None


def _uses_means(model: Classifier, settings: Settings) -> bool:
    """Whether the head uses nothing of a cached map but the mean over its positions."""
    return settings.frozen == "all" and not needs_maps(model.head)


def _reduce(model: Classifier, inputs: CachedMaps, settings: Settings, *, keep_maps: bool) -> None:
    """Apply the reduction of the backbone to cached maps, and keep only what the head uses."""
    if settings.frozen != "all":
        return
    pooled = not keep_maps and _uses_means(model, settings)
    own = settings.own_classes is not None
    if settings.reduce is None and not own and not pooled:
        return
    positions = 1 if pooled else int(np.prod(inputs.maps.shape[2:]))
    size = inputs.used * model.backbone.channels * positions * (4 if pooled else 2)
    device = model.backbone.device

    def prepare(maps: Tensor) -> Tensor:
        with torch.inference_mode():
            # the mean of a power, or of the classes at positions, is not that of the mean
            early = pooled and (settings.reduce is None or (settings.power == 1 and not own))
            pooled_maps = maps.mean(dim=(2, 3), keepdim=True) if early else maps
            reduced: Tensor = model.backbone.reduction(pooled_maps.to(device)).cpu()
            reduced = reduced.mean(dim=(2, 3), keepdim=True) if pooled else reduced
        return (reduced if pooled else reduced.half()).clone()

    inputs.apply(prepare, in_memory=fits(size))


def fits(size: int) -> bool:
    """Whether this many bytes are well below the free memory; if not, maps are read from disk."""
    return size < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
