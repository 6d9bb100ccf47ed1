"""Runs on disk: the split is stored, runs can be moved, and only results must stay the same."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import yaml
from safetensors.torch import save_file

import partlabel
from conformance import MethodConformance
from partlabel import LabelTable, read_labels, train
from partlabel.base import files
from partlabel.base.errors import FileError, InputError, JobError, PartlabelWarning
from partlabel.base.locks import locked
from partlabel.cli import main
from partlabel.judging.scoring import score, trained_on
from partlabel.training import run_record, trainer
from partlabel.training.arguments import make_settings, override, read_config, write_config
from partlabel.training.checkpoint import load_state, same, save_state
from partlabel.training.run import Run
from partlabel.training.run_record import file_hash
from partlabel.training.run_split import select
from partlabel.training.settings import Execution, Settings

TINY: dict[str, Any] = {
    "method": "bce",
    "backbone": "test_efficientnet",
    "weights": "none",
    "size": 64,
    "frozen": "all",
    "epochs": 2,
}


@pytest.fixture
def run(scene: Path, tmp_path: Path) -> Run:
    """A run beside its own copy of the images."""
    shutil.copytree(scene / "images", tmp_path / "project" / "photos")
    images, out = tmp_path / "project" / "photos", tmp_path / "project" / "run"
    return train(scene / "partial.csv", images, out, cache=tmp_path / "cache", **TINY)


def test_the_split_is_stored_and_not_decided_again(
    run: Run, scene: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = select(read_labels(scene / "partial.csv"), run.settings)

    def other_split(*_: Any) -> None:
        raise AssertionError("the split must be read from the run")

    monkeypatch.setattr("partlabel.training.train.select", other_split)
    stored = Run(run.folder).selection
    assert stored.same_images(expected)
    assert len(stored.reserved)
    assert stored.labels.ids == expected.labels.ids
    assert set(stored.training.ids).isdisjoint(stored.table.subset(stored.reserved).ids)


def test_a_split_that_does_not_fit_is_refused(run: Run) -> None:
    record = run.record
    run.write(record.model_copy(update={"train_rows": record.train_rows + 1}))
    with pytest.raises(FileError, match=r"split\.safetensors: does not fit"):
        _ = Run(run.folder).selection
    blank = np.zeros((1, len(record.classes)), dtype=np.int8)
    LabelTable(["a"], record.classes, blank).save(run.folder / "labels.arrow")
    digest = file_hash(run.folder / "labels.arrow")
    run.write(record.model_copy(update={"labels_file": digest}))
    with pytest.raises(FileError, match="does not fit the labels"):
        _ = Run(run.folder).selection


def test_damaged_records_and_weights_are_not_used(run: Run) -> None:
    """One changed digit, one changed bit: the figures would be others without notice."""
    path = run.folder / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"thresholds": []}))
    with pytest.raises(FileError, match=r"run\.json: damaged \(its checksum does not fit"):
        _ = Run(run.folder).record
    path.write_text(json.dumps(record))
    weights = run.folder / "best.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(FileError, match=r"best\.safetensors.*checksum does not fit"):
        Run(run.folder).classifier()


@pytest.mark.parametrize(
    "change",
    [{"settings": None}, {"settings": {"epochs": "many"}}, {"classes": 3}, {"images": []}],
    ids=str,
)
def test_a_record_of_wrong_types_is_named(run: Run, change: dict[str, Any]) -> None:
    """Also if its checksum fits."""
    path = run.folder / "run.json"
    content = json.loads(path.read_text()) | change
    del content["checksum"]
    path.write_text(json.dumps({**content, "checksum": run_record._checksum(content)}))
    with pytest.raises(FileError, match=r"run\.json: damaged"):
        _ = Run(run.folder).record


@pytest.mark.parametrize("text", ["epoch,loss\n1,<b>\n", "epoch,loss\n1,2,3\n", "epoch\n\0\n"])
def test_a_log_with_text_is_named(run: Run, text: str) -> None:
    (run.folder / "log.csv").write_text(text)
    with pytest.raises(FileError, match=r"log\.csv: damaged"):
        run.history()


def test_labels_that_changed_are_not_used(run: Run) -> None:
    """Whatever changed in the file: nothing of it is read."""
    path = run.folder / "labels.arrow"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(20):
        at = int(rng.integers(len(content) - 8))
        path.write_bytes(
            content[:at] + bytes(b ^ 255 for b in content[at : at + 8]) + content[at + 8 :]
        )
        with pytest.raises(FileError, match=r"labels\.arrow: damaged"):
            _ = Run(run.folder).selection
        assert main(["evaluate", str(run.folder), "--reserved"]) == 2


def test_one_process_at_a_time_trains_into_a_folder(scene: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with (
        locked(tmp_path / "run"),
        pytest.raises(FileError, match=f"in use by process {os.getpid()}"),
    ):
        train(scene / "partial.csv", scene / "images", tmp_path / "run", **TINY)
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **TINY)
    assert run.finished
    (tmp_path / "photos").mkdir()
    shutil.copy(next((scene / "images").iterdir()), tmp_path / "photos")
    with pytest.raises(FileError, match="is not empty"):
        train(scene / "partial.csv", scene / "images", tmp_path / "photos", **TINY)
    assert len(list((tmp_path / "photos").iterdir())) == 1  # no lock is left behind


def test_temporary_files_of_dead_processes_are_swept(scene: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine = files._temporary_path(folder / "run.json")
    dead = mine.with_name(mine.name.replace(f"-{os.getpid()}-", f"-{ended.pid}-"))
    foreign = mine.with_name(f".0badhost-{ended.pid}-00.partial")
    (folder / "members" / "2").mkdir(parents=True)
    deep = folder / "members" / "2" / dead.name
    for path in (mine, dead, foreign, deep):
        path.write_text("")
    train(scene / "partial.csv", scene / "images", folder, resume=True, **TINY)
    kept = [path.exists() for path in (mine, dead, foreign, deep)]
    assert kept == [True, False, True, False]


def test_a_run_moves_with_its_images(run: Run, tmp_path: Path) -> None:
    before = score(run, run.selection.training).scores
    shutil.move(tmp_path / "project", tmp_path / "moved")
    moved = Run(tmp_path / "moved" / "run", execution=run.execution)
    assert moved.images == (tmp_path / "moved" / "photos").resolve()
    assert np.array_equal(score(moved, moved.selection.training).scores, before)


def test_a_run_moves_without_its_images(run: Run, tmp_path: Path) -> None:
    shutil.move(run.folder, tmp_path / "elsewhere")
    assert Run(tmp_path / "elsewhere").images == (tmp_path / "project" / "photos").resolve()


def test_of_two_image_folders_the_one_with_the_images_is_used(run: Run, tmp_path: Path) -> None:
    """Beside the moved run is a folder of the same name with other images."""
    shutil.move(run.folder, tmp_path / "elsewhere" / "run")
    (tmp_path / "elsewhere" / "photos").mkdir()
    (tmp_path / "elsewhere" / "photos" / "other.jpg").write_bytes(b"")
    moved = Run(tmp_path / "elsewhere" / "run")
    assert moved.images == (tmp_path / "project" / "photos").resolve()
    name = moved.selection.labels.ids[0]
    shutil.copy(tmp_path / "project" / "photos" / name, tmp_path / "elsewhere" / "photos")
    assert moved.images == (tmp_path / "elsewhere" / "photos").resolve()


def test_images_that_moved_can_be_named(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.move(tmp_path / "project" / "photos", tmp_path / "new")
    shutil.move(run.folder, tmp_path / "elsewhere")
    out, cache = tmp_path / "completed.csv", ["--cache", str(tmp_path / "cache")]
    calls = [
        ["complete", str(tmp_path / "elsewhere"), "-o", str(out), *cache],
        ["report", str(tmp_path / "elsewhere"), *cache],
        ["evaluate", str(tmp_path / "elsewhere"), "--reserved", *cache],
    ]
    for call in calls:
        assert main(call) == 2
        assert "name them with --images" in " ".join(capsys.readouterr().err.split())
        assert main([*call, "--images", str(tmp_path / "new")]) == 0


@contextmanager
def stopped_after_an_epoch() -> Iterator[None]:
    """Trainings in this block end after their first epoch, as if they were killed."""
    original = trainer.Trainer._save

    def save_and_stop(self: trainer.Trainer, *, force: bool = False) -> None:
        original(self, force=True)
        if self.progress.epoch == 1:
            raise KeyError("stop")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "_save", save_and_stop)
        with suppress(KeyError):
            yield
            raise AssertionError("the training was not stopped")


def test_a_stopped_run_goes_on_with_other_means(scene: Path, tmp_path: Path) -> None:
    """Other workers, another cache, another image folder: the result is the same."""
    whole = train(scene / "partial.csv", scene / "images", tmp_path / "whole", **TINY)
    with stopped_after_an_epoch():
        train(scene / "partial.csv", scene / "images", tmp_path / "cut", **TINY)
    shutil.copytree(scene / "images", tmp_path / "copy")
    means: dict[str, Any] = {"workers": 1, "cache": tmp_path / "other-cache"}
    cut = train(
        scene / "partial.csv", tmp_path / "copy", tmp_path / "cut", resume=True, **means, **TINY
    )
    assert same(*(load_state(one.folder / "best.safetensors") for one in (whole, cut)))
    assert Run(cut.folder).images == (tmp_path / "copy").resolve()
    with pytest.raises(InputError, match=r"was started with lr = 0\.001, not 0\.5"):
        train(
            scene / "partial.csv", tmp_path / "copy", cut.folder, resume=True, **TINY | {"lr": 0.5}
        )


def test_a_stopped_run_goes_on_with_the_split_that_it_stored(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a later version would decide on another one."""
    with stopped_after_an_epoch():
        train(scene / "partial.csv", scene / "images", tmp_path / "run", **TINY)
    stored = Run(tmp_path / "run").selection

    def other_split(*_: Any) -> None:
        raise AssertionError("the split must be read from the run")

    monkeypatch.setattr("partlabel.training.train.select", other_split)
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", resume=True, **TINY)
    assert run.finished
    assert Run(run.folder).selection.same_images(stored)


