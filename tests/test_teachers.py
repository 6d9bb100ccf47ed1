"""Teachers: scores of other models as evidence, which is ignored unless labels speak for it."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from numpy.typing import NDArray

import partlabel
from partlabel import LabelTable, write_labels
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.cli import main
from partlabel.learning.teachers import TeacherScores, read_teacher, refuse_overlap
from partlabel.models.features.vector_writing import write_vectors
from partlabel.models.heads import Linear, WithEvidence
from partlabel.training.run import Run

SETTINGS: dict[str, Any] = {
    "method": "bce",
    "optimizer": "lbfgs",
    "weight_decay": 1e-2,
    "features": "v.npz",
}
CLASSES = ["cat", "dog", "cow"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NDArray[np.bool_]:
    """Weak features, labels of which 60% are known, and scores of a good and a useless teacher."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    truth = draw.random((600, 3)) < 0.3
    vectors = draw.normal(size=(600, 8)).astype(np.float32)
    vectors[:, :3] += 0.8 * truth
    labels = np.where(draw.random(truth.shape) < 0.6, np.where(truth, 1, -1), 0)
    labels[400:] = np.where(truth, 1, -1)[400:]
    ids = [f"i{n}" for n in range(600)]
    table = LabelTable(ids, CLASSES, labels, ["train"] * 400 + ["test"] * 200)
    write_labels(table, "labels.csv")
    write_vectors(Path("v.npz"), vectors, ids)
    good = 2.5 * truth[:, 0] + draw.normal(size=600)
    write_scores("good.csv", ids, {"cat": good, "horse": good})
    write_scores("useless.csv", ids, {"dog": draw.normal(size=600)})
    return truth


def write_scores(path: str, ids: list[str], logits: dict[str, NDArray[Any]]) -> None:
    rows = [f"{i},{name},{v:.4f}\n" for name, own in logits.items() for i, v in zip(ids, own)]  # noqa: B905
    Path(path).write_text("image,class,logit\n" + "".join(rows))


def test_a_good_teacher_helps_its_class_and_a_useless_one_is_ignored(
    data: NDArray[np.bool_],
) -> None:
    plain = partlabel.train("labels.csv", out="plain", **SETTINGS)
    run = partlabel.train("labels.csv", out="run", teachers=["good.csv", "useless.csv"], **SETTINGS)
    before, after = (partlabel.evaluate(one, "labels.csv", split="test") for one in (plain, run))
    gain = after.per_class["AP"] - before.per_class["AP"]
    assert gain[0] > 0.1
    assert gain[1] > -0.02
    assert abs(gain[2]) < 0.02
    head = run.classifier().head
    assert isinstance(head, WithEvidence)
    weights = head.weights().detach()
    assert weights[0, 0] > 0.7
    assert weights[1, 1].abs() < 0.2
    assert weights[1, 0].abs() < 0.2
    page = partlabel.report(run).read_text()
    assert "What good.csv adds" in page
    assert "never used as labels" in page


def test_a_teacher_that_was_trained_on_the_labels_is_noticed(data: NDArray[np.bool_]) -> None:
    """The scores of a run on its own labels, made sharper: it repeats what it was told."""
    table = partlabel.read_labels("labels.csv").split("train")
    draw = np.random.default_rng(1)
    told = 3.0 * table.dense() + draw.normal(size=table.shape)
    write_scores("pupil.csv", list(table.ids), dict(zip(CLASSES, told.T, strict=True)))
    with pytest.warns(PartlabelWarning, match="pupil.csv: .* almost without error .AUC 100"):
        partlabel.train("labels.csv", out="run", teachers=["pupil.csv"], **SETTINGS)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*almost without error")
        partlabel.train("labels.csv", out="fair", teachers=["good.csv"], **SETTINGS)


