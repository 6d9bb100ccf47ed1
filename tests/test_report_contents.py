"""What a report says: its figures and intervals, curves, guarantees, suspects and sample images."""

import math
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partlabel import train
from partlabel.judging.completion import Assessment, complete_run
from partlabel.judging.scoring import evaluate_reserved, score, thresholds_or_half
from partlabel.labels import scenes, simulate
from partlabel.learning.method import Figure
from partlabel.metrics import evaluate
from partlabel.metrics.guarantee import Guarantee, Guarantees
from partlabel.metrics.guarantee_thresholds import Limit
from partlabel.output.report import build_report
from partlabel.output.report.bootstrap import draw_rows, intervals, sample_count
from partlabel.output.report.guarantee_table import guarantees
from partlabel.output.report.headline import Result, _about_rare_classes
from partlabel.output.report.learning_curves import axis_range, draw_curves, draw_small_panels
from partlabel.output.report.sample_images import describe
from partlabel.output.report.section import decimal
from partlabel.output.report.single_images import scores_of_labels
from partlabel.training.run import Run
from reports import TINY, Workspace, cells, page_of, section


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Workspace(tmp_path_factory.mktemp("contents"))
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def page(work: Workspace) -> str:
    """The report of a run that reserved images."""
    return page_of(build_report(work.an, precision=0.5))


def headline(page: str) -> dict[str, tuple[str, str, str]]:
    """Value, interval and explanation of each figure at the top of the page."""
    pattern = (
        r'<div class="figure"><span class="soft">(.*?)</span><b>(.*?)</b>'
        r"(?:<small>(.*?)</small>)?\s*<p>(.*?)</p>"
    )
    return {name: tuple(rest) for name, *rest in re.findall(pattern, page)}


def caption_of_headline(page: str) -> str:
    match = re.search(r'<p class="caption">(.*?)</p>', page, re.DOTALL)
    assert match
    return match[1]


def test_the_headline_is_at_the_thresholds_of_predict_on_reserved_images(
    work: Workspace, page: str
) -> None:
    thresholds = thresholds_or_half(work.an)
    expected = evaluate_reserved(work.an, thresholds)
    at_half = evaluate_reserved(work.an, 0.5)
    names = {"CF1": "CF1", "OF1": "OF1", "OP": "precision (OP)", "OR": "recall (OR)"}
    figures = headline(page)
    for metric, name in names.items():
        assert figures[name][0] == decimal(100 * expected[metric])
        assert figures[name][0] != decimal(100 * at_half[metric])
    assert figures["mAP"][0] == decimal(100 * expected["mAP"])
    assert figures["mAP"][0] != decimal(100 * (work.an.record.best_val_mAP or 0))
    rows = cells(section(page, "Results per class"))
    assert rows[0][3:7] == ["precision", "recall", "F1", "threshold"]
    for j, row in enumerate(rows[1:]):
        one = expected.per_class[j]
        metrics = [one.AP, one.precision, one.recall, one.F1, thresholds[j]]
        assert row[1:6] == [decimal(100 * value) for value in metrics]


def test_every_figure_of_the_headline_is_explained(page: str) -> None:
    figures = headline(page)
    assert len(figures) == 8
    assert all(len(explanation) > 20 for _, _, explanation in figures.values())
    assert "mean precision and the mean recall over classes" in figures["CF1"][2]
    about = caption_of_headline(page)
    assert "reserved images" in about
    assert "Nothing was chosen on these labels" in about
    assert "bootstrap samples" in about


@pytest.mark.parametrize(
    ("present", "text"),
    [
        ([10, 11], ""),
        ([9, 11], "1 class has fewer than 10 present labels here"),
        ([9, 1], "2 classes have fewer than 10"),
        ([0, 20], ""),  # not evaluated at all
    ],
)
def test_intervals_are_said_to_be_narrow_for_rare_classes(present: list[int], text: str) -> None:
    labels = np.full((30, 2), -1)
    for column, number in enumerate(present):
        labels[:number, column] = 1
    evaluation = evaluate(np.linspace(0, 1, 60).reshape(30, 2), labels)
    sentence = _about_rare_classes(Result(evaluation, {}, 0))
    assert sentence.startswith(text)
    assert bool(sentence) == bool(text)