@pytest.mark.parametrize("frozen", ["all", "lower"])
def test_a_weights_file_that_changes_cannot_mix_into_a_run(
    frozen: str, scene: Path, tmp_path: Path
) -> None:
    """What is frozen is kept by the run; the file is only read if more of it is needed."""
    weights = tmp_path / "weights.safetensors"
    settings = {**TINY, "weights": str(weights), "frozen": frozen}
    write_weights(weights, seed=1)
    whole = train(scene / "partial.csv", scene / "images", tmp_path / "whole", **settings)
    with stopped_after_an_epoch():
        train(scene / "partial.csv", scene / "images", tmp_path / "cut", **settings)
    write_weights(weights, seed=2)
    if frozen == "lower":
        with pytest.raises(FileError, match=r"weights\.safetensors: has changed since"):
            train(
                scene / "partial.csv", scene / "images", tmp_path / "cut", resume=True, **settings
            )
        return
    cut = train(scene / "partial.csv", scene / "images", tmp_path / "cut", resume=True, **settings)
    assert same(*(load_state(one.folder / "best.safetensors") for one in (whole, cut)))
    assert cut.record.best_val_mAP == whole.record.best_val_mAP


def write_weights(path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    save_file(timm.create_model(TINY["backbone"]).state_dict(), path)


def test_a_folder_is_not_spoiled_by_a_start_that_fails(scene: Path, tmp_path: Path) -> None:
    """A wrong file of settings can be corrected and used with the same call."""
    classes, graph = list(read_labels(scene / "partial.csv").classes), tmp_path / "graph.csv"
    graph.write_text("class,linked,weight\nno such class,another,0.5\n")
    call = {**TINY, "method": "imcl", "options": {"graph": str(graph)}, "batch": 8}
    with pytest.raises(InputError, match="no such class"):
        train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    graph.write_text(f"class,linked,weight\n{classes[0]},{classes[1]},0.5\n")
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    assert run.finished


def test_files_that_settings_name_are_kept(scene: Path, tmp_path: Path) -> None:
    classes = list(read_labels(scene / "partial.csv").classes)
    graph = tmp_path / "graph.csv"
    graph.write_text(f"class,linked,weight\n{classes[0]},{classes[1]},0.5\n")
    options = {"graph": str(graph)}
    call = {**TINY, "method": "imcl", "options": options, "batch": 8}
    run = train(scene / "partial.csv", scene / "images", tmp_path / "run", **call)
    graph.unlink()
    links = run.artifacts().label_graph
    assert links is not None
    assert links.linked.shape == (len(classes), 2)
    graph.write_text(f"class,linked,weight\n{classes[0]},{classes[2]},0.5\n")
    run.write(run.record.model_copy(update={"finished": False}))
    with pytest.raises(FileError, match=r"graph\.csv: has changed"):
        train(scene / "partial.csv", scene / "images", run.folder, resume=True, **call)


def test_config_files_repeat_a_run(run: Run, scene: Path, tmp_path: Path) -> None:
    """The file that a run writes gives the same settings, and so the same weights."""
    config = run.folder / "config.yaml"
    assert make_settings(**read_config(config)) == run.settings
    words = ["train", str(run.folder / "labels.arrow"), "--images", str(scene / "images")]
    words += ["--config", str(config), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--out", str(tmp_path / "again")]) == 0
    states = [load_state(at / "best.safetensors") for at in (run.folder, tmp_path / "again")]
    assert same(*states)
    assert main([*words, "--epochs", "1", "--out", str(tmp_path / "short")]) == 0
    assert Run(tmp_path / "short").settings == run.settings.model_copy(update={"epochs": 1})


@pytest.mark.parametrize(
    "arguments",
    [
        {"method": "sr", "options": {"tau": 0.7}, "ema": 0.9, "view_bank": 1, "frozen": "all"},
        {"method": "em", "frozen": "all", "optimizer": "lbfgs", "weight_decay": 1e-3},
        {"method": "lac", "frozen": "lower"},
        {"method": "bce", "optimizer": "sgd", "schedule": "plateau", "val_split": "x"},
        {"method": "bce", "head": "saliency", "head_options": {"k": 3}, "decay_all": False},
    ],
)
def test_written_settings_are_read_again(arguments: dict[str, Any], tmp_path: Path) -> None:
    settings = make_settings(**arguments)
    (tmp_path / "config.yaml").write_text(write_config(settings))
    assert make_settings(**read_config(tmp_path / "config.yaml")) == settings


def test_a_default_of_the_method_that_is_switched_off_is_written_as_null(tmp_path: Path) -> None:
    settings = make_settings(method="lac", ema=None)
    (tmp_path / "config.yaml").write_text(write_config(settings))
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["ema"] is None
    assert make_settings(**read_config(tmp_path / "config.yaml")) == settings
    assert make_settings(method="lac").ema == 0.9997


def test_files_in_a_written_config_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    for name in ("graph.csv", "backbone.safetensors"):
        (tmp_path / "there" / name).write_text("")
    monkeypatch.chdir(tmp_path / "there")
    settings = make_settings(
        method="imcl", options={"graph": "graph.csv"}, weights="backbone.safetensors"
    )
    values = yaml.safe_load(write_config(settings))
    assert values["options"]["graph"] == str(tmp_path / "there" / "graph.csv")
    assert values["weights"] == str(tmp_path / "there" / "backbone.safetensors")
    assert yaml.safe_load(write_config(make_settings(method="bce")))["weights"] == "imagenet"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 3", "did you mean 'epochs'"),
        ("- epochs", "holds no settings"),
        ("{", "not a YAML file"),
        ("workrs: 3", "did you mean 'workers'"),
    ],
)
def test_bad_config_files_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_config(tmp_path / "bad.yaml")
    assert "bad.yaml" in str(error.value)


