"""How unlike images are to those whose labels test them, by the origin of their labels.

Where whole images are labelled, labels of a class test unknown labels of other images. What they
show holds for these only if they are alike. No label is looked at here.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import count
from partlabel.judging.completion.held_labels import Judges
from partlabel.judging.completion.layout import PARTS, TAGGED, Layout
from partlabel.judging.completion.origin_groups import (
    FEW,
    LEAST,
    NEW,
    NO_LABEL,
    OriginGroups,
    group_by_origins,
)
from partlabel.labels import LabelTable
from partlabel.labels.origins import NO_ORIGIN
from partlabel.metrics.shift import Shift, measure_shift, principal_components
from partlabel.models.prediction import iterate_logits
from partlabel.training.devices import find_device
from partlabel.training.embedded import inputs_of
from partlabel.training.reserving import counts_by_group
from partlabel.training.run import Run

MOST_AUC, LEAST_EFFECTIVE = 0.75, 0.25  # beyond these, images differ too much from the test's
_COMPARED = 2000  # images of each kind that are compared
_COMPONENTS = 128  # of the features of all images that are compared
_MOST_KINDS = 20  # ways to test classes; if there are more, all classes are compared together
_WORDS = {
    NEW: "that the label file does not mention",
    NO_LABEL: "without a label",
    NO_ORIGIN: "with labels of no origin",
    FEW: "of other origins",
}

Rows = NDArray[np.int64]


class Comparison(NamedTuple):
    """Images of one origin, compared with the images whose labels test what is unknown there.

    Args:
        origin: the name of the group of images.
        rows: its images with unknown labels of these classes.
        classes: the classes that are tested by the same origins.
        tested_by: the groups of the images that test.
        tests: the number of images that test.
        shift: None if there are too few images to measure it.
    """

    origin: str
    rows: Rows
    classes: Rows
    tested_by: list[str]
    tests: int
    shift: Shift | None

    @property
    def is_alike(self) -> bool:
        """Whether the images are similar enough to those of the test, as far as can be seen."""
        shift = self.shift
        return shift is None or (shift.auc <= MOST_AUC and shift.effective >= LEAST_EFFECTIVE)

    @property
    def effective(self) -> float | None:
        """The number of images that test, if they are weighted to look like the others."""
        return None if self.shift is None else self.shift.effective * self.tests

    def describe(self) -> str:
        """How many images there are, and how much they differ from those that test."""
        which = f"{count(len(self.rows), 'image')} {in_words(self.origin)}"
        if self.shift is None:
            return f"{which} (too few images to compare)"
        return (
            f"{which} (AUC {self.shift.auc:.2f}, as if {self.effective:,.0f} of "
            f"{count(self.tests, 'image')} tested)"
        )


def in_words(origin: str) -> str:
    """Which images a group of origins has: ``of 'north'``."""
    return _WORDS.get(origin, f"of '{origin}'")


class Likeness(NamedTuple):
    """The comparisons of all images that are tested on other images.

    Args:
        groups: the images by the origins of their labels.
        comparisons: one per origin and kind of classes.
        leaves_out: whether cells of images that are unlike are not filled in.
    """

    groups: OriginGroups
    comparisons: list[Comparison]
    leaves_out: bool

    @property
    def unlike(self) -> list[Comparison]:
        """The images that are not similar enough to those that test them."""
        return [one for one in self.comparisons if not one.is_alike]

    def applied(self, layout: Layout) -> Layout:
        """A layout without the cells that are not filled in, because their images are unlike."""
        for one in self.unlike if self.leaves_out else ():
            number = self.groups.names.index(one.origin)
            layout = layout.leave_out(self.groups.of_image == number, one.classes)
        return layout


def compare_images(
    run: Run,
    table: LabelTable,
    layout: Layout,
    tests: Judges,
    folder: Path | None = None,
    *,
    despite_shift: bool = False,
) -> Likeness:
    """Compare the images of each origin with those whose labels test them.

    Args:
        table: the images of the run, and after them others that it was not given.
        layout: which unknown cells labels of other images test.
        tests: these labels.
        folder: of the images that the run was not given.
        despite_shift: leave nothing out.
    """
    groups = group_by_origins(run.selection.known, len(table))
    if not layout.unknown[list(PARTS["image"])].any():
        return Likeness(groups, [], not despite_shift)
    readable = tests.where(layout.kind[tests.rows] >= 0)
    pairs = plan_comparisons(groups, layout, readable)
    rows = [
        np.union1d(_some(pair.rows), _some(testing))
        for pair, testing in pairs
        if _are_enough(pair, testing)
    ]
    features = _Features(run, table, folder, np.unique(np.concatenate([[], *rows])))
    comparisons = []
    for pair, testing in pairs:
        compared = pair
        if _are_enough(pair, testing):
            ours, theirs = _some(testing), _some(pair.rows)
            images = np.concatenate([ours, theirs])
            shift = measure_shift(features.of(ours), features.of(theirs), images=images)
            compared = pair._replace(shift=shift)
        comparisons.append(compared)
    return Likeness(groups, comparisons, not despite_shift)


def plan_comparisons(
    groups: OriginGroups, layout: Layout, tests: Judges
) -> list[tuple[Comparison, Rows]]:
    """What to compare, without a result, each with the images that test.

    Classes that are tested by the same origins are compared together.
    """
    number, classes = len(groups.names), layout.parts.shape[1]
    of_tests = groups.of_image[tests.rows]
    testing = counts_by_group(of_tests, tests.columns, (number, classes)) > 0
    kinds, kind = np.unique(testing, axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    if kinds.shape[1] > _MOST_KINDS:
        kinds, kind = np.asarray(testing.any(axis=1, keepdims=True)), np.zeros_like(kind)
    pairs = []
    columns = [np.flatnonzero(kind == k) for k in range(kinds.shape[1])]
    open_images = [layout.open_images((*PARTS["image"], *TAGGED), own) for own in columns]
    judges = [np.unique(tests.rows[kind[tests.columns] == k]) for k in range(kinds.shape[1])]
    for g, name in enumerate(groups.names):
        for k, own in enumerate(columns):
            rows = np.flatnonzero((groups.of_image == g) & open_images[k])
            if len(rows):
                tested_by = [groups.names[h] for h in np.flatnonzero(kinds[:, k])]
                pair = Comparison(name, rows, own, tested_by, len(judges[k]), None)
                pairs.append((pair, judges[k]))
    return pairs


def _are_enough(pair: Comparison, testing: Rows) -> bool:
    return min(len(pair.rows), len(testing)) >= LEAST


def _some(rows: Rows) -> Rows:
    """At most as many rows as are compared."""
    return rows[:: -(-len(rows) // _COMPARED)]


class _Features:
    """Principal components of the features of some images.

    Args:
        table: the images of a run, and after them those of a folder.
        rows: the images to read.
    """

    def __init__(self, run: Run, table: LabelTable, folder: Path | None, rows: Rows) -> None:
        self.rows, own = rows.astype(np.int64), len(run.selection.known)
        parts = [
            mean_features(run, table.subset(some), images)
            for some, images in (
                (self.rows[self.rows < own], None),
                (self.rows[rows >= own], folder),
            )
            if len(some)
        ]
        self.components = np.zeros((0, 1))
        if parts:
            self.components = principal_components(np.concatenate(parts), _COMPONENTS)

    def of(self, rows: Rows) -> NDArray[np.float64]:
        """[m, d] the features of some of these images."""
        return self.components[np.searchsorted(self.rows, rows)]


def mean_features(run: Run, table: LabelTable, folder: Path | None = None) -> NDArray[np.float32]:
    """[n, d] the features of the images of a table, which are readable, averaged over positions."""
    model = run.classifier().to(find_device(run.execution.device))
    inputs = inputs_of(run, model, table, folder, evidence=False)
    parts = iterate_logits(
        model,
        inputs,
        np.arange(len(table)),
        run.settings.batch,
        run.execution.workers,
        forward=lambda model, images: model.backbone(images).mean(dim=(2, 3)),
    )
    return np.concatenate([features.cpu().numpy() for _, features in parts])