def test_intervals_of_the_headline(work: Workspace, page: str) -> None:
    """Compared with a plain loop over the same bootstrap samples."""
    run = work.an
    table = run.selection.table.subset(run.selection.reserved)
    scores, labels = score(run, table).scores, table.dense()
    thresholds, number = thresholds_or_half(run), len(table)
    samples = [draw_rows(number, sample) for sample in range(sample_count(labels.size))]
    for metric, name in (("mAP", "mAP"), ("OF1", "OF1"), ("OP", "precision (OP)")):
        values = [evaluate(scores[rows], labels[rows], thresholds)[metric] for rows in samples]
        value = evaluate(scores, labels, thresholds)[metric]
        center, margin = 2 * value - np.mean(values), 1.96 * np.std(values, ddof=1)
        low, high = (np.clip(end, 0, 1) for end in (center - margin, center + margin))
        assert headline(page)[name][1] == f"{decimal(100 * low)} to {decimal(100 * high)}"


@given(st.integers(20, 400), st.integers(5, 95))
def test_the_interval_of_a_share_is_that_of_the_normal_distribution(n: int, chance: int) -> None:
    values = (np.arange(n) * 97 % 100 < chance).astype(float)
    share = values.mean()
    interval = intervals(lambda rows: {"share": float(values[rows].mean())}, n, 400)["share"]
    if share in (0, 1):
        assert not interval.exists
        return
    margin = 1.96 * math.sqrt(share * (1 - share) / n)
    assert interval.high - interval.low == pytest.approx(2 * margin, rel=0.2)
    assert (interval.high + interval.low) / 2 == pytest.approx(share, abs=0.3 * margin)


def test_the_interval_of_the_map_is_corrected_for_bias() -> None:
    """On average, its middle is the true mAP; the mean of the samples is 3 points higher."""
    rng = np.random.default_rng(0)

    def draw(images: int) -> tuple[Any, Any]:
        labels = np.where(rng.random((images, 8)) < 0.1, 1, -1).astype(np.int8)
        return rng.normal(size=labels.shape) + 1.5 * (labels == 1), labels

    truth, middles, hits = evaluate(*draw(100_000))["mAP"], [], 0
    for _ in range(40):
        scores, labels = draw(200)

        def measure(rows: Any, scores: Any = scores, labels: Any = labels) -> dict[str, float]:
            return {"mAP": evaluate(scores[rows], labels[rows])["mAP"]}

        interval = intervals(measure, 200, 60)["mAP"]
        middles.append((interval.low + interval.high) / 2)
        hits += interval.low <= truth <= interval.high
    assert hits >= 36
    assert np.mean(middles) == pytest.approx(truth, abs=0.015)


def test_bootstrap_samples_are_drawn_with_replacement_and_always_the_same() -> None:
    rows = draw_rows(1000, 7)
    assert np.array_equal(rows, draw_rows(1000, 7))
    assert not np.array_equal(rows, draw_rows(1000, 8))
    assert rows.min() >= 0
    assert rows.max() < 1000
    assert len(np.unique(rows)) == pytest.approx(1000 * (1 - 1 / math.e), rel=0.05)
    assert sample_count(100) > sample_count(10**9) >= 100


def test_figures_on_validation_images_say_so(work: Workspace) -> None:
    run = work.train("an", "unreserved", reserve=0)
    page = page_of(build_report(run))
    about = caption_of_headline(page)
    assert "The run reserved no images, so these are the validation images" in about
    assert "epoch and the thresholds were chosen on them" in about
    assert headline(page)["mAP"][0] == decimal(100 * (run.record.best_val_mAP or 0))
    assert "on validation labels" in section(page, "Results per class").lower()
    last = work.train("an", "last", reserve=0, keep="last")
    about = caption_of_headline(page_of(build_report(last)))
    assert "The thresholds were chosen on them" in about


