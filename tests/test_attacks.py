"""The harness of the attacks: limits of commands do not depend on other work on the machine."""

import time

import pytest
from attacks.harness import Child, Failure, command


def spin() -> None:
    while True:
        pass


def test_a_command_that_uses_too_much_cpu_fails() -> None:
    with pytest.raises(Failure, match="not finished after 1 s of CPU"):
        command("--version", seconds=1, before=spin)


def test_a_command_that_waits_longer_than_its_limit_does_not_fail() -> None:
    outcome = command("--version", seconds=1, before=lambda: time.sleep(1.5))
    outcome.check((0,))
    assert outcome.cpu < 1


def test_a_command_that_hangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attacks.harness.PATIENCE", 0.2)
    with pytest.raises(Failure, match=r"not finished after 0 s$"):
        command("--version", before=lambda: time.sleep(60))


def test_only_a_process_that_was_running_counts_as_killed() -> None:
    running, ended = Child(["--version"], before=spin), Child(["--version"])
    assert running.kill_after(0.05)
    assert running.wait().code == -9
    assert not ended.kill_after(1e9)
    assert ended.wait().code == 0
