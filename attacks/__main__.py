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
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        metavar="K",
        help="trial to start with",
    )
    parser.add_argument("--only", type=int, metavar="K", help="only trial number K")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no trial after this")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no campaign {unknown.pop()}; choices: {', '.join(NAMES)}")
    warm_up()
    rows = [("campaign", "tried", "", "failed", "minutes")]
    for name in arguments.names or NAMES:
        campaign = importlib.import_module(f"attacks.{name}")
        count = arguments.count or campaign.COUNT
        numbers = list(range(arguments.first, arguments.first + count))
        numbers = numbers if arguments.only is None else [arguments.only]
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"attack-{name}-") as folder:
            tried, failed = run_campaign(
                campaign,
                Path(folder),
                arguments.seed,
                numbers,
                arguments.jobs,
                arguments.minutes,
            )
        minutes = (time.monotonic() - start) / 60
        print(f"{name}: {tried:,} {campaign.ATTACKS}, {failed:,} failed, {minutes:.1f} minutes")
        rows.append((name, f"{tried:,}", campaign.ATTACKS, f"{failed:,}", f"{minutes:.1f}"))
    print(f"\nseed {arguments.seed}, {arguments.jobs} at a time")
    for row in rows:
        print("{:<12}{:>8} {:<14}{:>8}{:>9}".format(*row))
    return int(any(row[3] != "0" for row in rows[1:]))


sys.exit(main())