def test_the_area_is_that_of_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    metrics: Any = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(3)
    scores, labels = draw.normal(size=(50, 2)).round(1), draw.integers(-1, 2, (50, 2))
    ids = [f"i{n}" for n in range(50)]
    table = LabelTable(ids, ["a", "b"], labels)
    write = {"a": scores[:, 0], "b": scores[:, 1]}
    write_scores("t.csv", ids, write)
    found = TeacherScores([read_teacher(Path("t.csv"))], table).separations(table)[0]
    known = [labels[:, j] != 0 for j in range(2)]
    areas = [
        metrics.roc_auc_score(labels[own, j] > 0, scores[own, j]) for j, own in enumerate(known)
    ]
    weights = (labels == 1).sum(axis=0)
    assert found.area == pytest.approx(np.average(areas, weights=weights))
    assert found.present == weights.sum()


def test_guarantees_are_given_with_teachers_too(data: NDArray[np.bool_]) -> None:
    run = partlabel.train("labels.csv", out="run", teachers=["good.csv"], **SETTINGS)
    with warnings.catch_warnings():  # some classes may have too few reserved images
        warnings.simplefilter("ignore", PartlabelWarning)
        completion = partlabel.complete(run, min_precision=0.6)
    filled = completion.table.dense()[:400, 0]
    right = filled[filled != 0] == np.where(data[:400, 0], 1, -1)[filled != 0]
    assert right.mean() > 0.6


def test_logits_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    head = WithEvidence(Linear(4, 3), features=4, teachers=2, classes=3)
    for parameter in (head.shared, head.own, head.offset):
        torch.nn.init.normal_(parameter)
    head.standardise(torch.randn(2, 3), torch.rand(2, 3) + 0.5, 50)
    maps, scores = torch.randn(5, 4, 2, 2), torch.randn(5, 2, 3)
    known = torch.rand(5, 2, 3) < 0.5
    extra = torch.stack([torch.where(known, scores, 0.0), known.float()], dim=1).flatten(1)
    joined = torch.cat([maps, extra[:, :, None, None].expand(-1, -1, 2, 2)], dim=1)
    expected = head.head(maps)
    for image in range(5):
        for t in range(2):
            for c in range(3):
                if known[image, t, c]:
                    standard = (scores[image, t, c] - head.mean[t, c]) / head.deviation[t, c]
                    weight = head.shared[t, 0] + head.own[t, c]
                    expected[image, c] = expected[image, c] + weight * standard + head.offset[t, c]
    torch.testing.assert_close(head(joined), expected)
    torch.testing.assert_close(head(maps), head.head(maps))
    both_left_out = head(joined, without=0) + head(joined, without=1) - head(joined)
    torch.testing.assert_close(both_left_out, head.head(maps))


def test_new_images_need_scores_of_their_own(data: NDArray[np.bool_]) -> None:
    draw = np.random.default_rng(5)
    run = partlabel.train("labels.csv", out="run", teachers=["good.csv"], **SETTINGS)
    new = [f"n{n}" for n in range(20)]
    write_vectors(Path("new.npz"), draw.normal(size=(20, 8)).astype(np.float32), new)
    write_scores("new.csv", new, {"cat": draw.normal(size=20)})
    with pytest.warns(PartlabelWarning, match=r"good.csv has scores of 0 of 20 images"):
        without = partlabel.predict(run, features="new.npz", threshold=0.5)
    scored = partlabel.predict(run, features="new.npz", teachers=["new.csv"], threshold=0.5)
    scores = [t.cells.scores_or_nan().reshape(20, 3) for t in (without, scored)]
    assert (scores[0][:, 0] != scores[1][:, 0]).all()
    np.testing.assert_array_equal(scores[0][:, 1:], scores[1][:, 1:])
    with pytest.raises(InputError, match=r"trained with 1 teacher \(good.csv\); give as many"):
        partlabel.predict(run, features="new.npz", teachers=["new.csv", "new.csv"])


def test_a_training_with_teachers_resumes(data: NDArray[np.bool_]) -> None:
    call = ["train", "labels.csv", "--features", "v.npz", "--teacher", "good.csv", "--method"]
    call += ["em", "--epochs", "2", "--out", "run", "--set", "alpha=0.1"]
    assert main(call) == 0
    assert main([*call, "--resume"]) == 0
    Path("good.csv").write_text(Path("useless.csv").read_text())
    assert main([*call, "--resume"]) == 2
    assert main(["evaluate", "run", "labels.csv", "--split", "test"]) == 0
    assert Run("run").record.teachers[0].name == "good.csv"