def test_a_config_file_with_dashes(tmp_path: Path) -> None:
    (tmp_path / "dashed.yaml").write_text(yaml.safe_dump({"weight-decay": 0.5}))
    assert read_config(tmp_path / "dashed.yaml") == {"weight_decay": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"momentum": 0.5}, "--momentum has no effect without --optimizer sgd"),
        ({"plateau": 0.8}, "--plateau has no effect without --schedule plateau"),
        ({"decay_all": True}, "--decay-all has no effect without --weight-decay"),
        ({"val": 0.3, "val_split": "x"}, "--val has no effect with --val-split"),
        ({"reduce": 3}, "--reduce has no effect without --frozen"),
        ({"view_bank": 3}, "--view-bank has no effect without --frozen"),
        ({"side": ["x"]}, "--side has no effect: only imcl can use it"),
    ],
)
def test_settings_without_effect_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_settings(method="bce", **arguments)


def test_a_flag_of_a_config_file_can_be_switched_off(scene: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "drop_empty: true\n" + "".join(f"{name}: {value}\n" for name, value in TINY.items())
    )
    words = ["train", str(scene / "partial.csv"), "--images", str(scene / "images")]
    words += ["--config", str(tmp_path / "config.yaml"), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--out", str(tmp_path / "on")]) == 0
    assert main([*words, "--no-drop-empty", "--out", str(tmp_path / "off")]) == 0
    dropped = [Run(tmp_path / name).settings.drop_empty for name in ("on", "off")]
    assert dropped == [True, False]


def test_errors_in_python_name_keyword_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as caught:
        make_settings(method="bce", momentum=0.5)
    option = "--momentum has no effect without --optimizer sgd"
    assert str(caught.value) == f'{option} (in Python: momentum, optimizer="sgd")'
    words = ["train", "labels.csv", "--images", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main([*words, "--method", "bce", "--momentum", "0.5"]) == 2
    assert capsys.readouterr().err == f"error: {option}\n"


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("reserved no labels; train with --reserve 0.2", "reserve=0.2"),
        ("train with --reserve 0.2.", "reserve=0.2"),
        ("no --val 0", "val=0"),
        ("--min-count 2, or --min-count 10", "min_count=2, min_count=10"),
        ("--lr 1e-3 is too high", "lr"),
    ],
)
def test_errors_in_python_have_the_whole_number(message: str, arguments: str) -> None:
    assert str(InputError(message)) == f"{message} (in Python: {arguments})"


