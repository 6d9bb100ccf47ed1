"""The images of a comparison that belong together, found once for all trainings."""

import os
from collections.abc import Callable

import numpy as np

from partlabel.images.named_images import open_images
from partlabel.labels.formats.delimited import write_delimited
from partlabel.labels.groups import Groups
from partlabel.output.bench.jobs import Setup
from partlabel.output.bench.spec import Spec
from partlabel.output.bench.spec_labels import labels_of
from partlabel.training.arguments import make_settings
from partlabel.training.embedded import for_features, open_vectors
from partlabel.training.image_files import find_files
from partlabel.training.settings import Execution
from partlabel.training.together import near_duplicates

_NETWORK = ("backbone", "weights", "size", "frozen", "precision")  # what features depend on


def find_groups(
    spec: Spec, cache: str | os.PathLike[str] | None, say: Callable[[str], object]
) -> Groups:
    """The near-duplicates among the images that are compared on, unless the spec wants none."""
    table = labels_of(spec)
    if spec.settings.get("split_duplicates"):
        return Groups.none(len(table))
    vectors = open_vectors(spec.features or None, spec.feature_ids or None)
    network = {name: spec.settings[name] for name in _NETWORK if name in spec.settings}
    arguments = for_features(network, has_features=vectors is not None)
    settings = make_settings(method="bce", **arguments)
    rows, files = np.arange(len(table)), []
    if table.splits is not None:  # images of other splits need not be there
        rows = np.flatnonzero(table.in_split(spec.split) | table.in_split(spec.test_split))
    if vectors is None:
        paths = find_files(table, open_images(spec.images), rows)
        files = [paths[row] for row in rows.tolist()]
    execution = Execution() if cache is None else Execution.model_validate({"cache": cache})
    duplicates = near_duplicates(table.subset(rows), files, vectors, settings, execution, say)
    return duplicates.among(rows, len(table))


def write_groups(setup: Setup) -> None:
    """Write the groups of several images, for the trainings to read."""
    if setup.groups.groups:
        table, shared = labels_of(setup.spec), setup.groups.sizes > 1
        rows = zip(table.ids, setup.groups.first.tolist(), shared.tolist(), strict=True)
        records = ([name, first if is_shared else ""] for name, first, is_shared in rows)
        write_delimited(setup.groups_file, ["image", "group"], records)
