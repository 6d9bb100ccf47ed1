"""What is compared if there is no spec: methods that suit the labels."""

from pathlib import Path

from partlabel.base.errors import FileError, InputError
from partlabel.labels.formats import ReadOptions
from partlabel.output.bench.spec import Spec, read_spec
from partlabel.output.bench.spec_labels import labels_of
from partlabel.training.embedded import PathLike
from partlabel.training.run_split import by_humans, has_both_kinds

SPEC = Path(__file__).with_name("own_labels.yaml")
_TESTS = ("test", "val", "validation", "valid", "dev")  # names of splits to test on, the best first
_NEED_ABSENT = ("bce",)  # methods that learn nothing without labels known to be absent


def spec_for(
    labels: PathLike | None,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    reading: ReadOptions | None = None,
) -> Spec:
    """The spec that comes with the package, with the splits of these labels."""
    if labels is None:
        raise InputError("name a spec, or a label file with --labels")
    spec = read_spec(SPEC, labels, images, features, feature_ids, reading)
    table = labels_of(spec)
    names = set(table.split_names)
    if names:
        test = next((name for name in _TESTS if name in names), None)
        if spec.split not in names or test is None:
            raise FileError(
                labels,
                f"has splits, but not '{spec.split}' and '{_TESTS[0]}'; rename them, or remove the "
                "column, so that images to test on are drawn",
            )
        spec = spec.model_copy(update={"test_split": test})
    tested, trained = (
        (table, table) if not names else (table.split(spec.test_split), table.split(spec.split))
    )
    if not has_both_kinds(by_humans(tested)):
        raise FileError(
            labels,
            "all known labels of images to test on are of one kind, so no mAP can be measured; "
            "label a few hundred images for all classes, in a split 'test'",
        )
    if not has_both_kinds(by_humans(trained)):
        suited = [entry for entry in spec.methods if entry.method not in _NEED_ABSENT]
        spec = spec.model_copy(update={"methods": suited})
    return spec
