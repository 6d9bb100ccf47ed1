"""Several processes: the same result as one, faults that are survived, errors that are clear."""

import json
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import process_cases
import process_faults
from partlabel import LabelTable, train, write_labels
from partlabel.base.errors import PartlabelWarning
from partlabel.base.process_meeting import agree_on_name, connect
from partlabel.base.process_words import Words
from partlabel.cli import main
from partlabel.training.checkpoint import load_state, same
from partlabel.training.run import Run
from partlabel.training.sharing import treats_images_alone
from torchrun import TESTS, environment, launch

FEW = ["bce", "lac", "role", "imcl", "em-apl by lbfgs", "dropout", "end to end, two views"]


# ---- the same result


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """Results of one process, by case, as they are asked for."""
    return {}


@pytest.mark.parametrize(("processes", "names"), [(2, list(process_cases.CASES)), (3, FEW)])
@pytest.mark.filterwarnings(f"ignore::{PartlabelWarning.__module__}.PartlabelWarning")
def test_several_processes_train_as_one(
    processes: int, names: list[str], alone: dict[str, Any], tmp_path: Path
) -> None:
    """In double precision, so that rounding cannot change a decision."""
    cases = [*names, process_cases.STATISTICS]
    ended = launch(processes, [str(TESTS / "process_cases.py"), str(tmp_path), *cases])
    assert ended.returncode == 0, ended.stderr
    for name in names:
        if name not in alone:
            alone[name] = process_cases.train_case(name)
        result = load_state(tmp_path / f"{name}.safetensors")
        assert_close(name, alone[name], result)
    unequal = load_state(tmp_path / f"{process_cases.STATISTICS}.safetensors")
    assert all(bool(weight.isfinite().all()) for weight in unequal["weights"].values())
    assert unequal["figures"][-1]["loss"] < unequal["figures"][0]["loss"]
    for number, name in enumerate(process_cases.TURNS):
        expected = process_cases.train_case(name)["weights"]
        assert same(load_state(tmp_path / f"turn {number}.safetensors")["weights"], expected)


def assert_close(name: str, one: dict[str, Any], several: dict[str, Any]) -> None:
    assert one["weights"].keys() == several["weights"].keys()
    for weight, expected in one["weights"].items():
        torch.testing.assert_close(
            several["weights"][weight], expected, rtol=1e-9, atol=1e-9, msg=f"{name}: {weight}"
        )
    assert len(one["figures"]) == len(several["figures"]), name
    for line, expected_line in zip(several["figures"], one["figures"], strict=True):
        assert line == pytest.approx(expected_line, rel=1e-8, abs=1e-9, nan_ok=True), name


def test_only_heads_without_dropout_run_on_shares() -> None:
    layers = [torch.nn.Linear(2, 2), torch.nn.Dropout(0.5)]
    assert treats_images_alone(layers[0])
    assert not treats_images_alone(torch.nn.Sequential(*layers))
    assert treats_images_alone(torch.nn.Sequential(*layers).eval())
    assert not treats_images_alone(torch.nn.TransformerEncoderLayer(4, 2, 4, dropout=0.1))


# ---- the same files


_SPEC = """
labels: split.csv
features: x.npz
split: train
test_split: test
seeds: [0, 1]
strategies: [{strategy: partial, proportions: [0.5]}]
settings: {epochs: 2}
methods: [{name: bce, method: bce}, {name: an, method: an}]
"""


