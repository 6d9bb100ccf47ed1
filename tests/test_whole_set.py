"""L-BFGS on parts of the images: the result is that of all images at once, for any size of part."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partlabel
from partlabel.base.errors import InputError
from partlabel.images.batches import Batch, Rows
from partlabel.labels import LabelTable
from partlabel.learning.method import Task
from partlabel.learning.methods import METHODS
from partlabel.models import Classifier
from partlabel.models.features.embeddings import GivenFeatures
from partlabel.models.heads import Linear
from partlabel.training import whole_set
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state
from partlabel.training.devices import make_fabric
from partlabel.training.progress import Progress
from partlabel.training.run import Run
from partlabel.training.steps import Objective, Steps
from partlabel.training.whole_set import WholeSet

IMAGES, FEATURES, CLASSES = 301, 12, 5
DECAY = 1e-3
SETTINGS: dict[str, Any] = {"optimizer": "lbfgs", "weight_decay": DECAY, "backbone": "none"}


def make_data() -> tuple[Any, Any]:
    """Features, and labels of which some are unknown; one part has no known label."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(IMAGES, FEATURES))
    logits = 2 * features @ rng.normal(size=(FEATURES, CLASSES)) + rng.normal(size=CLASSES)
    labels = np.where(rng.random(logits.shape) < 1 / (1 + np.exp(-logits)), 1, -1)
    labels[rng.random(labels.shape) < rng.random((IMAGES, 1))] = 0
    labels[:20] = 0
    return features, labels.astype(np.int8)


def solve(method_name: str, options: dict[str, Any], size: int | None, steps: int = 3) -> Any:
    """The weights after some steps in double precision, and the figures of the last step.

    In double precision rounding cannot grow along the way.
    """
    features, labels = make_data()
    settings = make_settings(method=method_name, options=options, frozen="all", **SETTINGS)
    torch.manual_seed(0)
    method = METHODS[method_name](**options)
    table = LabelTable([f"{i}" for i in range(IMAGES)], list("abcde"), labels)
    method.prepare(Task(table, table, epochs=steps))
    model = Classifier(GivenFeatures(FEATURES), Linear(FEATURES, CLASSES), list("abcde")).double()
    stage = method.stages(steps, None)[0]
    worker = Steps(Objective(model, method), stage, settings, make_fabric("cpu"))

    def load(batches: list[Rows]) -> Iterator[Batch]:
        for rows in batches:
            inputs = torch.from_numpy(features[rows])[:, :, None, None]
            chosen = torch.from_numpy(labels[rows]).double()
            yield Batch(torch.from_numpy(rows), chosen, {"weak": inputs})

    rows = np.arange(IMAGES)
    batch = next(load([rows])) if size is None else WholeSet(rows, size, load)
    progress, figures = Progress(), dict[str, float]()
    for _ in range(steps):
        figures = worker.take(batch, 0.0, progress)
    return [p.detach().clone() for p in model.parameters()], figures, progress.final_cost


@pytest.mark.parametrize(
    ("method", "options"),
    [("bce", {}), ("bce", {"normalize": "batch"}), ("an", {}), ("em", {}), ("l2r", {})],
)
@pytest.mark.parametrize("size", [1, 7, 100, 300])
def test_any_size_of_parts_gives_the_same_weights(
    method: str, options: dict[str, Any], size: int
) -> None:
    weights, figures, cost = solve(method, options, None)
    in_parts, part_figures, part_cost = solve(method, options, size)
    assert part_cost == pytest.approx(cost, rel=1e-9)
    assert part_figures == pytest.approx(figures, rel=1e-6)
    for ours, expected in zip(in_parts, weights, strict=True):
        assert float((ours - expected).norm()) <= 1e-6 * float(expected.norm())


def write_features(folder: Path) -> LabelTable:
    features, labels = make_data()
    names = [f"i{i}" for i in range(IMAGES)]
    np.savez(folder / "x.npz", ids=names, features=features.astype(np.float32))
    return LabelTable(names, list("abcde"), labels)


def train(folder: Path, name: str, **changes: Any) -> Run:
    settings = {"method": "bce", "optimizer": "lbfgs", "weight_decay": 1e-3, "epochs": 12}
    table = write_features(folder)
    return partlabel.train(
        table,
        out=folder / name,
        features=folder / "x.npz",
        **{**settings, "keep": "last", **changes},
    )


def weights_of(run: Run) -> Any:
    return load_state(run.folder / "best.safetensors")


def test_a_training_in_parts_ends_where_one_on_all_images_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(tmp_path, "whole")
    monkeypatch.setattr(whole_set, "_LABELS", 17 * CLASSES)
    parts = train(tmp_path, "parts")
    costs = [
        run.history()[-1]["loss"]
        + DECAY / 2 * float(weights_of(run)["head.classifier.weight"].double().square().sum())
        for run in (whole, parts)
    ]
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)
    for name, expected in weights_of(whole).items():
        ours = weights_of(parts)[name]
        assert float((ours - expected).norm()) <= 1e-3 * float(expected.norm())


@pytest.mark.exact
def test_a_training_in_parts_resumes_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from partlabel.training import trainer

    monkeypatch.setattr(whole_set, "_LABELS", 17 * CLASSES)
    whole = train(tmp_path, "whole", epochs=3)
    original, stops = trainer.Trainer._save, [1]

    def save_and_stop(self: trainer.Trainer, *, force: bool = False) -> None:
        original(self, force=True)
        if stops and self.progress.epoch == stops[0]:
            stops.pop()
            raise KeyError("stop")

    monkeypatch.setattr(trainer.Trainer, "_save", save_and_stop)
    with pytest.raises(KeyError, match="stop"):
        train(tmp_path, "cut", epochs=3)
    cut = train(tmp_path, "cut", epochs=3, resume=True)
    for name, expected in weights_of(whole).items():
        assert torch.equal(weights_of(cut)[name], expected)


def test_parts_depend_on_labels_and_on_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def note(self: WholeSet) -> Iterator[Batch]:
        sizes.append(self.size)
        return self.load([self.rows[i : i + self.size] for i in range(0, len(self), self.size)])

    monkeypatch.setattr(WholeSet, "__iter__", note)
    monkeypatch.setattr(whole_set, "_LABELS", 40 * CLASSES)
    train(tmp_path, "labels", epochs=1)
    monkeypatch.setattr(whole_set, "_NUMBERS", 30 * FEATURES)
    train(tmp_path, "inputs", epochs=1)
    assert set(sizes) == {40, 30}


def test_a_loss_that_is_no_mean_takes_all_images_or_says_that_they_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_set, "_LABELS", 17 * CLASSES)
    assert train(tmp_path, "fits", method="epr", epochs=1).record.finished
    monkeypatch.setattr(whole_set, "physical_memory", lambda: 1000)
    with pytest.raises(InputError, match="cannot be summed up over parts"):
        train(tmp_path, "too-large", method="epr", epochs=1)
    assert train(tmp_path, "bce", epochs=1).record.finished


def test_images_that_cannot_be_read_do_not_make_one_part_of_all() -> None:
    def load(batches: list[Any]) -> Generator[Batch]:
        for rows in batches:
            read = torch.from_numpy(rows[rows > 4])
            yield Batch(read, torch.zeros(len(read), 1), {"plain": torch.zeros(len(read), 3)})

    first = whole_set._first_readable(np.arange(100), load)
    assert first is not None
    assert first.rows.tolist() == [5, 6]  # the third look: after 1 and 2 images, it takes 4
    assert whole_set._first_readable(np.arange(5), load) is None
