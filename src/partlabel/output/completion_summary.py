"""A completion for people: what is filled in, what that rests on, which labels look wrong."""

from collections.abc import Iterator
from pathlib import Path

from scipy.special import expit

from partlabel.base.terminal import console, say
from partlabel.judging.completion import Completion
from partlabel.labels import ABSENT, PRESENT
from partlabel.labels.formats.delimited import write_delimited
from partlabel.metrics.guarantee import Basis
from partlabel.output.display import grid

_WORDS = {PRESENT: "present", ABSENT: "absent"}
_DIGITS = {PRESENT: 1, ABSENT: 0}  # as label files have them


def show(done: Completion) -> None:
    """Print how much was filled in, and what that rests on."""
    total = {value: int(numbers.sum()) for value, numbers in done.filled.items()}
    line = f"filled in {sum(total.values()):,} of {done.unknown:,} unknown labels"
    if not any(total.values()):
        say(line)
        return
    say(f"{line} ({done.share:.1%}): {total[PRESENT]:,} present, {total[ABSENT]:,} absent. Labels "
        f"like these are right {100 * done.precision:g}% of the time or more (with a confidence of "
        "95%, for each line below)")  # fmt: skip
    rows = []
    for value, basis, classes in groups(done):
        limits = [done.assessment.promises.of(value)[j].limit for j in classes]
        limits = limits[:1] if basis == "pooled" else limits
        right, tested = sum(limit.right for limit in limits), sum(limit.tested for limit in limits)
        rests = "each class" if basis == "class" else "all of them together"
        filled = int(done.filled[value][classes].sum())
        rows.append(
            [_WORDS[value], rests, f"{len(classes):,}", f"{filled:,}", f"{right:,} of {tested:,}"]
        )
    columns = [("labels", False), ("tested for", False), ("classes", True), ("filled in", True)]
    console().print(grid([*columns, ("right where tested", True)], rows))
    if not total[PRESENT]:
        say("no present label could be promised: too few of the reserved labels are scored so high "
            "and right; more validation images or a lower --min-precision help")  # fmt: skip


def groups(done: Completion) -> Iterator[tuple[int, Basis, list[int]]]:
    """The classes whose present, or absent, labels rest on their own labels, or on a pool."""
    bases: tuple[Basis, ...] = ("class", "pooled")
    for value in _WORDS:
        promises = done.assessment.promises.of(value)
        for basis in bases:
            classes = [j for j, promise in enumerate(promises) if promise.basis == basis]
            if classes:
                yield value, basis, classes


def write_promises(done: Completion, path: Path) -> None:
    """A line for each kind of label of each class: what is filled in, and what it rests on."""
    lines = [
        (
            *(done.table.classes[j], _DIGITS[value], done.filled[value][j]),
            *(basis, len(classes) if basis == "pooled" else 1, limit.tested, limit.right),
            *(f"{limit.tested / limit.alike:.1f}", f"{limit.precision:.4f}"),
            f"{expit(value * limit.threshold):.6g}",
        )
        for value, basis, classes in groups(done)
        for j in classes
        for limit in [done.assessment.promises.of(value)[j].limit]
    ]
    header = ["class", "value", "filled", "rests_on", "classes", "tested", "right", "counted_as"]
    write_delimited(path, [*header, "at_least", "threshold"], lines)


def write_suspects(done: Completion, path: Path) -> None:
    """A line for each known label that looks wrong, the most confident first."""
    lines = [
        (
            *(found.image, found.name, _DIGITS[found.value], f"{found.score:.6g}"),
            "yes" if found.trained else "no",
        )
        for found in done.suspects
    ]
    write_delimited(path, ["image", "class", "value", "score", "trained_on"], lines)
