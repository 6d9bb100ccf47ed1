"""Time to generate 5,000 images of 64 x 64 on one core."""

import tempfile
import time
from pathlib import Path

from benchmarks.report import print_result
from partlabel.labels import scenes


def run() -> None:
    """Processor time to draw and write the images."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        scenes.write(Path(folder) / "s", 5_000, scenes.World(20, 64, 0))
        seconds = time.process_time() - start
    print_result(
        "draw and write 5,000 scenes of 64 x 64",
        f"{seconds:.1f} s",
        "< 20 s",
        seconds < 20,
    )
