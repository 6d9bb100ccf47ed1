"""How much memory a training by ``auto`` needs: it keeps features and logits of all images."""

from partlabel.base.allocation import physical_memory
from partlabel.base.errors import InputError, count, data_size

_FEATURES = 4  # copies of the features: as they are, two powers of them, and one at work
_AT_WORK = 8  # arrays as large as the logits that comparing and combining candidates takes
_MOST_MODELS = 60  # that are compared in the end, each with its logits twice


def needed_memory(images: int, classes: int, features: int, models: int) -> int:
    """Bytes that ``auto`` needs, roughly.

    Args:
        features: D, of an image; feature maps are left out if they do not fit.
        models: candidates that are trained on all folds, at most.

    >>> needed_memory(10_000, 20, 1280, 24) // 10**6
    249
    """
    logits = _AT_WORK + 2 * min(models, _MOST_MODELS)
    return 4 * images * (_FEATURES * features + logits * classes)


def check_memory(images: int, classes: int, features: int, models: int) -> None:
    """Raise an error if the images are too many for ``auto``, before anything is trained."""
    needed, here = needed_memory(images, classes, features, models), physical_memory()
    if needed > here:
        raise InputError(
            f"--method auto keeps the features and the logits of all images in memory. For "
            f"{count(images, 'image')} and {count(classes, 'class', 'classes')} that is about "
            f"{data_size(needed)}, and this computer has {data_size(here)}. Name another --method, "
            "such as bce, which reads images in parts; or a smaller --budget, or fewer images"
        )
