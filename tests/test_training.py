"""Trainings as users run them: caches, stopped processes, commands, wrong input."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from partlabel import LabelTable, evaluate, load, metrics, predict, read_labels, train
from partlabel.base.errors import InputError, JobError, PartlabelWarning
from partlabel.cli import main
from partlabel.judging.scoring import evaluate_run, own_thresholds
from partlabel.labels import scenes, simulate
from partlabel.learning.methods import METHODS
from partlabel.learning.methods.bce import Bce
from partlabel.output.report import build_report
from partlabel.training.arguments import make_settings
from partlabel.training.checkpoint import load_state, same, save_state
from partlabel.training.run import Run

TINY: dict[str, Any] = {
    "backbone": "test_efficientnet",
    "weights": "none",
    "size": 64,
    "batch": 8,
    "reserve": 0,
}
TINY_NETWORK = ["--backbone", "test_efficientnet", "--weights", "none", "--size", "64"]


def train_command(labels: Path, scene: Path, method: str) -> list[str]:
    """The arguments of `partlabel train` on the images of a scene, with a tiny network."""
    images = str(scene / "images")
    words = ["train", str(labels), "--images", images, "--method", method, "--batch", "8"]
    return words + TINY_NETWORK


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scene") / "s"
    scenes.write(folder, 60, scenes.World(4, 64, 0), test=0.25)
    return folder


@pytest.mark.parametrize("frozen", ["all", "lower"])
def test_cached_features_train_like_computed_ones(frozen: str, scene: Path, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"method": "bce", "frozen": frozen, "epochs": 2, **TINY}
    images, cache = tmp_path / "images", tmp_path / "cache"
    images.mkdir()
    for path in (scene / "images").iterdir():
        (images / path.name).write_bytes(path.read_bytes())
    train(scene / "labels.csv", images, tmp_path / "a", cache=cache, **arguments)
    store = next(cache.glob("*/maps"))
    before = store.stat().st_mtime_ns
    for path in list(images.iterdir())[:5]:
        path.rename(images / f"renamed-{path.name}")  # the cache finds images by content
    table = read_labels(scene / "labels.csv")
    names = [
        p.name for p in sorted(images.iterdir(), key=lambda p: p.name.removeprefix("renamed-"))
    ]
    renamed = LabelTable(names, table.classes, table.dense(), table.splits)
    train(renamed, images, tmp_path / "b", cache=cache, **arguments)
    assert store.stat().st_mtime_ns == before
    scores = load(tmp_path / "a").predict(sorted((scene / "images").iterdir()))
    assert scores.shape == (60, 4)


def test_cached_pixels_change_nothing(scene: Path, tmp_path: Path) -> None:
    for name, cached in (("a", False), ("b", True), ("c", True)):
        arguments: dict[str, Any] = {"method": "bce", "epochs": 1, "cache_pixels": cached, **TINY}
        train(
            scene / "labels.csv",
            scene / "images",
            tmp_path / name,
            cache=tmp_path / "x",
            **arguments,
        )
    states = [load_state(tmp_path / run / "best.safetensors") for run in "abc"]
    assert same(states[0], states[1])
    assert same(states[1], states[2])
    store = next((tmp_path / "x").glob("pixels-64-*/maps"))
    assert store.stat().st_size == 45 * 3 * 64 * 64


def test_report(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv")
    hidden = simulate.hide(table, "partial", 0.4, split="train", holdout=0.3)
    train(hidden, scene / "images", tmp_path / "<r>", method="bce", epochs=2, **TINY)
    path = build_report(Run(tmp_path / "<r>"))
    page = path.read_text()
    assert "&lt;r&gt;" in page  # escaped
    before, after = page.split("<h2>Known and completed labels</h2>")
    assert after.count("data:image/jpeg") == 18
    assert before.count("data:image/jpeg") > 6
    assert page.count("<svg") >= 3
    assert not re.search(r"(src|href)=.https?:", page)  # self-contained
    assert all(name in page for name in table.classes)
    assert path.read_text() == build_report(Run(tmp_path / "<r>")).read_text()


@pytest.mark.parametrize("head", ["linear", "saliency"])
def test_reduced_features(head: str, scene: Path, tmp_path: Path) -> None:
    """A loaded model scores images as the trained model scores cached, reduced maps."""
    arguments: dict[str, Any] = {
        "method": "bce",
        "frozen": "all",
        "epochs": 2,
        "head": head,
        **TINY,
    }
    arguments |= {"reduce": 5, "cache": tmp_path / "c"}
    run = train(scene / "labels.csv", scene / "images", tmp_path / "r", **arguments)
    table = read_labels(scene / "labels.csv").split("test")
    from_maps = evaluate_run(run, table)["mAP"]
    model = load(run.folder)
    assert model.backbone.channels == 5
    scores = model.predict(scene / "images" / name for name in table.ids)
    from_images = metrics.evaluate(scores, table)["mAP"]
    assert from_maps == pytest.approx(from_images, abs=0.02)
    repeated = train(scene / "labels.csv", scene / "images", tmp_path / "s", **arguments)
    assert same(*(load_state(each.folder / "best.safetensors") for each in (run, repeated)))
    with pytest.raises(InputError, match="--frozen"):
        train(
            scene / "labels.csv",
            scene / "images",
            tmp_path / "t",
            **arguments | {"frozen": "lower"},
        )


def test_a_truncated_cache_is_repaired(scene: Path, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"method": "bce", "frozen": "all", "epochs": 1, **TINY}
    train(scene / "labels.csv", scene / "images", tmp_path / "a", cache=tmp_path / "c", **arguments)
    store = next((tmp_path / "c").glob("*/maps"))
    whole = store.read_bytes()
    store.write_bytes(whole[: len(whole) * 2 // 3 + 7])
    train(scene / "labels.csv", scene / "images", tmp_path / "b", cache=tmp_path / "c", **arguments)
    repaired, before = (np.frombuffer(b, np.float32) for b in (store.read_bytes(), whole))
    # not exactly equal: images are computed in other batches
    np.testing.assert_allclose(repaired, before, rtol=1e-2, atol=1e-3)
    a, b = (load_state(tmp_path / run / "best.safetensors") for run in "ab")
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_a_frozen_part_of_another_shape_is_named(scene: Path, tmp_path: Path) -> None:
    call: dict[str, Any] = {"method": "bce", "frozen": "all", "epochs": 1, **TINY}
    call |= {"cache": tmp_path / "cache"}
    run = train(scene / "labels.csv", scene / "images", tmp_path / "run", **call)
    run.write(run.record.model_copy(update={"finished": False}))
    path = run.folder / "backbone.safetensors"
    state = load_state(path)
    save_state(path, {name: torch.zeros(3) for name in state})
    with pytest.raises(InputError, match=r"backbone\.safetensors: its weights do not fit"):
        train(scene / "labels.csv", scene / "images", run.folder, resume=True, **call)


def test_killed_processes_resume_to_the_same_bits(scene: Path, tmp_path: Path) -> None:
    """Real processes, killed with SIGKILL at several times."""
    script = (
        "import sys; from partlabel.training import trainer; trainer._SAVE_EVERY = 0.0;"
        "from partlabel.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = train_command(scene / "labels.csv", scene, "an")
    words += ["--epochs", "6", "--optimizer", "sgd", "--schedule", "onecycle", "--ema", "0.9"]

    def start(out: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", script, *words, "--out", str(tmp_path / out), "--resume"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    whole = start("whole")
    assert whole.wait() == 0
    checkpoint = tmp_path / "cut" / "last.safetensors"
    kills = 0
    for delay in (0.0, 0.05, 0.15, 0.3):
        process = start("cut")
        saved_before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while process.poll() is None:  # wait until this process has saved, then ``delay`` more
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != saved_before:
                time.sleep(delay)
                break
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2
    last = start("cut")
    assert last.wait() == 0
    states = [load_state(tmp_path / run / "last.safetensors") for run in ("whole", "cut")]
    for state in states:
        for record in state["progress"]["history"]:
            record.pop("images_per_second")
    assert same(*states)
    assert same(*(load_state(tmp_path / run / "best.safetensors") for run in ("whole", "cut")))
    finished = start("cut")  # has nothing to do
    assert finished.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_a_checkpoint_and_names_resume(
    number: signal.Signals, scene: Path, tmp_path: Path
) -> None:
    words = train_command(scene / "labels.csv", scene, "an")
    words += ["--epochs", "500", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "partlabel", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("epoch 2"):
                break
        process.send_signal(number)
        error = process.stderr.read()
        assert process.wait() == 128 + number
    assert "--resume" in error
    assert "Traceback" not in error
    assert (tmp_path / "run" / "last.safetensors").exists()
    with pytest.raises(InputError, match="the run is not finished"):
        load(tmp_path / "run")
    with pytest.raises(InputError, match="the run is not finished"):
        evaluate(tmp_path / "run", reserved=True)
    with pytest.raises(InputError, match="the run is not finished"):
        predict(tmp_path / "run", scene / "images", abstain=True)


@pytest.mark.parametrize(("words", "told"), [([], True), (["--threshold", "0.4"], False)])
def test_evaluate_says_if_no_score_reaches_one_half(
    words: list[str],
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Classes that are known to be present only cannot be measured, and do not count."""
    scores = [[0.3, 0.1, 0.9, 0.2, 0.2], [0.2, 0.4, 0.9, 0.9, 0.2]]
    truth = [[1, -1, 1, 0, 1], [-1, 1, 0, 1, 0]]
    result = metrics.evaluate(scores, truth)
    monkeypatch.setattr("partlabel.judging.measuring.evaluate", lambda *_, **__: result)
    assert main(["evaluate", "run", "labels.csv", *words]) == 0
    assert ("no present label of 2 classes reaches 0.5" in capsys.readouterr().out) == told


