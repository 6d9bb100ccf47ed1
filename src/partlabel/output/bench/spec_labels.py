"""The labels of a benchmark, with images to test on."""

import numpy as np

from partlabel.base.randomness import key, keys, uniform
from partlabel.labels import LabelTable
from partlabel.labels.formats import read_with
from partlabel.labels.groups import Groups
from partlabel.output.bench.spec import Spec
from partlabel.training.auto.folds import make_folds

_TEST = 0.2  # share of test images, if a table has no splits


def labels_of(spec: Spec) -> LabelTable:
    """The labels, as they are in their file."""
    return read_with(spec.labels, spec.reading).table


def read_table(spec: Spec, seed: int, groups: Groups | None = None) -> LabelTable:
    """The labels. If they have no splits, some images are drawn for testing.

    They are a fifth of the images, the same for all seeds; or, if the spec has folds, another part
    of the images for each seed.

    Args:
        groups: images that belong together, and are on one side of a split that is drawn.
    """
    table = labels_of(spec)
    if table.splits is not None:
        return table
    if spec.folds is not None:
        fold = spec.seeds.index(seed) % spec.folds
        test = make_folds(table, spec.folds, 0, groups) == fold
    else:
        test = uniform(key(0, "test"), keys(table.ids)) < _TEST
        test = test if groups is None else test[groups.first]
    return table.with_splits(np.where(test, spec.test_split, spec.split).tolist())


def has_folds(spec: Spec) -> bool:
    """Whether each seed tests on other images."""
    return spec.folds is not None and labels_of(spec).splits is None
