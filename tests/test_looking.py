"""Where the model looks: class maps of runs, heat maps and the pointing game in the report."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from partlabel import LabelTable, read_labels, train
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.judging.scoring import score, thresholds_or_half
from partlabel.labels import scenes, simulate
from partlabel.labels.formats.boxes import read_boxes
from partlabel.models import heads
from partlabel.output.report import build_report, heat_map_strips
from partlabel.output.report.heat_map_strips import (
    Choice,
    choose_images,
    choose_labels,
    class_maps,
)
from partlabel.output.report.score_charts import score_histogram
from partlabel.output.report.thumbnails import overlay
from partlabel.training.run import Run

TINY: dict[str, Any] = {
    "backbone": "test_efficientnet",
    "weights": "none",
    "size": 64,
    "batch": 8,
    "epochs": 2,
    "reserve": 0,
}


class Workspace:
    """Images with boxes and partial labels, and how to train on them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.boxes = folder, folder / "s" / "boxes.csv"
        scenes.write(folder / "s", 30, scenes.World(4, 64, 0), test=0.2)
        full = read_labels(folder / "s" / "labels.csv")
        self.labels = simulate.hide(full, "partial", 0.5, split="train", holdout=0.3)

    def train(self, name: str, method: str, **more: Any) -> Run:
        call = {"method": method, "cache": self.folder / "cache", **TINY, **more}
        return train(self.labels, self.folder / "s" / "images", self.folder / name, **call)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Workspace(tmp_path_factory.mktemp("looking"))
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bce(work: Workspace) -> Run:
    return work.train("bce", "bce", frozen="all")


@pytest.fixture(scope="module")
def sr(work: Workspace) -> Run:
    return work.train("sr", "sr", options={"consistency": "none"}, frozen="all")


def section(run: Run, title: str) -> str:
    page = (run.folder / "report.html").read_text()
    match = re.search(rf"<h2>{re.escape(title)}</h2>(.*?)</section>", page, re.DOTALL)
    return match[1] if match else ""


def mean(maps: Tensor) -> Tensor:
    return maps.mean(dim=(2, 3))


@pytest.mark.parametrize(
    ("settings", "pool"),
    [
        ({"frozen": "all"}, mean),
        ({"frozen": "all", "reduce": 5}, mean),
        ({"frozen": "all", "reduce": 5, "head": "saliency"}, heads.saliency_pool),
        ({"frozen": "lower", "head": "weldon"}, heads.weldon_pool),
        ({"frozen": "nothing"}, mean),
    ],
)
def test_pooled_class_maps_are_the_scores(
    settings: dict[str, Any], pool: Any, work: Workspace
) -> None:
    """Also where only the mean of a feature map was kept for the training."""
    name = "-".join(map(str, settings.values()))
    run = work.train(name, "bce", **{**settings, "epochs": 1})
    table = work.labels.subset(range(11))
    expected = score(run, table).scores
    scores = np.zeros_like(expected)
    for rows, maps in class_maps(run, table):
        scores[rows] = torch.sigmoid(pool(maps)).numpy()
    np.testing.assert_allclose(scores, expected, atol=2e-3)


def test_a_refined_head_has_the_class_maps_of_the_one_inside() -> None:
    head, features = heads.Weldon(4, 3), torch.randn(2, 4, 5, 5)
    refined = heads.Refined(head, heads.GraphRefiner(3))
    maps_of = heads.class_maps_of(refined)
    assert maps_of is not None
    assert torch.equal(maps_of(features), head.class_maps(features))
    assert heads.class_maps_of(torch.nn.Flatten()) is None
    assert heads.class_maps_of(heads.Refined(torch.nn.Flatten(), heads.GraphRefiner(3))) is None


def test_the_likeliest_label_of_each_kind_is_chosen() -> None:
    labels = np.array([1, 1, -1, -1, -1, 0, 0, 0])
    scores = np.array([0.2, 0.9, 0.9, 0.7, 0.6, 0.8, 0.9, 0.95])
    thresholds = np.array([0.5, 0.5, 0.95, 0.6, 0.6, 0.5, 0.5, 0.5])
    decided = np.array([0, 0, 0, 0, 0, 1, 1, 0])
    chosen = choose_labels(labels, scores, thresholds, decided)
    assert chosen == [Choice("known", 1), Choice("absent", 3), Choice("filled", 6)]
    chosen = choose_labels(labels, scores, thresholds + 1, 0 * decided)
    assert chosen == [Choice("known", 1), Choice("open", 7)]
    assert choose_labels(-np.ones(2), np.zeros(2), np.ones(2), np.zeros(2)) == []


def test_images_with_rare_kinds_are_chosen() -> None:
    common = [Choice("known", 0), Choice("open", 1)]
    choices = [list(common) for _ in range(20)]
    choices[7] = [Choice("absent", 0)]
    choices[13] = [Choice("filled", 0)]
    chosen = choose_images(choices, 4)
    assert {7, 13} < set(chosen)
    assert len(set(chosen)) == 4
    assert sorted(choose_images(choices[:3], 6)) == [0, 1, 2]
    assert choose_images([], 6) == []


