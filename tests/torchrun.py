"""Start several processes as ``torchrun`` does."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def environment(**variables: str) -> dict[str, str]:
    """The environment of processes that run tests and the code of this repository."""
    paths = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **variables}


def launch(
    processes: int, words: list[str], *, restarts: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Start processes, and wait for their end."""
    options = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    return subprocess.run(
        [*TORCHRUN, "--standalone", *options, *words],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=600,
    )
