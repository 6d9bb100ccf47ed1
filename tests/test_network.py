"""Two computers, as network namespaces: they train together, and a cut network ends in an error."""

import json
import os
import shutil
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


def start(computer: str, address: str, folder: Path) -> subprocess.Popen[str]:
    options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=cut"]
    options += [f"--rdzv-endpoint={ADDRESSES[0]}:29411", f"--local-addr={address}"]
    script = [str(TESTS / "process_faults.py"), "cut-off", str(folder)]
    variables = environment(
        PARTLABEL_TIMEOUT="5", PARTLABEL_LOGS=str(folder / "logs"), GLOO_SOCKET_IFNAME=computer
    )
    words = ["ip", "netns", "exec", computer, *TORCHRUN, *options, *script]
    return subprocess.Popen(
        words, env=variables, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(paths: list[Path], agents: list[subprocess.Popen[str]], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        assert time.monotonic() < until, f"{paths} are missing"
        assert all(agent.poll() is None for agent in agents), [
            agent.communicate()[1] for agent in agents if agent.poll() is not None
        ]
        time.sleep(0.1)


def test_a_cut_network_ends_in_an_error(computers: list[str], tmp_path: Path) -> None:
    process_faults.write_data(tmp_path)
    agents = [
        start(computer, address, tmp_path)
        for computer, address in zip(computers, ADDRESSES, strict=True)
    ]
    try:
        wait_for([tmp_path / f"ready{rank}" for rank in range(2)], agents, 300)
        assert json.loads((tmp_path / "whole" / "run.json").read_text())["finished"]
        ip("-n", computers[0], "link", "set", computers[0], "down")
        (tmp_path / "is-cut").touch()
        cut_at = time.monotonic()
        ends = [tmp_path / f"end{rank}.json" for rank in range(2)]
        while not all(path.exists() for path in ends):
            assert time.monotonic() < cut_at + 90, "the processes hang"
            time.sleep(0.1)
        for path in ends:
            assert json.loads(path.read_text())["code"] == 1
    finally:
        for agent in agents:
            with suppress(ProcessLookupError):
                os.killpg(agent.pid, 9)
        messages = [agent.communicate()[1] for agent in agents]
    logs = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    said = logs + "".join(messages)
    assert said.count("error: no answer within 5 seconds") == 2, said