def test_an_overlay_is_red_at_the_maximum_and_leaves_zero_alone() -> None:
    grey = torch.full((3, 8, 8), 100, dtype=torch.uint8)
    assert torch.equal(overlay(grey, torch.zeros(2, 2)), grey)
    covered = overlay(grey, torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    assert torch.equal(covered[:, 7, 0], grey[:, 7, 0])
    red, green, blue = covered[:, 0, 7].tolist()
    assert red > 150 > green > blue


def test_heat_maps_of_a_run_and_its_baseline(work: Workspace, sr: Run, bce: Run) -> None:
    build_report(sr)
    alone = section(sr, "Where the model looks")
    strips = alone.split('<div class="strip">')[1:]
    assert len(strips) == 6
    assert 6 < alone.count("data:image/jpeg") <= 24
    assert "● " in "".join(strips)
    build_report(sr, baseline=bce)
    both = section(sr, "Where the model looks")
    assert both.count("data:image/jpeg") == 2 * alone.count("data:image/jpeg") - 6
    assert '<p class="soft">sr</p>' in both
    assert '<p class="soft">bce</p>' in both
    assert len((sr.folder / "report.html").read_bytes()) < 2e6


def test_heat_maps_of_a_baseline_have_its_own_thresholds(
    sr: Run, bce: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label that is known to be absent says from which score on it is predicted."""
    used: list[list[float]] = []
    original = heat_map_strips._tile

    def spy(*arguments: Any) -> dict[str, str]:
        used.append(arguments[-1].tolist())
        return original(*arguments)

    monkeypatch.setattr(heat_map_strips, "_tile", spy)
    build_report(sr, baseline=bce)
    own, other = (thresholds_or_half(run).tolist() for run in (sr, bce))
    assert own != other
    assert used.count(own) == used.count(other) == len(used) / 2


def test_a_refined_run_has_heat_maps(work: Workspace) -> None:
    run = work.train(
        "gnn", "partial-bce", options={"gnn": True}, head="weldon", frozen="all", epochs=1
    )
    build_report(run, boxes=read_boxes(work.boxes))
    assert section(run, "Where the model looks")
    assert section(run, "Does it look at the object?")


def test_a_head_without_class_maps_has_no_heat_maps(
    work: Workspace, bce: Run, sr: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        heat_map_strips,
        "class_maps_of",
        lambda head: head.class_maps if isinstance(head, heads.Linear) else None,
    )
    build_report(sr, baseline=bce)
    assert not section(sr, "Where the model looks")
    with pytest.raises(InputError, match="its head has no class maps"):
        build_report(sr, boxes=read_boxes(work.boxes))
    build_report(bce, baseline=sr, boxes=read_boxes(work.boxes))
    assert '<p class="soft">sr</p>' not in section(bce, "Where the model looks")
    header = re.findall(r"<th>(.*?)</th>", section(bce, "Does it look at the object?"))
    assert header == ["class", "images", "chance", "bce"]


def test_hits_are_those_of_single_maps(work: Workspace, sr: Run, bce: Run) -> None:
    cache = work.folder / "cache"
    assert main(["report", str(sr.folder), "--baseline", str(bce.folder), "--boxes",
                 str(work.boxes), "--cache", str(cache)]) == 0  # fmt: skip
    rows = re.findall(r"<tr>(.*?)</tr>", section(sr, "Does it look at the object?"), re.DOTALL)
    table = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]
    assert table[0] == ["class", "images", "chance", "bce", "sr"]
    used = LabelTable(work.labels.ids, work.labels.classes, work.labels.dense()).subset(
        ~work.labels.in_split("test")
    )
    boxes, hits, pairs = scenes.make(30, 4, 64, 0).boxes, np.zeros(4, int), np.zeros(4, int)
    numbers = [int(name[:6]) for name in used.ids]
    for rows_of_batch, maps in class_maps(sr, used):
        for row, one in zip(rows_of_batch.tolist(), maps.numpy(), strict=True):
            for j in {box.label for box in boxes[numbers[row]]}:
                y, x = np.unravel_index(one[j].argmax(), one[j].shape)
                x, y = (64 * (edge + 0.5) / one.shape[1] for edge in (x, y))
                pairs[j] += 1
                hits[j] += any(
                    box.left <= x < box.right and box.top <= y < box.bottom
                    for box in boxes[numbers[row]]
                    if box.label == j
                )
    assert [int(row[1]) for row in table[1:]] == [pairs.sum(), *pairs[pairs > 0]]
    shares = [hits.sum() / pairs.sum(), *(hits[pairs > 0] / pairs[pairs > 0])]
    assert [row[4] for row in table[1:]] == [f"{100 * share:.1f}" for share in shares]


def test_bad_boxes_are_refused(
    work: Workspace, bce: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.csv").write_text("image,class,left,top,right,bottom\nx.png,a,0,0,1,1\n")
    assert main(["report", str(bce.folder), "--boxes", str(tmp_path / "b.csv")]) == 2
    assert "b.csv, line 2: there is no image 'x.png'" in capsys.readouterr().err


def test_the_histogram_has_a_row_for_validation_images_if_there_are_any() -> None:
    scores, labels = np.linspace(0, 1, 6).reshape(2, 3), np.array([[1, -1, 0], [1, 0, -1]])
    both = score_histogram((scores, labels), (scores, labels))
    alone = score_histogram((scores, labels), (scores[:0], labels[:0]))
    assert "<!-- validation -->" in both
    assert "<!-- validation -->" not in alone
    assert both.count("<!-- present (2) -->") == 2
    assert both.count("<!-- unknown (2) -->") == 1
