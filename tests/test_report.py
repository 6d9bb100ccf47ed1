"""The report: figures compared with plain counting, the landscape with moved weights."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance
from torch import nn

from partlabel import LabelTable, metrics, write_labels
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.judging.scoring import aligned, evaluate_estimates
from partlabel.learning.methods import METHODS
from partlabel.metrics.calibration import logits
from partlabel.output.report import analysis, build_report, landscape
from partlabel.output.report.class_results import gain_bars
from partlabel.output.report.landscape import costs_at, random_direction, steps, survey
from partlabel.output.report.sample import names_of
from partlabel.output.report.score_charts import share_bars
from partlabel.training.checkpoint import load_state, same
from partlabel.training.run import Run
from reports import Workspace, cells, page_of, section
from trained import tiny_model


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """With tensors this small, several threads mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("report"))


def test_everything_at_once(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landscape, "_LINE", 5)
    monkeypatch.setattr(landscape, "_SIDE", 3)
    call: dict[str, Any] = {"truth": work.truth, "baseline": work.an, "landscape": True}
    before = [load_state(run.folder / "best.safetensors") for run in (work.em_apl, work.an)]
    path = build_report(work.em_apl, **call)
    whole, page = path.read_text(), page_of(path)
    for title in (
        "How fast known labels are learned",
        "Gain over an",
        "What the unknown labels are",
        "How sure the model is",
        "Scores of unknown labels",
        "How well unknown labels are separated",
        "The loss around the weights",
        "The loss in two directions",
    ):
        assert section(page, title).count("<svg/>") == 1, title
    assert "&lt;b&gt;" in section(page, "Results per class")
    assert not re.search(r"<td><b>|<li[^>]*>● <b>", whole)
    assert "<b>" not in "".join(re.findall(r"<svg.*?</svg>", whole, re.DOTALL))
    assert not re.search(r"(src|href)=.https?:", whole)
    assert whole == build_report(work.em_apl, **call).read_text()
    after = [load_state(run.folder / "best.safetensors") for run in (work.em_apl, work.an)]
    assert same(before, after)


def test_pseudo_labels_are_counted(work: Workspace) -> None:
    """Compared with the file itself, cell by cell."""
    training = work.em_apl.selection.training
    truth = aligned(work.truth, training).dense()
    rounds = np.fromfile(work.em_apl.folder / "memory" / "rounds", np.int16)
    rounds = rounds.reshape(len(training), 5)
    page = page_of(build_report(work.em_apl, truth=work.truth))
    header, *rows = cells(section(page, "Pseudo-labels"))
    assert header[:4] == ["round", "absent", "present", "labelled so far"]
    assert [row[0] for row in rows] == ["1", "2", "all"]
    unknown, so_far, right_of_all = int((training.dense() == 0).sum()), 0, 0
    for number, row in zip((1, 2), rows, strict=False):
        labelled = [(i, j) for i, j in np.argwhere(rounds == -number)]
        right = sum(truth[i, j] == -1 for i, j in labelled)
        so_far, right_of_all = so_far + len(labelled), right_of_all + right
        assert row[1:3] == [str(len(labelled)), "0"]
        assert row[3] == f"{100 * so_far / unknown:.1f}"
        assert row[4] == f"{100 * right / len(labelled):.1f}"
        named = re.findall(r" (\d+)(?:,|$)", row[5])
        wrong = sorted([sum(truth[i, k] == 1 for i, k in labelled if k == j) for j in range(5)])
        assert [int(n) for n in named] == [n for n in wrong[::-1][:3] if n]
    assert rows[2][1] == str(so_far)
    share = f"{100 * right_of_all / so_far:.1f}%"
    assert f"Of the labels whose truth is known, {share} are correct" in page


def test_without_truth_its_sections_are_left_out(work: Workspace) -> None:
    page = page_of(build_report(work.em_apl))
    assert cells(section(page, "Pseudo-labels"))[0][-1] == "labelled so far"
    assert section(page, "How fast known labels are learned")
    assert section(page, "Where the model looks")
    for title in (
        "What the unknown labels are",
        "How sure the model is",
        "The loss in two directions",
    ):
        assert not section(page, title)
    assert "Gain over" not in page


