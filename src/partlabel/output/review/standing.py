"""Where the labels stand: the verdicts of the journal, without those that were undone."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from partlabel.output.review.verdicts import Act, Asked, Value, Verdict


@dataclass(frozen=True)
class Entry:
    """A verdict that counts, and the act that it belongs to."""

    number: int
    act: str
    reviewer: str
    time: float
    verdict: Verdict


@dataclass(frozen=True)
class Standing:
    """What reviewers say about a label.

    Args:
        value: the value that all of them agree on, skipped if all skipped it, None if they differ.
        latest: the last verdict of each reviewer.
    """

    value: Value | None
    latest: tuple[Entry, ...]

    @property
    def conflict(self) -> bool:
        """Whether reviewers differ."""
        return self.value is None

    @property
    def asked(self) -> Asked:
        """Random if any of the verdicts was about a label drawn at random."""
        is_random = any(entry.verdict.asked == Asked.RANDOM for entry in self.latest)
        return Asked.RANDOM if is_random else Asked.CHOSEN


def standing(entries: list[Entry]) -> Standing:
    """What the entries of one label, in order, come to."""
    latest = {entry.reviewer: entry for entry in entries}
    values = {entry.verdict.value for entry in latest.values()}
    answers = values - {Value.SKIPPED}
    value = None if len(answers) > 1 else next(iter(answers), Value.SKIPPED)
    return Standing(value, tuple(latest.values()))


class Standings:
    """The entries of all labels, kept up to date as acts come in."""

    def __init__(self) -> None:
        self.number = 0
        """The number of the last act."""
        self._cells: dict[str, dict[str, list[Entry]]] = {}
        self._acts: dict[str, tuple[int, Act]] = {}
        self._undone: set[str] = set()
        self._order: dict[str, list[str]] = {}  # per reviewer, acts that can be undone
        self._log: list[tuple[int, Act]] = []

    def apply(self, number: int, act: Act) -> None:
        """Take in the next act of the journal."""
        self.number = max(self.number, number)
        self._acts[act.id] = (number, act)
        self._log.append((number, act))
        if act.undoes is not None:
            self._undo(act.undoes)
            return
        self._order.setdefault(act.reviewer, []).append(act.id)
        for verdict in act.verdicts:
            entry = Entry(number, act.id, act.reviewer, act.time, verdict)
            of_class = self._cells.setdefault(verdict.name, {})
            of_class.setdefault(verdict.image, []).append(entry)

    def _undo(self, act: str) -> None:
        self._undone.add(act)
        _, done = self._acts[act]
        if act in self._order.get(done.reviewer, []):
            self._order[done.reviewer].remove(act)
        for verdict in done.verdicts:
            of_class = self._cells[verdict.name]
            kept = [entry for entry in of_class[verdict.image] if entry.act != act]
            if kept:
                of_class[verdict.image] = kept
            else:
                del of_class[verdict.image]

    def act(self, id: str) -> tuple[int, Act] | None:
        """An act and its number; None if there is none with this id."""
        return self._acts.get(id)

    def last(self, reviewer: str) -> Act | None:
        """The last act of a reviewer that is not undone."""
        order = self._order.get(reviewer)
        return self._acts[order[-1]][1] if order else None

    def entries(self, name: str, image: str) -> list[Entry]:
        """The entries of a label, in order."""
        return self._cells.get(name, {}).get(image, [])

    def of(self, name: str, image: str) -> Standing | None:
        """What reviewers say about a label; None if nobody said anything."""
        entries = self.entries(name, image)
        return standing(entries) if entries else None

    def images(self, name: str) -> list[str]:
        """The images of a class with a verdict."""
        return list(self._cells.get(name, {}))

    def count(self, name: str) -> int:
        """The number of labels of a class with a verdict."""
        return len(self._cells.get(name, {}))

    def of_class(self, name: str) -> Iterator[tuple[str, Standing]]:
        """The images of a class with a verdict."""
        for image, entries in self._cells.get(name, {}).items():
            yield image, standing(entries)

    def all(self) -> Iterator[tuple[str, str, Standing]]:
        """Class, image and standing of all labels with a verdict."""
        for name in self._cells:
            for image, one in self.of_class(name):
                yield name, image, one

    def history(self) -> Iterator[tuple[int, Act, bool]]:
        """All acts with their numbers, in order, and whether each was undone."""
        for number, act in self._log:
            yield number, act, act.id in self._undone

    def since(self, number: int) -> list[Act]:
        """The acts after a number, in order."""
        start = bisect_right(self._log, number, key=lambda pair: pair[0])
        return [act for _, act in self._log[start:]]