def test_options_override_a_config_file_one_by_one() -> None:
    """Settings of the method that are not named stay; what becomes idle is left out."""
    config = {"method": "imcl", "options": {"k": 3, "lambda_y": 0.5}, "val": 0.2, "batch": 16}
    assert override(config, {"options": {"k": 4}})["options"] == {"k": 4, "lambda_y": 0.5}
    assert override(config, {"method": "bce"})["options"] == {}
    assert "val" not in override(config, {"val_split": "v"})
    assert "batch" not in override(config, {"optimizer": "lbfgs"})
    solved = {"method": "bce", "optimizer": "lbfgs", "lr": 1.0}
    assert override(solved, {"optimizer": "adam"}) == {"method": "bce", "optimizer": "adam"}
    with pytest.raises(InputError, match="--batch has no effect"):
        make_settings(**override(config, {"method": "bce", "optimizer": "lbfgs", "batch": 8}))


@pytest.mark.parametrize(
    "arguments",
    [
        {"method": 3},
        {"method": "auto", "budget": ["small"]},
        {"method": "bce", "schedule": 3},
        {"method": "em", "options": "alpha=1"},
        {"method": "em", "options": ["a"]},
        {"method": "bce", "lr": math.inf},
    ],
)
def test_values_of_a_wrong_type_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"method|budget|schedule|options|lr"):
        make_settings(**arguments)


