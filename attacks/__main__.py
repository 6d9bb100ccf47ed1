"""Run campaigns, print every failure with the line that repeats it, and a table at the end."""

import argparse
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: trials run side by side

from attacks.harness import run_campaign, warm_up

NAMES = ("mutations", "tampering", "images", "kills", "pairs", "disk", "names")


def main() -> int:
    """Return 1 if any trial failed."""
    parser = argparse.ArgumentParser(prog="python -m attacks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="trials (default: that of the campaign)")
    parser.add_argument("--only", type=int, metavar="K", help="only trial number K")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no trial after this")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no campaign {unknown.pop()}; choices: {', '.join(NAMES)}")
    warm_up()
    lines = []
    for name in arguments.names or NAMES:
        campaign = importlib.import_module(f"attacks.{name}")
        count = arguments.count or campaign.COUNT
        numbers = range(count) if arguments.only is None else [arguments.only]
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"attack-{name}-") as folder:
            tried, failed = run_campaign(
                campaign,
                Path(folder),
                arguments.seed,
                list(numbers),
                arguments.jobs,
                arguments.minutes,
            )
        lines.append((name, tried, failed, time.monotonic() - start))
    print(f"\n{'campaign':<12}{'tried':>8}{'failed':>8}{'minutes':>9}")
    for name, tried, failed, seconds in lines:
        print(f"{name:<12}{tried:>8,}{failed:>8,}{seconds / 60:>9.1f}")
    return int(any(failed for _, _, failed, _ in lines))


sys.exit(main())