def test_without_validation_images_there_are_no_figures(work: Workspace) -> None:
    labels = work.hidden.with_splits(None)
    run = work.train("an", "unvalidated", labels, val=0)
    page = page_of(build_report(run))
    assert "the run has no validation images" in caption_of_headline(page)
    assert headline(page)["mAP"][:2] == ("-", "")
    assert section(page, "How the training went")
    assert not section(page, "Precision and recall")


KINDS = {
    "loss": Figure.COST,
    "positives": Figure.COST,
    "alpha": Figure.SETTING,
    "pseudo_labels": Figure.COUNT,
    "sure": Figure.SHARE,
}
HISTORY = [
    {"epoch": e, "lr": 0.1, "loss": 1 / e, "positives": 2.0, "alpha": 0.2, "pseudo_labels": 9.0 * e,
     "sure": 0.5, "images_per_second": 3e3, "val_mAP": 0.75 + 0.0006 * (e == 2)}
    for e in (1.0, 2.0, 3.0)
]  # fmt: skip


def texts(svg: str) -> list[str]:
    """The texts of a chart."""
    return re.findall(r"<!-- (.*?) -->", svg)


def test_only_costs_are_drawn_as_costs() -> None:
    curves = texts(draw_curves(HISTORY, KINDS, 2))
    assert {"loss", "cost", "validation mAP", "epoch kept: 2"} <= set(curves)
    assert not {"alpha", "pseudo_labels", "sure", "lr", "images_per_second"} & set(curves)
    small = texts(draw_small_panels(HISTORY, KINDS))
    assert {"pseudo_labels", "count", "sure", "share"} <= set(small)
    assert not {"alpha", "loss", "positives"} & set(small)
    assert draw_small_panels(HISTORY, {"loss": Figure.COST}) == ""


def test_settings_of_the_method_are_text(work: Workspace) -> None:
    whole = build_report(work.em_apl).read_text()
    part = section(whole, "How the training went")
    alpha = work.em_apl.history()[0]["alpha"]
    assert f"Chosen by the method: alpha {alpha:.4g}" in part
    assert "alpha" not in texts(part)
    assert "pseudo_labels" in texts(part)


def test_a_flat_curve_does_not_look_like_a_collapse() -> None:
    """A difference of 0.06 points is drawn on an axis of five points."""
    ticks = [float(t) for t in texts(draw_curves(HISTORY, KINDS, 2)) if re.fullmatch(r"\d+", t)]
    assert {73.0, 77.0} <= set(ticks)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_an_axis_of_percentages(values: list[float]) -> None:
    low, high = axis_range(values)
    assert 0 <= low <= min(values)
    assert max(values) <= high <= 100
    assert high - low >= 5 - 1e-9


def make_assessment(guarantees: Guarantees) -> Assessment:
    scopes = [SimpleNamespace(guarantees=guarantees)]
    parts = {"precision": 0.9, "scopes": scopes, "held_filled": {1: 0.1, -1: 0.5}}
    return cast("Assessment", SimpleNamespace(**parts))


def test_a_pool_is_one_row_of_the_guarantees() -> None:
    pool = Guarantee(Limit(2.0, 400, 40, 39), "pooled", (0, 2))
    own = [Guarantee(Limit(1.0, 500, 50, 49), "class", (j,)) for j in range(4)]
    nothing = Guarantee(Limit(), None)
    classes = ["a", "b", "c", "d"]
    assessment = make_assessment(Guarantees([pool, own[1], pool, nothing], own))
    (part,) = guarantees(assessment, classes, "")
    assert [row[:5] + row[-1:] for row in part.rows[:3]] == [
        ["present", "pooled: 2 classes", "label", "from 88.1", "39 of 40", "a, c"],
        ["present", "class", "label", "from 73.1", "49 of 50", "b"],
        ["present", "no guarantee: 1 class", "label", "-", "-", "d"],
    ]
    assert [row[-1] for row in part.rows[3:]] == classes
    assert {row[3] for row in part.rows[3:]} == {"up to 26.9"}
    (reason,) = guarantees(assessment, classes, "nothing is filled in: none reserved")
    assert reason.caption == "Nothing is filled in: none reserved."
    assert not reason.rows