def test_an_explicit_share_wins_over_the_split_holdout(scene: Path) -> None:
    table = read_labels(scene / "partial.csv")
    splits = ["holdout" if i < 10 else "train" for i in range(len(table))]
    table = table.with_splits(splits)
    holdout = select(table, make_settings(method="bce"))
    assert len(holdout.val) + len(holdout.reserved) == 10
    assert not len(select(table, make_settings(method="bce", val=0)).val)
    rest = table.split("train")  # whose names still include the other split
    assert len(select(rest, make_settings(method="bce", val=0)).train) == len(rest)


def test_settings_and_execution_share_no_name() -> None:
    assert not set(Settings.model_fields) & set(Execution.model_fields)


@pytest.mark.filterwarnings("ignore:.*look")
def test_python_has_the_commands(run: Run, scene: Path, tmp_path: Path) -> None:
    """The functions of the package, on the folder of a run or on the run itself."""
    for one in (run, run.folder):
        assert partlabel.load(one).classes == run.record.classes
        reserved = partlabel.evaluate(one, reserved=True)
        assert reserved.classes == run.record.classes
        table = partlabel.predict(one, scene / "images", threshold=0.5)
        assert len(table) == len(list((scene / "images").iterdir()))
    assert "mAP" in str(reserved)
    assert "<table>" in reserved._repr_html_()
    measured = partlabel.evaluate(run, scene / "labels.csv", scene / "images", split="test")
    assert 0 <= measured["mAP"] <= 1
    with pytest.warns(match="no present label is filled in"):
        done = partlabel.complete(run, min_precision=0.99)
    assert str(done) == done.headline()
    paths = done.save(tmp_path / "done.csv")
    names = [
        "done.csv",
        "done.guarantees.csv",
        "done.suspects.csv",
        "done.doubtful.csv",
        "done.origins.csv",
    ]
    assert [path.name for path in paths if path.is_file()] == names
    assert partlabel.report(run, truth=scene / "labels.csv") == run.folder / "report.html"
    assert partlabel.load(run.folder).classes == run.record.classes
    assert "bce, 5 classes, epoch" in repr(run)
    with pytest.raises(InputError, match="--own-thresholds excludes --threshold"):
        partlabel.evaluate(run, reserved=True, threshold=0.3, own_thresholds=True)


