"""Freed memory stays in the process or returns to the system, as the two functions say."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_kept_memory_is_reused_without_page_faults() -> None:
    """Counts the page faults of writing 64 MB ten times, in a new process."""
    code = """
import resource, sys
import numpy as np
from partlabel.base.allocation import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
for number in range(11):
    if number == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(1 << 24, dtype=np.float32)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = [
        int(
            subprocess.run(
                [sys.executable, "-c", code, mode], capture_output=True, check=True
            ).stdout
        )
        for mode in ("kept", "given-back")
    ]
    assert faults[0] < faults[1] / 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_kept_memory_can_be_given_back() -> None:
    code = """
import numpy as np
from benchmarks.report import resident
from partlabel.base.allocation import give_back_memory, keep_freed_memory
keep_freed_memory()
blocks = [np.ones(1 << 22) for _ in range(8)]
last = np.ones(1 << 10)  # a later allocation must not keep the freed blocks from going back
del blocks
held = resident()
give_back_memory()
print(held - resident())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert float(done.stdout) > 200