def test_a_report_does_not_promise(page: str) -> None:
    assert section(page, "What <code>complete</code> guarantees")
    assert "promise" not in page.lower()


@given(st.floats(-1e6, 1e6))
def test_zero_has_no_sign(value: float) -> None:
    for digits in (1, 2):
        text = decimal(value, digits, sign=True)
        assert float(text) == pytest.approx(value, abs=0.51 / 10**digits)
        if float(text) == 0:
            assert text[0] == "0"
        else:
            assert text[0] in "+-"
        assert decimal(value, digits) == text.removeprefix("+")


def test_no_gain_has_no_sign(work: Workspace) -> None:
    again = work.train("an", "again")
    page = page_of(build_report(work.an, baseline=again))
    part = section(page, "Gain over again")
    assert "0 of 5 classes gain. The mAP changes by 0.0 points, from" in part
    assert not re.search(r"[+-]0\.0\b", page)


def test_a_gain_has_an_interval(work: Workspace) -> None:
    page = page_of(build_report(work.em_apl, baseline=work.an))
    gain = re.search(r"changes by (\S+) points, .* change: (\S+) to ([+-]?[\d.]+\d)", page)
    assert gain
    change, low, high = map(float, gain.groups())
    assert low < change < high


def test_filled_and_known_labels_of_an_image() -> None:
    classes = [f"c{j}" for j in range(9)]
    known = np.array([1, -1, -1, -1, 0, 0, 0, 0, 0])
    decided = np.array([-1, 1, 0, 0, 1, 0, -1, -1, -1])
    scores = np.array([0.9, 0.3, 0.2, 0.1, 0.99, 0.5, 0.001, 0.02, 0.03])
    assert describe(classes, known, scores, decided) == [
        ("known", "● c0"),
        ("filled", "+ c4 99%"),
        ("open", "? c5 50%"),
        ("filled-absent", "\N{MINUS SIGN} c8 3%"),
        ("filled-absent", "\N{MINUS SIGN} c7 2%"),
        ("filled-absent", "and 1 more absent"),
        ("absent", "○ c1"),
        ("absent", "○ c2"),
        ("absent", "and 1 more known absent"),
    ]


def test_present_labels_of_single_images() -> None:
    """Known ones have a dot, others a question mark; ticks are for the highest scores."""
    classes = ["dog", "cat", "bus", "car", "tree"]
    known, present = np.array([1, 0, 0, 0, 0]) > 0, np.array([1, 1, 0, 0, 1]) > 0
    scores = {
        "an": np.array([0.9, 0.1, 0.2, 0.3, 0.4]),
        "em": np.array([0.5, 0.6, 0.1, 0.2, 0.999]),
    }
    assert scores_of_labels(classes, known, present, scores) == [
        ("open", "? tree: an 40% ✓, em >99% ✓"),
        ("open", "? cat: an 10%, em 60% ✓"),
        ("known", "● dog: an 90% ✓, em 50% ✓"),
    ]
    alone = scores_of_labels(classes, known, known, {"em": scores["em"]})
    assert alone == [("known", "● dog: 50% ✓")]
    many = [f"c{j}" for j in range(400)]
    lines = scores_of_labels(
        many, np.ones(400, bool), np.ones(400, bool), {"em": np.linspace(1, 0, 400)}
    )
    assert [text.endswith("✓") for _, text in lines] == [True] * 4 + [False] * 5
    assert lines[-1] == ("absent", "and 392 more")


