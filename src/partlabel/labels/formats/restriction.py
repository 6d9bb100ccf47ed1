"""Checks of the classes of a file, and leaving out those that the options do not ask for."""

import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import InputError, PartlabelWarning, count, one_of, some
from partlabel.labels import PRESENT
from partlabel.labels.formats.joining import differing_in_case
from partlabel.labels.formats.reading_options import ReadOptions, folded
from partlabel.labels.formats.source import Source
from partlabel.labels.formats.stated import Stated

_MANY = 100  # classes that occur once; fewer are not worth an error


def only_asked(source: Source, stated: Stated) -> Stated:
    """The statements about the classes that ``only_classes`` asks for; all images stay."""
    options = source.options
    if options.ignore_columns and source.kind in ("json", "xml", "arrow"):
        raise source.error("--ignore-columns has no effect, because the file has no columns")
    if not options.only_classes:
        return stated
    classes = list(stated.classes)
    require_classes(options, classes)
    keep = np.array(options.asked_for(classes), dtype=np.bool_)
    stated.notes.remarks.append(
        f"{count(int(keep.sum()), 'class', 'classes')} read, because of --only-classes"
    )
    return _selected(stated, keep)


def only_frequent(source: Source, stated: Stated) -> Stated:
    """The statements about the classes that ``min_count`` keeps; all images stay."""
    least = source.options.min_count
    if least is None:
        return stated
    frequent = images_per_class(stated) >= least
    rare = int((~frequent).sum())
    if rare:
        stated.notes.remarks.append(
            f"{count(rare, 'class', 'classes')} left out, present in fewer than "
            f"{count(least, 'image')} (--min-count)"
        )
    if len(frequent) and not frequent.any():
        raise InputError(f"--min-count {least} leaves no class")
    return _selected(stated, frequent)


def require_classes(options: ReadOptions, classes: Sequence[str]) -> None:
    """Raise an error if the options ask for a class that is not among these."""
    key = folded if options.ignore_case else str
    known = {key(name) for name in classes}
    try:
        for name in options.only_classes:
            if key(name) not in known:
                one_of("class", name, classes)
    except InputError as error:
        raise InputError(f"--only-classes: {error}") from None


def images_per_class(stated: Stated) -> NDArray[np.int64]:
    """[C] the number of images in which each class is stated as present."""
    present = stated.value == PRESENT
    width = len(stated.classes)
    cells = stated.image[present].astype(np.int64) * width + stated.label[present]
    return np.bincount(np.unique(cells) % max(width, 1), minlength=width)


def _selected(stated: Stated, keep: NDArray[np.bool_]) -> Stated:
    """The statements about some classes."""
    if keep.all():
        return stated
    new_position = np.cumsum(keep) - 1
    kept = np.flatnonzero(keep[stated.label])
    per_statement: dict[str, Any] = {
        item.name: getattr(stated, item.name)[kept]
        for item in fields(stated)
        if isinstance(getattr(stated, item.name), np.ndarray)
    }
    per_statement["details"] = stated.details.take(kept)
    per_statement["label"] = new_position[per_statement["label"]]
    per_statement.setdefault("record", kept)
    return replace(stated, classes=stated.classes.take(np.flatnonzero(keep)), **per_statement)


def has_one_each(stated: Stated) -> bool:
    """Whether exactly one class is stated for every image."""
    cells = np.unique(stated.image.astype(np.int64) * max(len(stated.classes), 1) + stated.label)
    per_image = np.bincount(cells // max(len(stated.classes), 1), minlength=len(stated.images))
    return len(per_image) > 0 and bool((per_image == 1).all())


def check_names(source: Source, stated: Stated, *, strict: bool) -> None:
    """Look for names that are probably typing errors: very many rare ones, or other case.

    Args:
        strict: raise an error if most classes occur once; if not, note it.
    """
    _check_rare(source, stated, strict=strict)
    pairs = [
        " and ".join(f"'{name}'" for name in group) for group in differing_in_case(stated.classes)
    ]
    if pairs:
        more = f" and {len(pairs) - 3:,} more" if len(pairs) > 3 else ""
        message = (
            f"classes that differ only in case: {', '.join(pairs[:3])}{more}; if they are one "
            "class, join them with --ignore-case (in Python: ignore_case=True)"
        )
        if strict:
            warnings.warn(f"{source.path}: {message}", PartlabelWarning, stacklevel=5)
        else:
            stated.notes.remarks.append(message)


def _check_rare(source: Source, stated: Stated, *, strict: bool) -> None:
    if source.options.min_count is not None or source.options.only_classes:
        return
    rows_per_class = np.bincount(stated.label, minlength=len(stated.classes))
    once = np.flatnonzero(rows_per_class == 1)
    if len(once) < _MANY or 2 * len(once) < len(stated.classes):
        return
    rare = some(stated.classes.take(once))
    message = (
        f"{len(once):,} of {count(len(stated.classes), 'class', 'classes')} occur in one image "
        f"only ({rare}); leave them out with --min-count 2, or keep all with --min-count 1"
    )
    if strict:
        raise InputError(message)
    stated.notes.remarks.append(message)