@pytest.mark.parametrize(
    ("part", "value"), [("best", 1), ("broken", None), ("model", {}), ("method", {"other": 1})]
)
def test_a_checkpoint_that_does_not_fit_is_named(
    part: str, value: Any, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is right, as if it was of another training."""
    call: dict[str, Any] = {**MethodConformance.tiny, "method": "bce", "epochs": 2}
    out = tmp_path / "run"

    def stop(self: trainer.Trainer, *rest: Any) -> None:
        self._save(force=True)
        raise OSError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_end_epoch", stop)
        with pytest.raises(OSError, match="stopped"):
            train(scene / "partial.csv", scene / "images", out, **call)
    state = load_state(out / "last.safetensors")
    save_state(out / "last.safetensors", state | {part: value})
    with pytest.raises(FileError, match=r"last\.safetensors: does not fit the training"):
        train(scene / "partial.csv", scene / "images", out, resume=True, **call)


def test_no_readable_training_image_is_an_error(scene: Path, tmp_path: Path) -> None:
    """Nothing would be learned, so there is no run that looks finished."""
    shutil.copytree(scene / "images", tmp_path / "images")
    labels = read_labels(scene / "partial.csv")
    for name in labels.split("train").ids:
        (tmp_path / "images" / name).write_bytes(b"broken")
    for frozen in ("nothing", "all"):
        with (
            pytest.warns(PartlabelWarning, match="left out"),
            pytest.raises(JobError, match="no training image could be read"),
        ):
            train(labels, tmp_path / "images", tmp_path / frozen, **TINY | {"frozen": frozen})
        assert not Run(tmp_path / frozen).finished


def test_two_images_of_one_file_are_refused(scene: Path, tmp_path: Path) -> None:
    """One of them could be trained on and the other one tested on."""
    table = read_labels(scene / "partial.csv")
    name = next(iter(table.ids))
    again = LabelTable([name.removesuffix(".png")], table.classes, np.ones((1, len(table.classes))))
    both = table.merge(again.with_splits([table.splits[0]]) if table.splits is not None else again)
    with pytest.raises(FileError, match="1 file with more than one image"):
        train(both, scene / "images", tmp_path / "run", **TINY)


def test_images_that_were_trained_on_are_noticed_by_their_files(run: Run, scene: Path) -> None:
    names = list(run.selection.training.ids)[:4]
    other = LabelTable([name.removesuffix(".png") for name in names], run.record.classes,
                       np.ones((4, len(run.record.classes)), dtype=np.int8))  # fmt: skip
    assert trained_on(run, other, scene / "images") == 0  # copies in another folder
    assert trained_on(run, other, run.images) == 4