def test_truth_may_be_partial(work: Workspace) -> None:
    """Other images, other classes, and hardly anything known."""
    table = LabelTable(["x", work.hidden.ids[0]], ["<b>", "more"], [[1, 1], [0, 1]])
    page = page_of(build_report(work.an, truth=table))
    assert not section(page, "How sure the model is")
    training = work.an.selection.training
    row = int(np.flatnonzero(training.dense()[:, 0] == 0)[0])
    table = LabelTable([training.ids[row]], ["<b>"], [[-1]])
    page = page_of(build_report(work.an, truth=table))
    assert section(page, "How sure the model is")
    assert "0.0% of the 1 training labels" in section(page, "What the unknown labels are")
    assert not section(page, "Scores of unknown labels")  # there is one kind only


def test_own_estimates(work: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = work.role.selection.training
    logits = load_state(work.role.checkpoint)["method"]["estimator"]
    truth = aligned(work.truth, training)
    mean = metrics.evaluate(torch.sigmoid(logits).numpy(), truth)["mAP"]
    page = page_of(build_report(work.role, truth=work.truth))
    rows = cells(section(page, "The method&#39;s own estimates"))
    assert rows[2][1] == f"{100 * mean:.1f}"
    assert math.isclose(evaluate_estimates(work.role, work.truth)["mAP"], mean, abs_tol=1e-6)
    write_labels(work.truth, tmp_path / "truth.csv")
    call = ["evaluate", str(work.role.folder), str(tmp_path / "truth.csv")]
    figures = tmp_path / "f.json"
    assert main([*call, "--estimates", "--json", str(figures)]) == 0
    assert math.isclose(json.loads(figures.read_text())["mAP"], mean, abs_tol=1e-6)
    assert main([*call, "--estimates", "--own-thresholds"]) == 2
    assert main(call) == 0  # the classifier, on the run's own images
    assert "images were trained on" in " ".join(capsys.readouterr().err.split())
    assert main(["evaluate", str(work.an.folder), str(tmp_path / "truth.csv"), "--estimates"]) == 2
    assert "the method 'an' has no estimates of its own" in capsys.readouterr().err


def test_errors(work: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fewer = work.train("an", "fewer", work.hidden.subset(range(40)), epochs=1)
    with pytest.raises(InputError, match="was trained on other labels"):
        build_report(work.em_apl, baseline=fewer)
    for other, message in [
        (LabelTable(["x"], work.truth.classes, [[1] * 5]), "none of the images"),
        (LabelTable(work.truth.ids[:2], ["x"], [[1], [1]]), "none of the classes"),
    ]:
        with pytest.raises(InputError, match=message):
            build_report(work.em_apl, truth=other)
    call = ["report", str(work.em_apl.folder)]
    assert main([*call, "--format", "csv"]) == 2
    assert "without --truth" in capsys.readouterr().err
    assert main([*call, "--baseline", str(tmp_path)]) == 2
    assert "there is no run here" in capsys.readouterr().err


def test_a_baseline_validated_on_other_images_is_refused(work: Workspace) -> None:
    table = LabelTable(work.hidden.ids, work.hidden.classes, work.hidden.dense())
    one, two = (
        work.train("an", f"seed{seed}", table, epochs=1, seed=seed, val=0.3) for seed in (0, 1)
    )
    with pytest.raises(InputError, match="same --seed"):
        build_report(one, baseline=two)


def test_runs_with_the_same_name_get_different_names(work: Workspace, tmp_path: Path) -> None:
    assert names_of([work.em_apl, work.an]) == ["em-apl", "an"]
    for run, folder in ((work.em_apl, "a"), (work.an, "b"), (work.an, "c")):
        (tmp_path / folder / "run").mkdir(parents=True)
        Run(tmp_path / folder / "run").write(run.record)
    a, b, c = (Run(tmp_path / folder / "run") for folder in "abc")
    assert names_of([a, b]) == ["run (em-apl)", "run (an)"]
    assert len(set(names_of([b, c]))) == 2


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 4))
def test_analysis_against_loops(seed: int, images: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    labels, truth = rng.integers(-1, 2, (2, images, classes)) * rng.integers(0, 2, (2, 1, 1))
    scores = rng.random((images, classes))
    kinds = analysis.kinds(labels, truth)
    distances = analysis.distances(scores, kinds.positives, kinds.negatives)
    shares = analysis.shares(kinds.positives.sum(axis=0), kinds.negatives.sum(axis=0))
    for j in range(classes):
        unknown = [i for i in range(images) if labels[i, j] == 0]
        present = [scores[i, j] for i in unknown if truth[i, j] == 1]
        absent = [scores[i, j] for i in unknown if truth[i, j] == -1]
        if present and absent:
            assert math.isclose(distances[j], wasserstein_distance(present, absent))
        else:
            assert math.isnan(distances[j])
        total = len(present) + len(absent)
        assert shares[j] == len(present) / total if total else math.isnan(shares[j])
    known = [scores[i, j] for i, j in np.ndindex(labels.shape) if labels[i, j] == 1]
    mean = analysis.mean_of(scores, kinds.annotated)
    assert math.isclose(mean, sum(known) / len(known)) if known else math.isnan(mean)
    common = analysis.most_common(kinds.positives, kinds.negatives, 2)
    assert all(not math.isnan(distances[j]) for j in common)
    assert len(common) == min(2, int((~np.isnan(distances)).sum()))


def test_logits_undo_the_sigmoid_and_stay_finite() -> None:
    values = np.array([-700.0, -30.0, -1.0, 0.0, 2.5, 30.0])
    back = logits(1 / (1 + np.exp(-values)))
    np.testing.assert_allclose(back, values, rtol=1e-3, atol=1e-12)
    assert np.isfinite(logits(np.array([0.0, 1.0]))).all()


def test_many_classes_are_drawn_without_names() -> None:
    names = [f"class {j}" for j in range(500)]
    for draw in (share_bars, gain_bars):
        assert draw(np.linspace(1, 0, 500), names).startswith("<svg")


def test_filters_of_a_direction_have_the_norms_of_the_weights() -> None:
    model = tiny_model(METHODS["an"](), 3)
    one, again, other = (random_direction(model, seed) for seed in (0, 0, 1))
    assert same(one, again)
    assert one.keys() == dict(model.named_parameters()).keys()
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            assert not one[name].any()
            continue
        for theirs, mine in zip(one[name], weight.detach(), strict=True):
            assert torch.isclose(theirs.norm(), mine.norm(), rtol=1e-4)
        assert not torch.equal(one[name], other[name])


def test_frozen_weights_have_no_direction() -> None:
    layer = nn.Linear(2, 3)
    layer.weight.requires_grad_(False)
    assert list(random_direction(layer, 0)) == ["bias"]


def test_a_landscape_is_the_loss_at_moved_weights() -> None:
    """Least squares with a linear head, compared with numpy."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).double()
    x, y = torch.randn(10, 4).double(), torch.randn(10, 3).double()
    weight, bias = (p.detach().numpy().copy() for p in (layer.weight, layer.bias))

    def cost() -> float:
        return float(((layer(x) - y) ** 2).mean())

    directions = [random_direction(layer, seed) for seed in (0, 1)]
    points = np.array([[a, b] for a in steps(5) for b in steps(3)])
    losses = costs_at(layer, cost, directions, points)
    first, second = (direction["weight"].numpy() for direction in directions)
    for (a, b), value in zip(points, losses, strict=True):
        moved = weight + a * first + b * second
        expected = np.mean((x.numpy() @ moved.T + bias - y.numpy()) ** 2)
        assert math.isclose(value, expected, rel_tol=1e-12)
    # a quadratic: its second differences are the same everywhere
    line = costs_at(layer, cost, directions[:1], steps(21)[:, None])
    np.testing.assert_allclose(np.diff(line, 2), np.diff(line, 2)[0], rtol=1e-6)
    assert np.array_equal(layer.weight.detach().numpy(), weight)
    assert np.array_equal(layer.bias.detach().numpy(), bias)


def test_weights_are_restored_if_the_loss_fails_and_infinite_losses_are_nan() -> None:
    layer = nn.Linear(2, 2)
    kept = layer.weight.detach().clone()
    values = iter([math.inf, 1.0])

    def fails() -> float:
        value = next(values, None)
        if value is None:
            raise InputError("no more")
        return value

    losses = costs_at(layer, fails, [random_direction(layer, 0)], np.array([[0.5], [1.0]]))
    assert math.isnan(losses[0])
    assert losses[1] == 1.0
    with pytest.raises(InputError):
        costs_at(layer, fails, [random_direction(layer, 0)], np.array([[0.5]]))
    assert torch.equal(layer.weight, kept)


@pytest.mark.parametrize("method", ["en-scl", "en-cl", "role"])
def test_a_survey_has_the_training_loss(method: str, work: Workspace) -> None:
    """Also with class maps and a teacher, and with a method that has parameters of its own."""
    run = work.role if method == "role" else work.train(method)
    surveyed = survey(run, method)
    assert surveyed.line.shape == (21,)
    assert surveyed.surface.shape == (11, 11)
    assert np.isfinite(surveyed.surface).all()
    assert surveyed.line[10] == surveyed.surface[5, 5] == surveyed.at_weights
    logged = run.history()[-1]["loss"]  # while the weights still moved
    assert abs(surveyed.at_weights - logged) < 0.5 * abs(logged)