def test_images_with_teachers(scene: Path, tmp_path: Path) -> None:
    table = partlabel.read_labels(scene / "partial.csv")
    write_scores(str(tmp_path / "t.csv"), list(table.ids), {table.classes[0]: np.arange(40.0)})
    run = partlabel.train(
        table, scene / "images", tmp_path / "run", method="partial-bce", frozen="all", size=64,
        backbone="test_efficientnet", weights="none", epochs=2, cache=tmp_path / "cache",
        teachers=[tmp_path / "t.csv"],
    )  # fmt: skip
    assert np.isfinite(partlabel.evaluate(run, reserved=True)["mAP"])
    assert len(partlabel.predict(run, scene / "images" / "000000.png", threshold=0.5)) == 1
    assert "heat map" in partlabel.report(run).read_text().lower()


# ---- files


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "oi.csv").write_text(
        "ImageID,Source,LabelName,Confidence\na,machine,/m/1,0.5\nb,machine,/m/1,1\n"
    )
    (tmp_path / "cells.csv").write_text(
        "image,class,value,score,source\na,x,1,0.9,model\na,y,,,model\nb,y,0,0.1,model\n"
    )
    frame = pa.table({"image": ["a", "b"], "class": ["x", "x"], "probability": [0.25, 0.75]})
    pyarrow.parquet.write_table(frame, tmp_path / "p.parquet")
    table = LabelTable(["b", "a"], ["y", "x"], np.zeros((2, 2), dtype=np.int8))
    machine = read_teacher(tmp_path / "oi.csv")
    assert machine.logits.tolist() == pytest.approx([0, np.log(9999)])
    scores = TeacherScores([read_teacher(tmp_path / "cells.csv")], table).read(np.arange(2))
    odds = np.log(9)
    np.testing.assert_allclose(scores[:, 0, 0], [[-odds, 0], [0, odds]], rtol=1e-5)
    assert scores[:, 1, 0].tolist() == [[1, 0], [0, 1]]
    parquet = read_teacher(tmp_path / "p.parquet")
    assert parquet.logits.tolist() == pytest.approx([-np.log(3), np.log(3)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "image,class,score\na,x,1.5\n",
            r"line 2, column 'score': '1.5' .*call the column 'logit'",
        ),
        ("image,class,score\na,x,much\n", "'much' is not allowed"),
        ("image,class,logit\na,x,inf\n", "expected a finite number"),
        ("image,class,score\na,x,0.5\na,x,0.6\n", "line 3: the image 'a' has two scores for 'x'"),
        ("image,class\na,x\n", "has no column of scores; call it 'score'"),
        ("class,score\nx,1\n", "has no column of images"),
        ("image,class,score\na,x,\n", "has no score"),
        ("image,class,score\na,zebra,0.5\n", "scores of none of the classes to learn, such as"),
    ],
)
def test_bad_files(text: str, message: str, data: NDArray[np.bool_]) -> None:
    Path("t.csv").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        partlabel.train("labels.csv", out="run", teachers=["t.csv"], **SETTINGS)
    assert str(error.value).startswith("t.csv")
    assert not Path("run").exists()


def test_two_teachers_for_the_same_cell(tmp_path: Path) -> None:
    for name, rows in (("a", "i,x,0.5\nj,x,0.5\n"), ("b", "k,x,0.5\nj,x,0.1\n")):
        (tmp_path / name).write_text("image,class,score\n" + rows)
    teachers = [read_teacher(tmp_path / name) for name in "ab"]
    with pytest.raises(InputError, match=r"1 score for the same .* such as 'j', 'x'; average them"):
        refuse_overlap(teachers)
    refuse_overlap(teachers[:1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda call: {**call, "method": "imcl", "optimizer": "adam"}, "'imcl' does not; these do"),
        (lambda call: {**call, "method": "wsabie", "optimizer": "adam"}, "'wsabie' does not"),
    ],
)
def test_methods_that_do_more_than_logits_are_refused(
    change: Callable[[dict[str, Any]], dict[str, Any]], message: str, data: NDArray[np.bool_]
) -> None:
    with pytest.raises(InputError, match=message):
        partlabel.train("labels.csv", out="run", teachers=["good.csv"], **change(SETTINGS))
