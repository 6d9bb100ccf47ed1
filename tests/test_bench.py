"""Comparison of methods: specs, cells, tables and curves."""

import csv
import io
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from partlabel import LabelTable, metrics, read_labels, write_labels
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.labels import simulate
from partlabel.labels.formats import ReadOptions
from partlabel.output.bench import read_spec, run_spec, tables
from partlabel.output.bench.curves import (
    _plot_epochs,
    draw_curves,
    draw_epochs,
    draw_gains,
    plot_curves,
)
from partlabel.output.bench.jobs import label_shares
from partlabel.output.bench.sheets import on_terminal
from partlabel.output.bench.spec import Spec, choices, combinations, edge_warnings, strategy_of
from partlabel.output.bench.spec_labels import read_table
from partlabel.output.bench.tables import FIGURES
from partlabel.training.checkpoint import load_state, same
from partlabel.training.run import Run
from partlabel.training.train import train
from partlabel.training.trainer import InterruptedTrainingError


def result(
    method: str,
    seed: int = 0,
    strategy: str = "partial",
    proportion: float | None = 0.5,
    **more: Any,
) -> dict[str, Any]:
    return {
        "method": method,
        "strategy": strategy,
        "proportion": proportion,
        "seed": seed,
        **more,
    }


def joined(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_bench(scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"""
labels: {os.path.relpath(scene / "labels.csv", tmp_path)}
images: {scene / "images"}
strategies:
  - strategy: single-positive
  - {{strategy: partial, proportions: [0.5, 0.8]}}
seeds: [0, 1]
settings: {{backbone: test_efficientnet, weights: none, size: 64, frozen: all, epochs: 1}}
choose: {{lr: [0.001, 0.01]}}
methods:
  - {{name: AN, method: an}}
  - {{name: known only, method: bce}}
  - {{name: all labels, method: bce, labels: full}}
figures: [mAP, OF1]
baseline: AN
ceiling: all labels
"""
    )
    call = ["bench", str(spec), "-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main(call) == 0
    text, errors = capsys.readouterr()
    assert "epoch" not in errors  # one line per training says enough
    columns = "single-positive | partial 50% | partial 80%"
    table = (tmp_path / "out" / "table.md").read_text()
    for figure in ("mAP", "OF1"):
        assert f"| {figure} | {columns} | full |" in table
        assert f"| {figure}, difference to AN | {columns} |\n" in table
        assert f"| {figure}, % of the gap from AN to all labels | {columns} |\n" in table
        assert [line.split()[:1] for line in text.splitlines()].count([figure]) == 1
    assert (tmp_path / "out" / "table.tex").read_text().count(r"\begin{tabular}") == 6
    assert "choosing settings: 14 trainings\n  1/14 AN, single-positive, seed 0, lr 0.001: " in text
    assert "comparing: 14 trainings\n  1/14 AN, single-positive, seed 0, lr 0.0" in text
    assert text.count(": validation mAP ") == text.count(": test mAP ") == 14
    assert "min left)" in text
    for chart in ("curves", "gains"):
        assert (tmp_path / "out" / f"{chart}.svg").read_text().startswith("<svg")
    assert not (tmp_path / "out" / "epochs.svg").exists()  # one epoch is no line
    lines = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 3 * 2 + 2
    records = list(csv.DictReader(lines))
    assert all(record["known"] == record["clean"] for record in records)
    full = [record["clean"] for record in records if record["strategy"] == "full"]
    assert full == ["1.0", "1.0"]
    assert main(call) == 2
    start = time.monotonic()
    assert main([*call, "--resume"]) == 0  # everything is finished
    assert time.monotonic() - start < 10  # not a minute of training
    assert "comparing: 14 trainings\n  14 of 14 are already finished\n" in capsys.readouterr().out
    assert (tmp_path / "out" / "results.csv").read_text().splitlines() == lines
    # a method is not given the test split
    run = next((tmp_path / "out" / "cells").glob("AN-single-*-seed1-*"))
    assert set(Run(run / "run").selection.labels.splits or []) == {"train", "holdout"}


def test_labels_are_read_as_stated(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = read_labels(scene / "labels.csv")
    write_labels(truth.with_splits(None), tmp_path / "labels.json", "coco")
    spec = tmp_path / "spec.yaml"
    content = f"""
images: {scene / "images"}
strategies: [{{strategy: full}}]
settings: {{backbone: test_efficientnet, weights: none, size: 64, frozen: all, epochs: 1}}
methods: [{{name: AN, method: an}}]
"""
    spec.write_text(content)
    call = ["bench", str(spec), "-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    call += ["--labels", str(tmp_path / "labels.json")]
    assert main(call) == 2
    assert "lists only present classes" in capsys.readouterr().err
    assert main([*call, "--unlisted", "absent"]) == 0
    assert "of the training labels are known" not in capsys.readouterr().out  # since all are
    spec.write_text(f"{content}\nlabels: labels.json\nreading: {{unlisted: absent, min_count: 1}}")
    assert np.array_equal(read_table(read_spec(spec), 0).dense(), truth.dense())
    given = read_spec(spec, reading=ReadOptions(unlisted="unknown")).reading
    assert (given.unlisted, given.min_count) == ("unknown", 1)
    assert read_spec(spec, labels="other.csv").reading == ReadOptions()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("methods: []\nlabel: x", "label"),
        ("methods: [{name: a, method: bec}]", "did you mean 'bce'"),
        ("methods: [{name: a, method: bce}, {name: a, method: an}]", "the same name"),
        ("methods: [{name: a, method: bce, settings: {lrr: 1}}]", "did you mean 'lr'"),
        ("methods: 3", "methods"),
        ("methods: [{name: a, method: bce}]\nfigures: [MAP]", "choices: mAP, CP"),
        ("methods: [{name: a, method: bce}]\nfigures: []", "figures"),
        ("methods: [{name: bce, method: bce}]\nbaseline: bec", "did you mean 'bce'"),
        ("methods: [{name: bce, method: bce}]\nceiling: bce", "needs a baseline"),
        ("methods: [{name: a, method: bce, only: [partial]}]", "there is no strategy 'partial'"),
        ("methods: [{name: a, method: an, choose: {lr: []}}]", "no values to choose from"),
        (
            "methods: [{name: a, method: an, choose: []}]",
            "methods.0.choose: must have 1 or more entries",
        ),
        ("methods: [{name: a, method: an, choose: {lr: 0.1}}]", "methods.0.choose.0.lr"),
        ("methods: [{name: a, method: an}]\nseeds: [0, 0]", "each number only once"),
        ("methods: [", "not a spec"),
        ("methods: [{name: a, method: an}]\nreading: {unlsted: absent}", "reading.unlsted"),
        ("methods: [{name: a, method: an}]\nreading: {unlisted: no}", "reading.unlisted"),
        (
            "methods: [{name: a, method: an}]\nreading: {unlisted: maybe}",
            "choices: absent, unknown",
        ),
    ],
)
def test_bad_specs(
    change: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(f"labels: a\nimages: b\nstrategies: []\n{change}\n")
    assert main(["bench", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "o")]) == 2
    assert message in capsys.readouterr().err


SHORT = "{backbone: test_efficientnet, weights: none, frozen: all, size: 64, epochs: 1}"


def test_the_same_number_of_labels_in_each_image(scene: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        f"""
strategies: [{{strategy: partial, proportions: [0.4], per_image: true}}]
settings: {SHORT}
methods: [{{name: a, method: bce}}]
"""
    )
    spec = read_spec(tmp_path / "s.yaml", scene / "labels.csv", scene / "images")
    run_spec(spec, tmp_path / "out", cache=tmp_path / "cache", say=lambda message: None)
    (cell,) = (tmp_path / "out" / "cells").iterdir()
    training = Run(cell / "run").selection.training
    assert set(np.diff(training.cells.starts)) == {2}  # of five classes


def test_side_information_stays_known(scene: Path, tmp_path: Path) -> None:
    """Labels of other classes are hidden, the same ones as if there were no side classes."""
    table = read_labels(scene / "labels.csv")
    side, learned = table.classes[1], [name for i, name in enumerate(table.classes) if i != 1]
    write_labels(table.with_classes(learned), tmp_path / "learned.csv")
    strategies = "[{strategy: partial, proportions: [0.5], per_image: true}]"
    trainings = []
    for labels, more in ((scene / "labels.csv", f", side: {side}"), (tmp_path / "learned.csv", "")):
        (tmp_path / "s.yaml").write_text(
            f"""
strategies: {strategies}
settings: {SHORT[:-1]}{more}}}
methods: [{{name: a, method: imcl, options: {{warmup: 0}}}}]
"""
        )
        spec = read_spec(tmp_path / "s.yaml", labels, scene / "images")
        out = tmp_path / labels.stem
        (line,) = run_spec(spec, out, cache=tmp_path / "cache", say=lambda message: None).results
        assert line["known"] == line["clean"] == 0.5
        (cell,) = (out / "cells").iterdir()
        trainings.append(Run(cell / "run").selection)
    own = trainings[0].side_information
    assert own is not None
    assert own.known == 1
    assert own == table.with_classes([side]).subset(table.ids.find(own.ids))
    assert trainings[0].training == trainings[1].training


def test_merged_and_mixed_labels(scene: Path, tmp_path: Path) -> None:
    strategies = "{strategy: merged, parts: 2}, {strategy: mixed, full: 0.5, tags: 0.25}"
    content = f"""
strategies: [{strategies}]
settings: {SHORT}
methods: [{{name: a, method: an}}]
"""
    (tmp_path / "s.yaml").write_text(content)
    spec = read_spec(tmp_path / "s.yaml", scene / "labels.csv", scene / "images")
    done = run_spec(spec, tmp_path / "out", cache=tmp_path / "cache", say=lambda message: None)
    titles = ["merged-parts2", "mixed-full0.5-tags0.25"]
    assert [line["strategy"] for line in done.results] == titles
    assert not any("error" in line for line in done.results), str(done)
    origins = {}
    for cell in (tmp_path / "out" / "cells").iterdir():
        training = Run(cell / "run").selection.training
        per_image = set(np.diff(training.cells.starts).tolist())
        origins[tuple(training.origins)] = per_image
    # five classes in two parts; all of five, one tag, or nothing
    assert origins["part 1", "part 2"] == {2, 3}
    assert origins["full", "tags"] == {0, 1, 5}
    (tmp_path / "s.yaml").write_text(content.replace("parts: 2", "parts: 6"))
    spec = read_spec(tmp_path / "s.yaml", scene / "labels.csv", scene / "images")
    with pytest.raises(InputError, match="6 parts need as many classes, and there are 5"):
        run_spec(spec, tmp_path / "other")  # before the first training


def test_trainings_can_start_from_the_model_of_a_method(scene: Path, tmp_path: Path) -> None:
    """One bce run per seed; a training with next to no learning rate stays what it starts from."""
    (tmp_path / "s.yaml").write_text(
        f"""
strategies: [{{strategy: partial, proportions: [0.5]}}]
seeds: [0, 1]
settings: {SHORT}
start: bce
methods:
  - {{name: a, method: an, settings: {{lr: 1.0e-30}}}}
  - {{name: b, method: latent-noise, settings: {{lr: 1.0e-30}}}}
  - {{name: c, method: an, start: none}}
"""
    )
    spec = read_spec(tmp_path / "s.yaml", scene / "labels.csv", scene / "images")
    benchmark = run_spec(spec, tmp_path / "out", cache=tmp_path / "cache", say=lambda message: None)
    assert {line["method"] for line in benchmark.results} == {"a", "b", "c"}
    folders = {path.name: path / "run" for path in (tmp_path / "out" / "cells").iterdir()}

    def weights(name: str, seed: int) -> dict[str, Any]:
        (folder,) = (
            path
            for cell, path in folders.items()
            if cell.startswith(f"{name}-partial-0.5-seed{seed}")
        )
        state: dict[str, Any] = load_state(folder / "best.safetensors")
        return state

    for seed in (0, 1):
        start = weights("start_bce", seed)
        assert same(weights("a", seed), start)
        noise = weights("b", seed)
        for part in ("weight", "bias"):
            assert same(noise[f"head.visual.{part}"], start[f"head.classifier.{part}"])
        assert not same(weights("c", seed), start)
    assert not same(weights("start_bce", 0), weights("start_bce", 1))


def test_a_start_that_does_not_fit_is_an_error(scene: Path, tmp_path: Path) -> None:
    labels, images = scene / "labels.csv", scene / "images"
    tiny: dict[str, Any] = {
        "method": "bce", "backbone": "test_efficientnet", "weights": "none", "frozen": "all",
        "size": 64, "epochs": 1, "cache": tmp_path / "cache",
    }  # fmt: skip
    train(labels, images, tmp_path / "start", **tiny)
    for changes, message in (
        ({"size": 96}, "has size 64, and this training 96"),
        ({"method": "fast0tag"}, "shares no trained weights"),
        ({"start": str(tmp_path / "none")}, "no finished run"),
    ):
        arguments = {"start": str(tmp_path / "start"), **tiny, **changes}
        with pytest.raises(InputError, match=message):
            train(labels, images, tmp_path / "run", **arguments)
    table = read_labels(labels)
    fewer = LabelTable(list(table.ids), [f"x{name}" for name in table.classes], table.dense())
    with pytest.raises(InputError, match="has other classes"):
        train(fewer, images, tmp_path / "run", start=str(tmp_path / "start"), **tiny)


def test_an_entry_can_have_its_own_choice_and_leave_out_strategies(
    scene: Path, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(
        """
strategies: [{strategy: single-positive}, {strategy: partial, proportions: [0.1, 0.5]}]
choose: {lr: [0.001, 0.01], weight_decay: [0, 1]}
methods:
  - {name: a, method: an}
  - {name: b, method: bce, only: [partial], choose: {lr: [0.1]}}
  - {name: c, method: bce, labels: full, choose: {}}
"""
    )
    spec = read_spec(tmp_path / "s.yaml", scene / "labels.csv", scene / "images")
    names = [(one.entry.name, one.strategy, one.proportion) for one in combinations(spec)]
    assert names == [
        *(("a", strategy, share) for strategy, share in LABELS),
        *(("b", strategy, share) for strategy, share in LABELS[1:]),
        ("c", "full", None),
    ]
    assert [len(list(choices(spec, entry))) for entry in spec.methods] == [4, 1, 1]
    assert list(choices(spec, spec.methods[1])) == [{"lr": 0.1}]
    assert list(choices(spec, spec.methods[2])) == [{}]


def test_a_file_without_splits_is_split(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "partial.csv")
    write_labels(table.with_splits(None), tmp_path / "t.csv")
    spec = Spec.model_validate(
        {
            "labels": str(tmp_path / "t.csv"),
            "images": str(scene / "images"),
            "strategies": [{"strategy": "full"}],
            "settings": {
                "backbone": "test_efficientnet",
                "weights": "none",
                "size": 32,
                "frozen": "all",
                "epochs": 1,
                "drop_empty": True,
            },
            "methods": [{"name": "a", "method": "bce"}],
        }
    )
    split = read_table(spec, spec.seeds[0])
    assert split.splits is not None
    assert 0 < split.in_split("test").sum() < split.in_split("train").sum()
    messages: list[str] = []
    (figures,) = run_spec(spec, tmp_path / "out", say=messages.append).results
    assert figures["evaluated_classes"] > 0
    assert any("of the training labels are known" in message for message in messages)
    assert "comparing: 1 training" in messages


def test_choices_from_several_grids_and_edge_warnings(scene: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        """
strategies: [{strategy: single-positive}]
settings: {frozen: all}
choose:
  - {optimizer: [adam], lr: [0.001, 0.01]}
  - {optimizer: [lbfgs], weight_decay: [0, 0.001, 0.01]}
  - {optimizer: [lbfgs], weight_decay: [0.01, 1e-1]}  # overlaps
methods: [{name: a, method: an}]
"""
    )
    spec = read_spec(tmp_path / "s.yaml", scene / "labels.csv", scene / "images")
    entry = spec.methods[0]
    assert list(choices(spec, entry)) == [
        *({"optimizer": "adam", "lr": lr} for lr in (0.001, 0.01)),
        *({"optimizer": "lbfgs", "weight_decay": decay} for decay in (0, 0.001, 0.01, "1e-1")),
    ]
    assert edge_warnings(spec, entry, {"optimizer": "lbfgs", "weight_decay": "1e-1"}) == [
        "weight_decay = 0.1 is the largest value tried; a larger one may be better"
    ]
    for inner in (
        {"optimizer": "lbfgs", "weight_decay": 0.01},
        {"optimizer": "lbfgs", "weight_decay": 0},  # nothing is smaller
        {"optimizer": "adam", "lr": 0.001},  # of two, one is always at an edge
    ):
        assert edge_warnings(spec, entry, inner) == []


LABELS: list[tuple[str, float | None]] = [
    ("single-positive", None),
    ("partial", 0.1),
    ("partial", 0.5),
]


def test_every_figure_of_an_evaluation_can_have_a_table() -> None:
    assert set(metrics.evaluate([[0.9], [0.1]], [[1], [-1]])) <= set(FIGURES)


def test_tables_by_default() -> None:
    results = [
        result("AN", 0, mAP=0.5),
        result("AN", 1, mAP=0.6),
        result("AN", 0, "full", None, mAP=0.75),
        result("APL", 0, mAP=0.7, pseudo_absent_accuracy=0.99, TN=0.5, pseudo_labels=12.0),
        result("APL", 1, error="JobError: no disk"),
    ]
    assert tables(results).markdown() == joined(
        "| mAP | partial 50% | full |",
        "| --- | --- | --- |",
        "| AN | 55.00 ± 7.07 | 75.00 |",
        "| APL | **70.00 (1 failed)** |  |",
        "",
        "| pseudo_absent_accuracy | partial 50% |",
        "| --- | --- |",
        "| APL | 99.00 (1 failed) |",
        "",
        "* 1 failure (APL): JobError: no disk",
    )


def test_tables_of_chosen_figures() -> None:
    results = [
        result("AN", 0, mAP=0.5, OF1=0.25),
        result("AN", 0, proportion=0.1, error="JobError: no disk"),
        result("APL", 0, mAP=0.7, OF1=0.5, pseudo_labels=1234.0),
        result("APL", 1, mAP=0.7, OF1=0.5, pseudo_labels=1236.0),
    ]
    assert tables(results, ["OF1", "pseudo_labels", "TP"]).markdown() == joined(
        "| OF1 | partial 50% | partial 10% |",
        "| --- | --- | --- |",
        "| AN | 25.00 | failed |",
        "| APL | **50.00 ± 0.00** |  |",
        "",
        "| pseudo_labels | partial 50% |",
        "| --- | --- |",
        "| APL | 1,235 ± 1 |",
        "",
        "* 1 failure (AN): JobError: no disk",
        "* no method has TP",
    )


def test_figures_are_side_by_side_if_all_methods_have_the_same_labels() -> None:
    results = [
        result("AN", strategy="single-positive", proportion=None, mAP=0.5, OF1=0.25),
        result("APL", strategy="single-positive", proportion=None, mAP=0.7, pseudo_labels=7.0),
        result("EM", strategy="single-positive", proportion=None, error="JobError: no disk"),
    ]
    assert tables(results, ["mAP", "OF1", "pseudo_labels"], "AN").markdown() == joined(
        "| single-positive | mAP | OF1 | pseudo_labels |",
        "| --- | --- | --- | --- |",
        "| AN | 50.00 | 25.00 |  |",
        "| APL | **70.00** |  | 7 |",
        "| EM | failed | failed | failed |",
        "",
        "| single-positive, difference to AN | mAP | OF1 |",
        "| --- | --- | --- |",
        "| APL | +20.00 |  |",
        "| EM | failed | failed |",
        "",
        "* 1 failure (EM): JobError: no disk",
    )


def test_differences_are_paired_by_labels_and_seed() -> None:
    results = [
        *(result("AN", seed, mAP=mAP) for seed, mAP in enumerate((0.5, 0.6, 0.7))),
        # in another order: +1, +2 and +3
        *(result("EM", seed, mAP=mAP) for seed, mAP in ((2, 0.73), (0, 0.51), (1, 0.62))),
        result("WAN", 0, mAP=0.49999),
        result("WAN", 1, error="JobError: no disk"),
        result("WAN", 3, mAP=0.9),
        result("all labels", 0, "full", None, mAP=0.9),
    ]
    second = tables(results, ["mAP"], "AN").markdown().split("\n\n")[1] + "\n"
    assert second == joined(
        "| mAP, difference to AN | partial 50% |",
        "| --- | --- |",
        "| EM | +2.00 ± 1.00 |",
        "| WAN | +0.00 (1 failed) |",
    )


def test_share_of_the_gap_to_the_ceiling() -> None:
    results = [
        *(result("AN", seed, mAP=0.5 + seed / 10) for seed in range(3)),
        *(result("EM", seed, mAP=0.6 + seed / 10) for seed in range(3)),
        *(result("all labels", seed, "full", None, mAP=0.9) for seed in (0, 1)),
    ]
    third = tables(results, ["mAP"], "AN", "all labels").markdown().split("\n\n")[2]
    # 0.2 of 0.7; the third seed is left out, since the ceiling lacks it
    assert third == joined(
        "| mAP, % of the gap from AN to all labels | partial 50% |",
        "| --- | --- |",
        "| EM | 28.57 |",
    )


def test_a_ceiling_is_taken_from_the_same_labels_if_it_has_them() -> None:
    figures = {"AN": (0.5, 0.5), "EM": (0.6, 0.6), "oracle": (0.7, 0.9)}
    results = [
        result(name, 0, proportion=share, mAP=mAP)
        for name, pair in figures.items()
        for share, mAP in zip((0.1, 0.5), pair, strict=True)
    ]
    third = tables(results, ["mAP"], "AN", "oracle").sheets[2]
    assert third.rows == [["EM", "50.00", "25.00"]]
    for one in results:  # a ceiling that is not above the baseline
        one["mAP"] = 0.5 if one["method"] == "oracle" else one["mAP"]
    assert tables(results, ["mAP"], "AN", "oracle").sheets[2].rows == [["EM", "", ""]]


def test_special_characters_are_escaped() -> None:
    results = [result("a|b", mAP=0.5), result("[c]", mAP=0.25), result("d", mAP=math.nan)]
    summary = tables(results, ["mAP"], "[c]")
    assert summary.markdown().splitlines()[2] == r"| a\|b | **50.00** |"
    assert summary.markdown().splitlines()[3] == r"| \[c\] | 25.00 |"
    assert summary.latex().splitlines()[5] == r"{[}c] & 25.00 \\"  # else an argument of the row end
    assert summary.sheets[0].rows[2] == ["d", ""]
    out = io.StringIO()
    Console(file=out, width=200).print(on_terminal(summary.sheets[1]))
    assert "difference to [c]" in out.getvalue()


def test_markup_in_names_is_shown_as_it_is() -> None:
    name = "<img src=x onerror=alert(1)> [a](javascript:b) *c* `d` _e_ f_g\nh"
    summary = tables([result(name, mAP=0.5), {**result(name), "error": name}], ["mAP"])
    text = summary.markdown()
    shown = r"&lt;img src=x onerror=alert(1)&gt; \[a\](javascript:b) \*c\* \`d\` \_e\_ f_g h"
    assert text.splitlines()[2].startswith(f"| {shown} |")
    assert text.splitlines()[-1].endswith(f"): {shown}")
    (row,) = [line for line in summary.latex().splitlines() if "img" in line]
    assert row.startswith(
        r"\textless{}img src=x onerror=alert(1)\textgreater{} {[}a](javascript:b)"
    )
    assert r"{*}c{*}" in row


@pytest.mark.parametrize("strategy", ["partial", "noisy+"])
def test_known_and_clean_are_shares_of_the_training_cells(strategy: str) -> None:
    values = np.where(np.random.default_rng(0).random((40, 10)) < 0.4, 1, -1)
    names = [f"i{i}" for i in range(40)]
    truth = LabelTable(names, list("abcdefghij"), values, ["train"] * 30 + ["test"] * 10)
    proportion = 0.5 if strategy == "partial" else None
    labels = simulate.hide(truth, strategy, proportion, 0, "train", holdout=0.2)
    shares = label_shares(labels, truth, "train")
    rows = [i for i, name in enumerate(labels.splits or []) if name == "train"]
    trained, true = labels.dense(rows), values[rows]
    assert len(rows) == 24
    assert shares == {"known": np.mean(trained != 0), "clean": np.mean(trained == true)}
    if strategy == "partial":
        assert shares["known"] == shares["clean"] < 0.6
    else:
        wrong = np.maximum((true == 1).sum(axis=1) - 1, 0).sum()
        assert shares == {"known": 1.0, "clean": 1 - wrong / true.size}


def test_curves() -> None:
    shares = {0.1: 0.11, 0.9: 0.89}
    results = [
        result(
            method,
            seed,
            "partial",
            proportion,
            clean=clean,
            mAP=better + proportion / 2 + seed / 50,
        )
        for method, better in (("AN", 0.1), ("EM", 0.2))
        for proportion, clean in reversed(shares.items())
        for seed in (0, 1)
    ]
    results += [
        result("EM", 0, "noisy+", None, clean=0.95, mAP=0.6),
        result("all labels", 0, "full", None, clean=1.0, mAP=0.8),
        result("AN", 2, error="JobError: no disk"),
    ]
    axes = Figure().subplots()
    plot_curves(axes, [one for one in results if "mAP" in one])
    drawn = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    assert set(drawn) == {"AN", "EM, partial", "EM, noisy+", "all labels"}
    x, y = drawn["AN"].lines[0].get_data()
    assert list(x) == [0.11, 0.89]
    assert np.allclose(y, [16, 56])
    assert drawn["EM, noisy+"].lines[0].get_xydata().tolist() == [[0.95, 60.0]]
    assert list(drawn["all labels"].get_ydata()) == [80.0, 80.0]
    text = draw_curves(results)
    assert all(text.count(f"<!-- {name} -->") == 1 for name in drawn)
    assert draw_curves([one for one in results if one["proportion"] != 0.9]) == ""


def test_curves_and_gains_have_a_panel_per_figure() -> None:
    results = [
        result(method, seed, "partial", share, mAP=value, OF1=value + 0.1, pseudo_labels=7)
        for method, value in (("bce", 0.5), ("em", 0.6))
        for share in (0.1, 0.9)
        for seed in (0, 1)
    ]
    results.append(result("all", 0, "full", None, mAP=0.9, OF1=0.9))
    figures = ["mAP", "OF1", "pseudo_labels", "val_mAP"]  # a count and validation have no panel
    text = draw_curves(results, figures)
    assert "<!-- test mAP (%) -->" in text
    assert "<!-- test OF1 (%) -->" in text
    assert text.count("<!-- training labels that are known and correct -->") == 2
    assert text.count("<!-- em -->") == 1  # one legend
    gains = draw_gains(results, figures, "bce")
    assert "<!-- OF1, difference to bce -->" in gains
    assert "<!-- bce -->" not in gains
    assert "<!-- all -->" not in gains
    assert draw_gains(results, figures, None) == ""
    assert draw_gains(results, figures, "all") == ""  # on other labels


def test_epochs_are_averaged_over_seeds() -> None:
    results = [
        result("em", 0, val_mAP_by_epoch=[0.1, 0.2, 0.3]),
        result("em", 1, val_mAP_by_epoch=[0.3, 0.4]),
        result("auto", 0),
    ]
    axes = Figure().subplots()
    _plot_epochs(axes, results[:2], ["em", "auto"], "single-positive")
    (line,) = axes.lines
    assert np.allclose(line.get_xydata(), [[1, 20], [2, 30]])
    assert "<!-- em -->" in draw_epochs(results)
    assert draw_epochs(results[2:]) == ""


def test_curves_of_results_without_the_share_of_correct_labels() -> None:
    axes = Figure().subplots()
    shares: list[float | None] = [0.1, 0.9, None]
    plot_curves(axes, [result("AN", proportion=share, mAP=0.5) for share in shares])
    assert axes.lines[0].get_xydata().tolist() == [[0.1, 50.0], [0.9, 50.0]]  # type: ignore[union-attr]


def test_a_bench_can_be_stopped(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C the other trainings do not continue, as they do after a failure."""

    def interrupt(*_: Any, **__: Any) -> None:
        raise InterruptedTrainingError("stopped", 2)

    monkeypatch.setattr("partlabel.output.bench.jobs.train", interrupt)
    (tmp_path / "spec.yaml").write_text(
        "strategies: [{strategy: partial, proportions: [0.5]}]\nmethods: [{name: a, method: bce}]"
    )
    spec = read_spec(tmp_path / "spec.yaml", scene / "labels.csv", scene / "images")
    with pytest.raises(InterruptedTrainingError):
        run_spec(spec, tmp_path / "out")


def test_results_are_kept_if_images_move_and_a_damaged_run_is_one_failure(
    scene: Path, tmp_path: Path
) -> None:
    (tmp_path / "spec.yaml").write_text(
        "strategies: [{strategy: partial, proportions: [0.5]}]\n"
        "methods: [{name: a, method: bce}, {name: b, method: an}]\n"
        "settings: {backbone: test_efficientnet, weights: none, size: 64, epochs: 1, frozen: all}\n"
    )
    messages: list[str] = []
    spec = read_spec(tmp_path / "spec.yaml", scene / "labels.csv", scene / "images")
    first = run_spec(spec, tmp_path / "out", cache=tmp_path / "cache", say=messages.append)
    shutil.copytree(scene / "images", tmp_path / "moved")
    spec = read_spec(tmp_path / "spec.yaml", scene / "labels.csv", tmp_path / "moved")
    run_spec(spec, tmp_path / "out", cache=tmp_path / "cache", say=messages.append)
    assert "  2 of 2 are already finished" in messages
    damaged = tmp_path / "out" / "cells" / first.results[0]["cell"]
    (damaged / "test.json").unlink()
    (damaged / "run" / "run.json").write_text("{")
    again = run_spec(spec, tmp_path / "out", cache=tmp_path / "cache", say=messages.append)
    assert "run.json: damaged" in again.results[0]["error"]
    assert again.results[1]["mAP"] == first.results[1]["mAP"]


def test_a_figure_of_zero_counts_in_the_gap() -> None:
    def result(method: str, seed: int, of1: float) -> dict[str, Any]:
        labels = {"strategy": "partial", "proportion": 0.1}
        return {"method": method, "seed": seed, "OF1": of1, "chosen": {}, **labels}

    low = [result("low", 0, 0.0), result("low", 1, 0.4)]
    own = [result("own", 0, 0.2), result("own", 1, 0.4)]
    high = [result("high", 0, 0.4), result("high", 1, 0.6)]
    text = tables([*low, *own, *high], ["OF1"], "low", "high").markdown()
    assert "| own | 33.33 |" in text  # and not 0, as over the second seed alone


def test_strategies_with_options_have_titles_and_reach_the_simulation() -> None:
    strategies = [
        {"strategy": "merged"},
        {"strategy": "merged", "parts": 3},
        {"strategy": "mixed", "full": 0.5, "tags": 0.25},
    ]
    methods = [{"name": "bce", "method": "bce"}]
    spec = Spec.model_validate({"strategies": strategies, "methods": methods})
    titles = [combination.strategy for combination in combinations(spec)]
    assert titles == ["merged", "merged-parts3", "mixed-full0.5-tags0.25"]
    assert strategy_of(spec, titles[1]).options == {"parts": 3}
    assert strategy_of(spec, "single-positive").options == {}
