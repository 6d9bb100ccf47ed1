"""Generating 5,000 pictures of 64 x 64 on one core."""

import tempfile
import time
from pathlib import Path

from benchmarks.report import tell
from partlabel.labels import scenes


def run() -> None:
    """Processor time, drawn and written."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        scenes.write(Path(folder) / "s", 5_000, scenes.World(20, 64, 0))
        seconds = time.process_time() - start
    tell(
        "scenes: 5,000 pictures of 64 x 64, drawn and written",
        f"{seconds:.1f} s",
        "< 20 s",
        seconds < 20,
    )