def test_commands_from_labels_to_completion(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTLABEL_CACHE", str(tmp_path / "cache"))
    hidden, run = tmp_path / "hidden.csv", tmp_path / "run"
    assert main(["simulate", str(scene / "labels.csv"), str(hidden), "--strategy", "partial",
                 "--proportion", "0.5", "--split", "train", "--holdout", "0.3"]) == 0  # fmt: skip
    command = [*train_command(hidden, scene, "bce"), "--frozen", "--out", str(run)]
    assert main([*command, "--epochs", "3", "--set", "normalize=batch"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"validation mAP [\d.]+ on 7 images, a rough figure: 4 of 4 classes have", said
    )
    record = Run(run).record
    assert (record.train_rows, record.val_rows, record.reserved_rows) == (31, 7, 7)
    assert main(command) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main([*command, "--lr", "0.5", "--epochs", "3", "--resume"]) == 2
    assert "was started with lr = 0.001, not 0.5" in capsys.readouterr().err

    figures = tmp_path / "f.json"
    images = ["--images", str(scene / "images")]
    assert main(["evaluate", str(run), str(scene / "labels.csv"), *images, "--split", "test",
                 "--json", str(figures)]) == 0  # fmt: skip
    assert "mAP" in capsys.readouterr().out
    assert 0 <= json.loads(figures.read_text())["mAP"] <= 1
    assert main(["evaluate", str(run), "--reserved", "--json", str(figures)]) == 0
    selection = Run(run).selection
    per_class = json.loads(figures.read_text())["per_class"]
    present = selection.table.subset(selection.reserved).counts().present
    assert [figure["present"] for figure in per_class] == present.tolist()
    capsys.readouterr()
    for words in ([], [str(hidden), "--reserved"], ["--reserved", "--split", "test"]):
        assert main(["evaluate", str(run), *words]) == 2
        assert "--reserved" in capsys.readouterr().err

    output = tmp_path / "done.csv"
    assert main(["complete", str(run), "-o", str(output), "--min-precision", "0.5"]) == 0
    completed, known = read_labels(output), read_labels(hidden)
    known = known.with_classes(completed.classes)
    assert np.array_equal(completed.dense()[known.dense() != 0], known.dense()[known.dense() != 0])
    assert (tmp_path / "done.guarantees.csv").exists()
    assert np.array_equal(np.isnan(completed.scores()), completed.dense() == 0)

    predicted = tmp_path / "p.csv"
    assert main(["predict", str(run), str(scene / "images"), "-o", str(predicted)]) == 0
    assert read_labels(predicted).shape == (60, 4)


def test_predict_names_files_that_it_cannot_use(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTLABEL_CACHE", str(tmp_path / "cache"))
    run, images, out = tmp_path / "run", tmp_path / "images", tmp_path / "p.csv"
    command = [*train_command(scene / "labels.csv", scene, "bce"), "--frozen", "--out", str(run)]
    assert main([*command, "--epochs", "1"]) == 0
    images.mkdir()
    capsys.readouterr()
    assert main(["predict", str(run), str(images), "-o", str(out)]) == 2
    assert f"there are no images to predict in '{images}'" in capsys.readouterr().err
    photo = (scene / "images" / "000003.png").read_bytes()
    nameless = Path(os.fsdecode(os.fsencode(images) + b"/\xff.png"))
    nameless.write_bytes(photo)
    for path in (images, nameless):
        assert main(["predict", str(run), str(path), "-o", str(out)]) == 2
        assert "\\xff.png: its name is not UTF-8; rename the file" in capsys.readouterr().err
    (images / "=1+1.png").write_bytes(photo)
    predict = ["predict", str(run), str(images), "-o", str(out), "--excel-safe"]
    assert main([*predict, "--to", "coco"]) == 2
    assert "--excel-safe is for CSV files" in capsys.readouterr().err
    assert main(predict) == 0
    assert (
        "left out: " + str(images) + "/\\xff.png: its name is not UTF-8" in capsys.readouterr().err
    )
    assert "\n'=1+1.png," in out.read_text()
    assert list(read_labels(out).ids) == ["=1+1.png"]


def test_unreadable_images_are_left_out(scene: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for path in (scene / "images").iterdir():
        (images / path.name).write_bytes(path.read_bytes())
    (images / "000003.png").write_bytes(b"broken")
    for frozen in ("nothing", "all"):
        arguments: dict[str, Any] = {
            "method": "bce",
            "epochs": 1,
            "val": 0.3,
            "frozen": frozen,
            **TINY,
        }
        with pytest.warns(PartlabelWarning, match=r"left out: .*000003\.png"):
            run = train(
                scene / "labels.csv", images, tmp_path / frozen, cache=tmp_path / "c", **arguments
            )
        assert len(run.record.broken) == 1
        with pytest.raises(InputError, match="cannot be decoded"):
            train(scene / "labels.csv", images, tmp_path / "x", strict=True, **arguments)
    assert not (tmp_path / "x").exists()


def test_a_loss_that_is_not_finite_stops_the_training_and_names_images(
    scene: Path, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {
        "method": "bce",
        "epochs": 5,
        "lr": 1e30,
        "optimizer": "sgd",
        **TINY,
    }
    with pytest.raises(JobError, match=r"the loss became (nan|inf) in epoch .*\.png"):
        train(scene / "labels.csv", scene / "images", tmp_path / "r", **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "bec"}, "did you mean 'bce'"),
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"epochs": 0}, "epochs: must be at least 1, not 0"),
        ({"optimizer": "adamm"}, "optimizer: must be .sgd., .* not .adamm."),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"options": {"normalise": "batch"}}, "did you mean 'normalize'"),
        ({"head": "saliensy"}, "did you mean 'saliency'"),
        ({"head": "saliency", "head_options": {"k": 0}}, "--head-set k=0"),
        ({"head": "linear", "head_options": {"k": 1}}, "no setting of this head 'k'"),
        ({"head_options": {"k": 1}}, "name the head"),
        ({"head": "linear", "method": "en-scl"}, "its own head"),
        ({"options": {"normalize": "batches"}}, "--set normalize=batches"),
        ({"split": "trian"}, "did you mean 'train'"),
        ({"val_split": "hold"}, "no split 'hold'"),
    ],
)
def test_bad_settings(change: dict[str, Any], message: str, scene: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        train(
            scene / "labels.csv",
            scene / "images",
            tmp_path / "r",
            **{"method": "bce", **TINY, **change},
        )
    assert not (tmp_path / "r").exists()


def test_bad_data(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv")
    extended = table.merge(LabelTable(["gone.png"], table.classes, [[1, 1, 1, 1]], ["train"]))
    with pytest.raises(
        InputError, match=r"1 image of the label file not found: 'gone\.png'.*delete"
    ):
        train(extended, scene / "images", tmp_path / "r", method="bce", **TINY)
    with_empty_class = table.with_more_classes(["unicorn"])
    with pytest.raises(InputError, match="'unicorn'; 1 class cannot be learned"):
        train(with_empty_class, scene / "images", tmp_path / "r", method="bce", **TINY)
    assert not (tmp_path / "r").exists()
    settings = {"method": "bce", "epochs": 1, "drop_empty": True, **TINY}
    run = train(with_empty_class, scene / "images", tmp_path / "r", **settings)
    assert run.record.classes == list(table.classes)


def test_bad_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run here"):
        load(tmp_path)
    for content, message in [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"version": 99}', "this run has version 99"),
        ('{"version": 3}', "this run has version 3"),
        ('{"version": 5, "more": 1}', "damaged"),
        ('{"version": 5, "settings": null}', "damaged"),
    ]:
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(InputError, match=message):
            load(tmp_path)


def test_missing_parts_of_a_run_are_named(scene: Path, tmp_path: Path) -> None:
    train(scene / "labels.csv", scene / "images", tmp_path / "r", method="bce", epochs=1, **TINY)
    content = (tmp_path / "r" / "best.safetensors").read_bytes()
    (tmp_path / "r" / "best.safetensors").write_bytes(content[:100])
    with pytest.raises(InputError, match=r"best\.safetensors: not a checkpoint"):
        load(tmp_path / "r")
    (tmp_path / "r" / "best.safetensors").unlink()
    with pytest.raises(InputError, match=r"best\.safetensors is missing"):
        load(tmp_path / "r")


def test_without_a_validation_map_the_last_epoch_is_kept(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv").split("train")
    positives = table.with_cells(table.cells.where(table.cells.values == 1))
    with pytest.warns(PartlabelWarning, match="all of one kind"):
        run = train(positives, scene / "images", tmp_path / "r", method="an", epochs=3, **TINY)
    assert run.record.best_val_mAP is None
    assert run.record.thresholds == [None] * len(run.record.classes)
    with pytest.warns(PartlabelWarning, match="no threshold"):
        assert set(own_thresholds(run)) == {0.5}
    assert run.record.best_epoch == 3


def test_a_loaded_state_equals_the_saved_one(tmp_path: Path) -> None:
    state = {
        "a": torch.arange(3),
        "b": [1, 2.5, None, "x", {"c": torch.zeros(2, dtype=torch.bfloat16)}],
        "numbers": {0: {"step": torch.tensor(1.0)}, 1: {}},
        "inf": float("-inf"),
    }
    save_state(tmp_path / "s", state)
    assert same(load_state(tmp_path / "s"), state)
    shared = torch.zeros(4)
    save_state(tmp_path / "s", {"x": shared, "y": shared[1:]})
    assert load_state(tmp_path / "s")["y"].shape == (3,)


def test_defaults_of_a_method_are_used_unless_the_user_sets_them() -> None:
    class Own(Bce):
        defaults: ClassVar = {"lr": 0.5, "optimizer": "sgd"}

    METHODS["own"] = Own
    try:
        assert make_settings(method="own").lr == 0.5
        assert make_settings(method="own", lr=0.25).lr == 0.25
        assert make_settings(method="own").optimizer == "sgd"
    finally:
        del METHODS["own"]
