"""What ``auto`` tried: a table of candidates, on the terminal and as ``leaderboard.csv``."""

import csv
import io
import math
import shlex
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from partlabel.base.errors import FileError, count
from partlabel.base.files import atomic_file
from partlabel.base.text_tables import text_table
from partlabel.training.settings import Settings

FILE = "leaderboard.csv"

# the settings that a command names, if they differ from the default
_NAMED = (
    "split",
    "val",
    "val_split",
    "reserve",
    "group",
    "backbone",
    "weights",
    "mirror",
    "size",
    "reduce",
    "own_classes",
    "power",
    "optimizer",
    "lr",
    "schedule",
    "epochs",
    "seed",
)


@dataclass(frozen=True)
class Line:
    """A candidate.

    Args:
        candidate: its name.
        method, head, weight_decay: what it is made of.
        criterion: the name of the figure that candidates are compared by.
        score: this figure; NaN if the candidate failed.
        folds: folds that it was compared on. Compare only lines with the same number.
        seconds: of all its trainings.
        weight: in the ensemble.
        error: why it failed.
    """

    candidate: str
    method: str
    head: str
    weight_decay: float
    criterion: str
    score: float
    folds: int
    seconds: float
    weight: float = 0.0
    error: str = ""


def ordered(lines: list[Line]) -> list[Line]:
    """Those compared on most folds first, the best of them first."""
    return sorted(lines, key=lambda line: (-line.folds, -_number(line.score)))


def _number(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def as_table(lines: list[Line]) -> tuple[list[str], list[list[str]]]:
    """Header and rows, in percent."""
    header = ["candidate", lines[0].criterion if lines else "score", "folds", "seconds", "weight"]
    rows = [
        [
            line.candidate,
            f"failed: {line.error}" if line.error else f"{100 * line.score:.2f}",
            str(line.folds),
            f"{line.seconds:.1f}",
            f"{line.weight:.2f}" if line.weight else "-",
        ]
        for line in lines
    ]
    return header, rows


def as_text(lines: list[Line]) -> str:
    """The table for a terminal: candidates that were compared on all folds, and failed ones.

    The others were printed when they were trained, and their figures are of fewer labels.
    """
    folds = max((line.folds for line in lines), default=0)
    shown = [line for line in lines if line.folds == folds or line.error]
    text = text_table(*as_table(shown))
    others = len(lines) - len(shown)
    return f"{text}\n{count(others, 'further candidate')}: {FILE} in the run" if others else text


def write_leaderboard(folder: Path, lines: list[Line]) -> None:
    """Write ``leaderboard.csv``."""
    with atomic_file(folder / FILE) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(line) for line in lines)
        text.detach()


def read_leaderboard(folder: Path) -> list[Line]:
    """Read what :func:`write_leaderboard` wrote."""
    path = folder / FILE
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return [_parse(line) for line in csv.DictReader(stream)]
    except FileNotFoundError:
        raise FileError(folder, f"{FILE} is missing; train again") from None
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise FileError(path, f"damaged ({error})") from error


def _parse(line: dict[str, str]) -> Line:
    values: dict[str, Any] = dict(line)
    for name in ("weight_decay", "score", "seconds", "weight"):
        values[name] = float(line[name])
    return Line(**{**values, "folds": int(line["folds"])})


def command_for(settings: Settings) -> str:
    """The command that trains a candidate alone."""
    words = ["partlabel train LABELS --images IMAGES --out OUT", f"--method {settings.method}"]
    words += [f"--set {name}={value}" for name, value in settings.options.items()]
    words += [f"--head {settings.head}"] if settings.head else []
    words += [f"--head-set {name}={value}" for name, value in settings.head_options.items()]
    words += ["--frozen"]
    for name in _NAMED:
        value, default = getattr(settings, name), Settings.model_fields[name].default
        is_rate_of_lbfgs = name == "lr" and settings.optimizer == "lbfgs"
        if value == default or is_rate_of_lbfgs:
            continue
        option = f"--{name.replace('_', '-')}"
        text = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(option if value is True else f"{option} {shlex.quote(text)}")
    words += [f"--weight-decay {settings.weight_decay:g}", f"--keep {settings.keep}"]
    return " ".join([*words, "--drop-empty"])
