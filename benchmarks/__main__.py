"""Run the benchmarks, each in its own process, so that peaks of memory stay separate."""

import importlib
import subprocess
import sys

from benchmarks.report import machine

NAMES = (
    "labels",
    "open_images",
    "metrics",
    "scenes",
    "trainer",
    "startup",
    "relabel",
    "graph",
    "saliency",
    "lac",
    "similarity",
    "extraction",
    "several_processes",
    "families",
    "review_speed",
    "scale",
)

if len(sys.argv) == 2 and sys.argv[1] in NAMES:
    importlib.import_module(f"benchmarks.{sys.argv[1]}").run()
else:
    print(machine(), flush=True)
    for name in sys.argv[1:] or NAMES:
        subprocess.run([sys.executable, "-m", "benchmarks", name], check=True)
