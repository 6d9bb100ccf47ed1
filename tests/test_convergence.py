"""L-BFGS: a stage ends when it has converged, and its log shows the figures after each epoch."""

from pathlib import Path
from typing import Any

import pytest
import torch

from partlabel import losses, train
from partlabel.base.errors import InputError
from partlabel.images.batches import Batch
from partlabel.models.prediction import iterate_logits
from partlabel.training.image_files import locate_all
from partlabel.training.inputs import make_inputs
from partlabel.training.optimizers import WholeBatch
from partlabel.training.progress import Progress
from partlabel.training.run import Run
from partlabel.training.steps import Steps, has_converged


def solve(scene: Path, out: Path, **more: Any) -> Run:
    settings = {
        "method": "bce",
        "backbone": "test_efficientnet",
        "weights": "none",
        "size": 64,
        "frozen": "all",
        "optimizer": "lbfgs",
        "weight_decay": 1e-3,
        "keep": "last",
        "epochs": 12,
        "cache": out.parent / "cache",
        **more,
    }
    return train(scene / "partial.csv", scene / "images", out, **settings)


def test_a_stage_ends_when_it_has_converged(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = solve(scene, tmp_path / "run")
    epochs = len(run.history())
    assert 2 <= epochs < 12
    assert f"converged after {epochs} of 12 epochs" in capsys.readouterr().err
    longer = solve(scene, tmp_path / "longer", epochs=30)
    assert len(longer.history()) == epochs  # it would have changed nothing more


@pytest.mark.parametrize(
    ("before", "first", "final", "expected"),
    [
        (0.3, 0.3, 0.3 * (1 - 0.9e-6), True),
        (0.3, 0.3, 0.3 * (1 - 1.1e-6), False),  # it can still be lowered
        (0.3, 0.3, 0.3 * (1 + 5e-6), True),  # rounding in a last line search
        (0.3 * (1 + 1.1e-6), 0.3, 0.3, False),  # labels or views have changed
        (0.3 * (1 - 1.1e-6), 0.3, 0.3, False),
        (None, 0.3, 0.3, False),  # nothing to compare with
        (0.0, 0.0, 0.0, True),
    ],
)
def test_an_epoch_that_lowers_the_cost_by_less_than_a_millionth_is_the_last(
    before: float | None, first: float, final: float, expected: bool
) -> None:
    assert has_converged(before, first, final) is expected


def test_all_epochs_have_the_images_in_the_same_order(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums then round in the same way, so that the cost does not change between epochs."""
    orders: list[list[int]] = []
    solve_step = Steps._solve

    def spy(self: Steps, batch: Batch, optimizer: WholeBatch, progress: Progress) -> Any:
        orders.append(batch.rows.tolist())
        return solve_step(self, batch, optimizer, progress)

    monkeypatch.setattr(Steps, "_solve", spy)
    solve(scene, tmp_path / "run")
    assert len(orders) > 1
    assert orders == [list(range(len(orders[0])))] * len(orders)


def test_a_cost_that_changes_later_is_waited_for(scene: Path, tmp_path: Path) -> None:
    """Pseudo-labels come after five epochs, long after the cost before them is minimal."""
    run = solve(scene, tmp_path / "run", method="em-apl", options={"warmup": 8}, epochs=12)
    assert len(run.history()) == 12
    assert [line["epoch"] for line in run.history() if "pseudo_labels" in line] == [9, 10, 11, 12]


def test_random_views_never_converge(scene: Path, tmp_path: Path) -> None:
    """Each epoch mirrors other images, so each has another cost."""
    run = solve(scene, tmp_path / "run", view_bank=1, epochs=6)
    assert len(run.history()) == 6


def test_the_log_has_the_loss_of_the_weights_after_an_epoch(scene: Path, tmp_path: Path) -> None:
    run = solve(scene, tmp_path / "run", epochs=1)
    model, training = run.classifier(), run.selection.training
    paths = locate_all(training, run.images)
    inputs = make_inputs(model, training, paths, run.settings, run.execution, pytest.fail)
    rows = torch.arange(len(training)).numpy()
    ((_, logits),) = iterate_logits(model, inputs, rows, len(training))
    loss = losses.bce(logits, torch.from_numpy(training.dense()).float())
    assert run.history()[0]["loss"] == pytest.approx(float(loss), rel=1e-5)


def test_cached_pixels_are_for_trainings_of_the_network(scene: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--cache-pixels has no effect with --frozen"):
        solve(scene, tmp_path / "run", cache_pixels=True)
    assert not (tmp_path / "run").exists()
