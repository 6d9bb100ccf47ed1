import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_is_used_again_without_new_pages() -> None:
    """Page faults of writing 64 MB ten times, in a process of its own."""
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
                [sys.executable, "-c", code, how], capture_output=True, check=True
            ).stdout
        )
        for how in ("kept", "given-back")
    ]
    assert faults[0] < faults[1] / 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_can_be_given_back() -> None:
    code = """
import numpy as np
from benchmarks.report import resident
from partlabel.base.allocation import give_back_memory, keep_freed_memory
keep_freed_memory()
blocks = [np.ones(1 << 22) for _ in range(8)]
wall = np.ones(1 << 10)  # what is allocated last must not keep what is below it
del blocks
held = resident()
give_back_memory()
print(held - resident())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert float(done.stdout) > 200
