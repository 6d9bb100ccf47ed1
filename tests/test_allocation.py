import subprocess
import sys

import pytest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_is_used_again_without_new_pages() -> None:
    """Page faults of writing 64 MB ten times, in a process of its own."""
    code = """
import resource, sys
import numpy as np
from partlabel.allocation import keep_freed_memory
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
