"""Two computers, as network namespaces: they train together, and a cut network ends in an error."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import process_faults
from torchrun import TESTS, TORCHRUN, environment

ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def computers() -> Iterator[list[str]]:
    """The names of two namespaces that a virtual cable joins."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    names = [f"pl{os.getpid()}{side}" for side in "ab"]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
            for name, address in zip(names, ADDRESSES, strict=True):
                ip("link", "set", name, "netns", name)
                ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
                ip("-n", name, "link", "set", name, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode()}")
        yield names
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


def start(computer: str, address: str, folder: Path) -> subprocess.Popen[bytes]:
    options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=cut"]
    options += [f"--rdzv-endpoint={ADDRESSES[0]}:29411", f"--local-addr={address}"]
    options.append(f"--rdzv-conf=is_host={str(address == ADDRESSES[0]).lower()}")
    script = [str(TESTS / "process_faults.py"), "cut-off", str(folder)]
    variables = environment(
        PARTLABEL_TIMEOUT="5", PARTLABEL_LOGS=str(folder / "logs"), GLOO_SOCKET_IFNAME=computer
    )
    words = ["ip", "netns", "exec", computer, *TORCHRUN, *options, *script]
    with (folder / f"{address}.err").open("w") as stream:
        return subprocess.Popen(words, env=variables, stderr=stream, start_new_session=True)


def workers_of(computers: list[str]) -> list[str]:
    """The processes in these namespaces that torchrun started."""
    found = []
    for computer in computers:
        listed = subprocess.run(["ip", "netns", "pids", computer], capture_output=True, text=True)
        for process in listed.stdout.split():
            with suppress(OSError):
                if b"-u" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[1:2]:
                    found.append(process)
    return found


def said_by(folder: Path) -> str:
    """All that the processes and those that started them said."""
    files = [*folder.glob("*.err"), *folder.glob("logs/*.log")]
    return "".join(path.read_text() for path in files)


def wait_for(paths: list[Path], seconds: float, folder: Path) -> None:
    until = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        assert time.monotonic() < until, said_by(folder)
        time.sleep(0.1)


def test_a_cut_network_ends_in_an_error(computers: list[str], tmp_path: Path) -> None:
    process_faults.write_data(tmp_path)
    agents = [
        start(computer, address, tmp_path)
        for computer, address in zip(computers, ADDRESSES, strict=True)
    ]
    try:
        wait_for([tmp_path / f"ready{rank}" for rank in range(2)], 200, tmp_path)
        assert json.loads((tmp_path / "whole" / "run.json").read_text())["finished"]
        ip("-n", computers[0], "link", "set", computers[0], "down")
        (tmp_path / "is-cut").touch()
        ends = [tmp_path / f"end{rank}.json" for rank in range(2)]
        wait_for(ends, 90, tmp_path)
        for path in ends:
            assert json.loads(path.read_text())["code"] == 1
        left = time.monotonic() + 30
        while workers_of(computers):
            assert time.monotonic() < left, "a process does not end"
            time.sleep(0.1)
    finally:
        for computer in computers:
            listed = subprocess.run(["ip", "netns", "pids", computer], capture_output=True)
            for process in listed.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
        for agent in agents:
            agent.wait()
    said = said_by(tmp_path)
    assert said.count("error: no answer within 5 seconds") == 2, said