def test_single_images_and_scores_per_class_are_in_the_page(work: Workspace) -> None:
    page = page_of(build_report(work.em_apl, baseline=work.an, truth=work.truth))
    shown = section(page, "Labels of single images")
    assert shown.count("<img") > 6
    assert "? " in shown
    assert shown.count(": an ") == len(re.findall(r", em-apl [&\d]", shown)) > 6
    assert "Densities of the scores of" in section(page, "Scores per class")


def test_labels_filled_in_as_absent_are_in_the_page_and_its_legend(work: Workspace) -> None:
    """Also, all classes of this run are in one pool, which is one row of the guarantees."""
    folder = work.folder / "many"
    table = scenes.write(folder, 60, scenes.World(12, 64, 0), test=0.0)
    labels = simulate.hide(table, "partial", 0.5, holdout=0.5)
    call: dict[str, Any] = {"method": "an", "cache": work.cache, **TINY, "epochs": 12, "lr": 1e-2}
    page = page_of(build_report(train(labels, folder / "images", folder / "run", **call),
                                precision=0.5))  # fmt: skip
    part = section(page, "What <code>complete</code> guarantees")
    assert "about the images of the label file" in part
    rows = cells(part)
    assert [row[1] for row in rows[1:]] == ["no guarantee: 12 classes", "pooled: 12 classes"]
    part = section(page, "Known and completed labels")
    legend, images = part.split('<div class="grid">')
    assert '<span class="filled-absent">\N{MINUS SIGN} filled in as absent</span>' in legend
    assert '<li class="filled-absent">\N{MINUS SIGN} ' in images
    assert re.search(r'<li class="filled-absent">and \d+ more absent</li>', images)


def suspects_in(page: str) -> list[tuple[str, str, str, str]]:
    """Image, label, score and training of each suspect."""
    part = section(page, "Known labels that look wrong")
    pattern = (
        r'<img src="data:image/jpeg[^"]*" alt="(.*?)"[^>]*><ul>\s*<li class="\w+">(.*?)</li>'
        r'\s*<li class="soft">(.*?)</li><li class="soft">(.*?)</li>'
    )
    return re.findall(pattern, part)


def test_suspects_are_those_of_complete_with_images(work: Workspace) -> None:
    """All images are scored here, so the lists are the same."""
    labels = work.truth.subset(work.truth.in_split("train"))
    run = work.train("an", "full", labels.with_splits(None), val=0.5)
    page = page_of(build_report(run, precision=0.5))
    suspects = complete_run(run, 0.5).suspects
    tiles = suspects_in(page)
    assert len(tiles) == min(len(suspects), 24) > 3
    trained = {suspect.trained for suspect in suspects[:24]}
    assert trained == {True, False}
    for tile, suspect in zip(tiles, suspects, strict=False):
        mark, value = ("●", "present") if suspect.value == 1 else ("○", "absent")
        name = suspect.name.replace("<", "&lt;").replace(">", "&gt;")
        assert tile == (
            suspect.image,
            f"{mark} {name}: {value}",
            f"score {decimal(100 * suspect.score)}%",
            "trained on" if suspect.trained else "not trained on",
        )
    number = "the 24 least likely of" if len(suspects) > 24 else f"all {len(suspects)}"
    assert number in section(page, "Known labels that look wrong")


def test_without_reserved_images_there_are_no_suspects(work: Workspace) -> None:
    folder = work.folder / "unreserved"
    run = Run(folder) if folder.is_dir() else work.train("an", "unreserved", reserve=0)
    page = page_of(build_report(run, precision=0.5))
    assert not section(page, "Known labels that look wrong")
    assert "no label was reserved" in section(page, "What <code>complete</code> guarantees")


def test_every_section_has_a_caption(work: Workspace) -> None:
    page = page_of(build_report(work.em_apl, truth=work.truth, baseline=work.an, precision=0.5))
    for title, part in re.findall(r"<h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL):
        if title != "Settings":
            captions = re.findall(r'<p class="caption">(.*?)</p>', part, re.DOTALL)
            assert [len(text) > 40 for text in captions] == [True], title
