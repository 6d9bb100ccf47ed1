"""Trials in worker processes, and commands in forked children with limits.

Limits of time are seconds of CPU, so that other work on the machine causes no failure. A process
that hangs without using CPU is ended after a much longer time by the clock.
"""

import contextlib
import fcntl
import importlib
import json
import mmap
import os
import resource
import select
import shutil
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

MEMORY = 6 << 30  # bytes of address space that a command may have
SECONDS = 60  # of CPU that a command may use
PATIENCE = 1_800.0  # seconds by the clock after which a command hangs
HANG = 7_200.0  # seconds by the clock after which a trial hangs
SAY_EVERY = 300.0  # seconds between lines about progress, if the output is no terminal
TRIALS = 1_000  # that a worker makes; a new process has its address space for itself
CRASHED = 70  # exit code of a child that ended with an exception
TINY = ["--backbone", "test_efficientnet", "--weights", "none", "--size", "64", "--batch", "8"]


class Failure(Exception):  # noqa: N818  # an outcome of a trial, not an error of the campaign
    """A trial that ended in a way that it must not."""


class Campaign(Protocol):
    """What a module of a campaign has."""

    __name__: str
    COUNT: int
    """Trials of ``make attack``."""
    ATTACKS: str
    """What is counted, in the plural."""
    LIMIT: int
    """Seconds of CPU that a trial may use, without those of its commands."""

    def prepare(self, folder: Path) -> Any:
        """Make what all trials share, once."""

    def attack(self, shared: Any, folder: Path, rng: Random) -> int | None:
        """Make one trial in an empty folder; return the number of attacks if it is not one."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    words: tuple[str, ...]
    code: int  # negative: the signal that ended it
    output: str
    cpu: float  # seconds of CPU that it has used

    def check(self, codes: tuple[int, ...], *names: str) -> None:
        """Raise unless the code is one of these, and a message of an error has one of the names."""
        call = " ".join(self.words)
        last = next((line for line in reversed(self.output.splitlines()) if line.strip()), "")
        if self.code not in codes or "Traceback (most recent call last)" in self.output:
            raise Failure(f"partlabel {call}: exit code {self.code}, {last[:300]}")
        if self.code and names and not any(name in self.output for name in names):
            raise Failure(f"partlabel {call}: the message names no file: {self.output[-300:]!r}")


class Child:
    """A forked process that runs a command; its output goes through a pipe."""

    def __init__(
        self,
        words: list[str],
        *,
        seconds: int = SECONDS,
        memory: int = MEMORY,
        before: Callable[[], None] | None = None,
        file_size: int | None = None,
    ) -> None:
        self.words, self.seconds = tuple(words), seconds
        self._read = b""
        self._output, end = os.pipe()
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1 << 20)  # nobody reads until it is waited for
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            _be_the_command(words, end, seconds, memory, before, file_size)
        os.close(end)

    def running(self) -> bool:
        """Whether it has not ended; it is not reaped."""
        return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def kill(self) -> None:
        """End it without warning."""
        os.kill(self.process, signal.SIGKILL)

    def kill_after(self, cpu: float) -> bool:
        """End it when it has used so many seconds of CPU; False if it ended before."""
        clock = ~self.process << 3 | 2  # as clock_getcpuclockid makes it on Linux
        while self.running():
            if time.clock_gettime(clock) >= cpu:
                self.kill()
                return self.wait_for_end() == -signal.SIGKILL
            time.sleep(0.0005)
        return False

    def wait_for_end(self) -> int:
        """The exit code; it is not reaped."""
        end = os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOWAIT)
        assert end is not None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def read_until(self, mark: bytes) -> str:
        """What it has written, once that has a mark; it may go on."""
        limit = time.monotonic() + PATIENCE
        while mark not in self._read and time.monotonic() < limit:
            if select.select([self._output], [], [], 0.1)[0]:
                data = os.read(self._output, 1 << 16)
                self._read += data
                if not data:
                    break
        return self._read.decode(errors="surrogateescape")

    def wait(self) -> Outcome:
        """Wait until it ends, and kill it if it hangs."""
        limit, output = time.monotonic() + PATIENCE, self._read
        late = False
        while self.running() or select.select([self._output], [], [], 0)[0]:
            late = late or (self.running() and time.monotonic() > limit)
            if late:
                self.kill()
            if select.select([self._output], [], [], 0.005)[0]:
                data = os.read(self._output, 1 << 16)
                output += data
                if not data:
                    break
        _, status, usage = os.wait4(self.process, 0)
        code = os.waitstatus_to_exitcode(status)
        os.close(self._output)
        call = f"partlabel {' '.join(self.words)}"
        if late:
            raise Failure(f"{call}: not finished after {PATIENCE:.0f} s")
        if code == -signal.SIGXCPU:
            raise Failure(f"{call}: not finished after {self.seconds} s of CPU")
        text = output.decode(errors="surrogateescape")
        return Outcome(self.words, code, text, usage.ru_utime + usage.ru_stime)


def command(*words: str | Path, **limits: Any) -> Outcome:
    """Run a command in a forked child."""
    return Child([os.fspath(word) for word in words], **limits).wait()


def _be_the_command(
    words: list[str],
    output: int,
    seconds: int,
    memory: int,
    before: Callable[[], None] | None,
    file_size: int | None,
) -> None:
    """Never return."""
    code = CRASHED
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)  # the parent's may be a file, with positions
        sys.stderr = os.fdopen(2, "w", closefd=False)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if file_size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        if before is not None:
            before()
        from partlabel.cli import run

        sys.argv = ["partlabel", *words]
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def warm_up() -> None:
    """Import once what the children need; train nothing, since threads do not survive a fork."""
    for name in (
        "torch",
        "partlabel.base.torchvision_shim",
        "timm",
        "partlabel.judging.labelling",
        "partlabel.judging.measuring",
        "partlabel.output.products",
        "partlabel.cli",
        "partlabel.judging.completion",
        "partlabel.judging.suggestion",
        "partlabel.output.report",
        "partlabel.output.export",
        "partlabel.output.display",
        "partlabel.output.review.web",
        "onnxscript",
        "uvicorn",
        "matplotlib.pyplot",
    ):
        importlib.import_module(name)


def make_scene(folder: Path) -> Path:
    """Forty images of 64 pixels; ``partial.csv`` has 60% of the training labels of five classes."""
    from partlabel.labels import formats, scenes, simulate

    full = scenes.write(folder / "scene", 40, scenes.World(5, 64, 0), test=0.25)
    partial = simulate.hide(full, "partial", 0.6, seed=0, split="train", holdout=0.2)
    formats.write_labels(partial, folder / "scene" / "partial.csv")
    return folder / "scene"


def training(scene: Path, out: Path, *more: str) -> list[str]:
    """The words of a training that takes a second."""
    words = ["train", str(scene / "partial.csv"), "--images", str(scene / "images")]
    return [*words, *TINY, "--out", str(out), *more]


def run_campaign(
    campaign: Campaign, folder: Path, seed: int, numbers: list[int], jobs: int, minutes: float
) -> tuple[int, int]:
    """Run trials; return how many attacks were tried and how many trials failed."""
    name = campaign.__name__.rpartition(".")[2]
    os.environ["PARTLABEL_CACHE"] = str(folder / "cache")
    (folder / "shared").mkdir()
    shared = campaign.prepare(folder / "shared")
    waiting = [numbers[i::jobs] for i in range(jobs)]
    until = time.monotonic() + minutes * 60
    workers = [_Worker(campaign, shared, folder / f"w{i}", seed, until) for i in range(jobs)]
    tried, failed, said = 0, 0, time.monotonic()
    for worker, trials in zip(workers, waiting, strict=True):
        worker.go_on(trials)
    while any(worker.alive for worker in workers):
        pipes = {worker.pipe: worker for worker in workers if worker.alive}
        ready, _, _ = select.select(list(pipes), [], [], 0.5)
        results = [result for pipe in ready for result in pipes[pipe].results()]
        results += [result for worker in workers for result in worker.overdue()]
        for number, attacks, message in results:
            tried += attacks
            if message:
                failed += 1
                print(f"FAILED python -m attacks {name} --seed {seed} --only {number}: {message}")
        if results and sys.stderr.isatty():
            print(f"\r{name}: {tried:,} tried, {failed:,} failed ", end="", file=sys.stderr)
        elif time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            print(f"{time.strftime('%H:%M')} {name}: {tried:,} tried so far, {failed:,} failed")
        sys.stdout.flush()
    return tried, failed


Result = tuple[int, int, str]  # the number of the trial, attacks in it, why it failed


class _Worker:
    """A process that makes one trial after another; a crash costs one trial, not the campaign."""

    def __init__(
        self, campaign: Campaign, shared: Any, folder: Path, seed: int, until: float
    ) -> None:
        self.campaign, self.shared, self.folder, self.seed = campaign, shared, folder, seed
        self.until = until  # no trial starts later
        self.state = mmap.mmap(-1, 16)  # number of the trial, and when it started
        self.alive = False

    def go_on(self, numbers: list[int]) -> None:
        """Start a process for these trials."""
        self.numbers = list(numbers)
        if not numbers:
            return
        self.pipe, end = os.pipe()
        self._tell(numbers[0])
        sys.stdout.flush()
        self.process, self.alive, self.rest = os.fork(), True, b""
        if self.process == 0:
            os.setsid()
            os.close(self.pipe)
            _limit(resource.RLIMIT_AS, MEMORY)
            with os.fdopen(end, "w") as stream:
                for number in numbers[:TRIALS]:
                    if time.monotonic() > self.until:
                        break
                    self._tell(number)
                    print(json.dumps(self._try(number)), file=stream, flush=True)
            os._exit(0)
        os.close(end)

    def _tell(self, number: int) -> None:
        self.state[:] = struct.pack("qd", number, time.monotonic())

    def _try(self, number: int) -> Result:
        name = self.campaign.__name__.rpartition(".")[2]
        attacks, message = 1, ""
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + self.campaign.LIMIT)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        try:
            rng = Random(f"{name} {self.seed} {number}")
            number_of_attacks = self.campaign.attack(self.shared, self.folder, rng)
            attacks = 1 if number_of_attacks is None else number_of_attacks
        except Failure as failure:
            message = str(failure)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            message = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
        return number, attacks, " ".join(message.replace(str(self.folder), "TRIAL").split())

    def results(self) -> list[Result]:
        """Results that have arrived; after a crash, the trial that caused it."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self.rest = (self.rest + data).split(b"\n")
        results: list[Result] = [json.loads(line) for line in lines]
        for number, _, _ in results:
            self.numbers.remove(number)
        if not data:
            results += self._end("the process of the trial ended")
        return results

    def overdue(self) -> list[Result]:
        """Stop a trial that hangs."""
        _, start = struct.unpack("qd", self.state[:])
        if not self.alive or time.monotonic() - start < HANG:
            return []
        os.killpg(self.process, signal.SIGKILL)
        return self._end(f"not finished after {HANG:.0f} s")

    def _end(self, reason: str) -> list[Result]:
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        os.close(self.pipe)
        self.alive = False
        if code == 0 and self.numbers and time.monotonic() <= self.until:
            self.go_on(self.numbers)
        if not self.numbers or code == 0:
            return []
        number, _ = struct.unpack("qd", self.state[:])
        self.numbers.remove(number)
        self.go_on(self.numbers)
        if code == -signal.SIGXCPU:
            reason = f"not finished after {self.campaign.LIMIT} s of CPU"
        return [(number, 1, f"{reason} (code {code})")]


def _limit(resource_: int, value: int) -> None:
    """Set the limit of this process; it can be raised again, also by its children."""
    resource.setrlimit(resource_, (value, resource.RLIM_INFINITY))
