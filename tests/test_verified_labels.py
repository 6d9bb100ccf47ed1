"""Generated labels like those of Open Images."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from benchmarks import verified_labels
from benchmarks.verified_labels import embeddings, identifier, verified

from partlabel import metrics, read_labels
from partlabel.labels.formats import FORMATS
from partlabel.labels.formats.source import Source


def test_statistics() -> None:
    """A long tail, ten known labels an image, a little less than half of them present."""
    features, labels, present = embeddings(4_000, 500, seed=0)
    known = labels != 0
    assert features.shape == (4_000, 64)
    assert 9 < known.sum(axis=1).mean() < 11
    assert known.sum(axis=1).min() >= 1
    assert 0.42 < (labels == 1).sum() / known.sum() < 0.50
    per_class = np.sort(known.sum(axis=0))
    assert per_class[-1] > 5 * per_class[250] > 7 * per_class[0] > 0
    assert np.array_equal(labels[known] == 1, present[known])  # people do not err


def test_the_machine_asks_about_likely_classes() -> None:
    rng = np.random.default_rng(0)
    present = rng.random((500, 50)) < 0.1
    labels = verified(np.where(present, 10.0, 0.0), present, rng)
    assert (labels[present] == 1).mean() > 0.9
    assert 0 < (labels == -1).sum() < (labels != 0).sum()


def test_the_files_are_those_of_open_images(tmp_path: Path) -> None:
    verified_labels.write_embeddings(tmp_path, images=300, classes=12, seed=1)
    header, first = (tmp_path / "labels.csv").read_text().splitlines()[:2]
    assert header == "ImageID,Source,LabelName,Confidence"
    assert first.split(",")[:3] == [identifier(0), "verification", first.split(",")[2]]
    formats = [
        name for name, one in FORMATS.items() if one.matches(Source(tmp_path / "labels.csv"))
    ]
    assert formats == ["open-images"]
    table = read_labels(tmp_path / "labels.csv")
    _, labels, _ = embeddings(300, 12, seed=1)
    assert np.array_equal(table.dense(), labels[:, : len(table.classes)])
    stored = np.load(tmp_path / "features.npz")
    assert list(stored["ids"]) == list(table.ids)


def test_pictures_have_the_names_of_their_files(tmp_path: Path) -> None:
    tmp_path = tmp_path / "new" / "set"
    verified_labels.write_pictures(tmp_path, images=100, seed=0)
    table = read_labels(tmp_path / "labels.csv")
    assert {f"{name}.png" for name in table.ids} == {
        path.name for path in (tmp_path / "scenes" / "images").iterdir()
    }
    truth = read_labels(tmp_path / "scenes" / "labels.csv")
    columns = [list(truth.classes).index(name) for name in table.classes]
    labels, true = table.dense(), truth.dense()[:, columns]
    assert (labels[labels != 0] == true[labels != 0]).all()


def test_groups_of_classes_by_known_labels() -> None:
    """Scores of which all classes are equally sure: groups differ by their known labels alone."""
    _, labels, present = embeddings(2_000, 50, seed=0)
    result = metrics.evaluate(np.where(present, 0.9, 0.1), labels)
    groups = metrics.by_annotations(result, (labels != 0).sum(axis=0))
    assert [group["classes"] for group in groups] == [10] * 5
    assert [group["mAP"] for group in groups] == [1.0] * 5
    assert all(a["most"] <= b["fewest"] for a, b in pairwise(groups))