@pytest.mark.filterwarnings(f"ignore::{PartlabelWarning.__module__}.PartlabelWarning")
def test_commands_write_what_they_write_in_one_process(scene: Path, tmp_path: Path) -> None:
    """Also of fewer images than there are processes."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 4)).astype(np.float32)
    truth = np.where(vectors + 0.5 * rng.normal(size=vectors.shape) > 0, 1, -1)
    truth[rng.random(truth.shape) < 0.4] = 0
    names = [f"i{row}" for row in range(300)]
    np.savez(tmp_path / "x.npz", ids=names, vectors=vectors)
    splits = ["train"] * 240 + ["test"] * 60
    write_labels(LabelTable(names, list("abcd"), truth), tmp_path / "labels.csv")
    write_labels(LabelTable(names, list("abcd"), truth, splits), tmp_path / "split.csv")
    (tmp_path / "spec.yaml").write_text(_SPEC)
    tiny: dict[str, Any] = {"backbone": "test_efficientnet", "weights": "none", "size": 64}
    run = train(
        scene / "partial.csv", scene / "images", tmp_path / "run", method="bce", epochs=1, **tiny
    )
    images, (first, *_) = scene / "images", sorted((scene / "images").iterdir())
    folders = [tmp_path / name for name in ("one", "two")]
    calls = []
    for out in folders:
        out.mkdir()
        given, cached = ["--features", f"{tmp_path}/x.npz"], ["--cache", f"{out}/cache"]
        labels, auto = f"{tmp_path}/labels.csv", ["--budget", "4", "--folds", "2"]
        options = [word for name, value in tiny.items() for word in (f"--{name}", str(value))]
        calls.append(
            [
                ["train", labels, *given, *auto, "--reserve", "0.3", "--out", f"{out}/run"],
                ["complete", f"{out}/run", "--min-precision", "0.7", "-o", f"{out}/done.csv"],
                ["evaluate", f"{out}/run", labels, *given, "--json", f"{out}/figures.json"],
                ["predict", f"{out}/run", *given, "-o", f"{out}/vectors.csv"],
                ["predict", str(run.folder), str(images), "-o", f"{out}/all.csv", *cached],
                ["predict", str(run.folder), str(first), "-o", f"{out}/first.csv", *cached],
                ["embed", str(images), "-o", f"{out}/x.npz", *options, *cached],
                ["bench", f"{tmp_path}/spec.yaml", "-o", f"{out}/compared", *cached],
            ]
        )
    for words in calls[0]:
        assert main(words) == 0, words
    ended = launch(2, [str(TESTS / "process_commands.py"), json.dumps(calls[1])])
    assert ended.returncode == 0, ended.stderr
    assert any(line.endswith("model") for line in (folders[0] / "done.csv").read_text().split())
    written = [{path.name for path in out.iterdir() if path.is_file()} for out in folders]
    assert written[0] == written[1]
    for name in written[0] - {"x.npz"}:
        texts = [words_and_numbers(out / name) for out in folders]
        assert texts[0][0] == texts[1][0], name
        assert texts[0][1] == pytest.approx(texts[1][1], rel=1e-4, abs=1e-5), name
    for name in ("results.csv", "table.md"):  # trainings that several processes share out
        texts = [words_and_numbers(out / "compared" / name) for out in folders]
        assert texts[0] == texts[1]
    one, two = (np.load(out / "x.npz") for out in folders)
    assert one.files == two.files
    for part in one.files:
        if one[part].dtype.kind == "f":
            np.testing.assert_allclose(one[part], two[part], rtol=1e-4, atol=1e-5)
        else:
            assert np.array_equal(one[part], two[part])
    members = [[member.name for member in Run(out / "run").record.members] for out in folders]
    assert members[0] == members[1]


def words_and_numbers(path: Path) -> tuple[list[str], list[float]]:
    """What a text file says, and the numbers in it, each in its order."""
    number = r"(?<![\w.-])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])"
    text = path.read_text()
    return re.split(number, text), [float(found) for found in re.findall(number, text)]


# ---- faults


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    process_faults.write_data(folder)
    return folder


@pytest.mark.exact
@pytest.mark.filterwarnings(f"ignore::{PartlabelWarning.__module__}.PartlabelWarning")
def test_a_killed_process_is_started_again(data: Path) -> None:
    """The same bits as without the kill; going on with one process gives the same to rounding."""
    ended = launch(2, [str(TESTS / "process_faults.py"), "killed", str(data)], restarts=1)
    assert ended.returncode == 0, ended.stderr
    assert "exitcode: -9" in ended.stderr, "the process was not killed"
    whole, cut = (load_state(data / name / "best.safetensors") for name in ("whole", "cut"))
    assert same(whole, cut)
    state = load_state(data / "half" / "last.safetensors")
    assert 0 < state["progress"]["total_steps"] < process_faults.STEP + 1
    source: dict[str, Any] = {
        "labels": data / "labels.csv",
        "features": data / "features.npz",
    }
    half = train(out=data / "half", resume=True, **source, **process_faults.METHOD)
    continued = load_state(half.folder / "best.safetensors")
    for name, expected in whole.items():
        torch.testing.assert_close(continued[name], expected, rtol=1e-4, atol=1e-5)


def test_processes_that_were_started_again_do_not_trust_what_earlier_ones_stored() -> None:
    """Entries of all processes of an earlier meeting are there, and the first one comes last."""
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]

    def meet(rank: int, delay: float = 0.0) -> str:
        time.sleep(delay)
        return agree_on_name(store, rank, 3, 20)

    names = set()
    for delays in ((0, 0, 0), (0.2, 0, 0), (0, 0.2, 0.1), (0.1, 0, 0.2)):
        with ThreadPoolExecutor(3) as threads:
            agreed = set(threads.map(meet, range(3), delays))
        assert len(agreed) == 1
        names |= agreed
    assert len(names) == 4, "a meeting took the name of an earlier one"
    with pytest.raises(TimeoutError, match="not all processes came"):
        agree_on_name(store, 0, 3, 0.3)


def test_the_first_process_has_the_store_if_torchrun_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    own, other = connect(5, hosts=True), connect(5)
    own.set("a", "1")
    assert other.get("a") == b"1"


def test_a_hanging_process_is_given_up(data: Path) -> None:
    script = [str(TESTS / "process_faults.py"), "hanging", str(data)]
    ended = launch(2, script, PARTLABEL_TIMEOUT="4", PARTLABEL_LOGS=str(data / "logs"))
    assert ended.returncode == 1
    assert "no answer within 4 seconds (PARTLABEL_TIMEOUT) from process 1 on" in ended.stderr
    outcome = json.loads((data / "end0.json").read_text())
    assert outcome["code"] == 1
    assert outcome["seconds"] < 60
    (log,) = (data / "logs").iterdir()
    assert log.name.endswith("process1.log")
    assert "training on" in log.read_text()
    assert ended.stderr.count("training on") == 1, "others must not print"


def test_bad_input_is_refused_by_all(data: Path) -> None:
    script = [str(TESTS / "process_faults.py"), "refused", str(data)]
    ended = launch(2, script, PARTLABEL_LOGS=str(data / "logs"))
    messages = json.loads((data / "messages.json").read_text())
    host = socket.gethostname()
    assert f"process 1 on {host} has labels " in messages["labels"]
    assert f"process 0 on {host} has labels " in messages["labels"]
    assert "process 1" in messages["settings"]
    assert "--seed 0" in messages["settings"]
    assert "2 processes for 1 training image: start fewer" in messages["few"]
    assert "partlabel 1.1" in messages["versions"]
    assert "process 1 does not see the features that process 0 stores here" in messages["cache"]
    assert f"error: process 1 on {host}: " in ended.stderr
    assert "not-mounted: there is no such image or folder" in ended.stderr
    outcome = json.loads((data / "end0.json").read_text())
    assert outcome["code"] == 2
    assert outcome["seconds"] < 60


def test_world_size_without_torchrun(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    words = ["train", str(scene / "partial.csv"), "--images", str(scene), "--out", str(tmp_path)]
    assert main(words) == 2
    message = capsys.readouterr().err
    assert "WORLD_SIZE is 2, but torchrun did not start this process" in message
    assert "unset WORLD_SIZE" in message


def test_a_wrong_timeout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from partlabel.base.errors import InputError
    from partlabel.base.launch import timeout

    assert timeout() == 600
    monkeypatch.setenv("PARTLABEL_TIMEOUT", "soon")
    with pytest.raises(InputError, match="PARTLABEL_TIMEOUT is 'soon'"):
        timeout()


# ---- messages beside the work


def two_words() -> tuple[Words, Words]:
    """What two processes tell each other, here in one."""
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    return Words(store, 0, 2, "here"), Words(store, 1, 2, "there")


def test_a_meeting_takes_place_when_all_are_there() -> None:
    first, second = two_words()
    with ThreadPoolExecutor() as threads:
        meetings = [threads.submit(words.wait_for_all, 60) for words in (first, second)]
        assert all(meeting.result() for meeting in meetings)


def test_a_meeting_ends_when_a_process_fails_or_has_no_heartbeat() -> None:
    first, second = two_words()
    with pytest.raises(TimeoutError, match="process 0 has no heartbeat"):  # neither has
        first.wait_for_all(0.5)
    second.say(2, "no such folder")
    assert not first.wait_for_all(60)
    assert first.of_others(timed_out=False) == {1: (2, "no such folder")}
    assert second.of_others(timed_out=False, patience=0.1) == {}


def test_who_gave_up_waiting_is_not_the_one_that_is_silent() -> None:
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    first, second = (Words(store, rank, 3, "here") for rank in range(2))
    second.of_others(timed_out=True, patience=0.1)
    first.of_others(timed_out=True, patience=0.1)
    assert first.silent() == [2]


def test_a_heartbeat_does_not_abort_a_process_that_ends() -> None:
    """Python ends threads that are in C++ just then, and with them the process."""
    script = """
import os, socket, time
with socket.socket() as free:
    free.bind(("localhost", 0))
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
from partlabel.base import process_meeting, process_words
process_words._BEAT = 0
store = process_meeting.connect(5, hosts=True)
words = [process_words.Words.open(str(number), 0, 1) for number in range(16)]
time.sleep(0.2)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_tasks_are_taken_once() -> None:
    first, second = two_words()
    assert (first.new_queue(), second.new_queue()) == (1, 1)
    assert [first.next_number(1), second.next_number(1), first.next_number(1)] == [0, 1, 2]
    assert first.next_number(first.new_queue()) == 0
