"""The journal of a review: everything that reviewers did, in one SQLite file beside the run.

Rows are only ever added. A call returns when its rows are on disk (write-ahead log, synchronous):
a verdict that was confirmed survives a kill and a power cut. Ids are unique, so a verdict that is
sent again counts once.
"""

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from partlabel.base.errors import FileError, JobError, count
from partlabel.output.review.verdicts import Act, Asked, Draw, NewClass, Value, Verdict

VERSION = "1"
_OTHER = {"version": "another version", "run": "another run", "labels": "other labels"}
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS acts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    reviewer TEXT NOT NULL,
    time REAL NOT NULL,
    undoes TEXT UNIQUE REFERENCES acts (id)
) STRICT;
CREATE TABLE IF NOT EXISTS verdicts (
    act INTEGER NOT NULL REFERENCES acts (number),
    image TEXT NOT NULL,
    class TEXT NOT NULL,
    value INTEGER NOT NULL CHECK (value BETWEEN -1 AND 2),
    asked TEXT NOT NULL CHECK (asked IN ('random', 'chosen')),
    score REAL,
    decided INTEGER NOT NULL,
    learned REAL,
    plan TEXT,
    stratum INTEGER,
    inclusion REAL,
    PRIMARY KEY (act, class, image)
) STRICT;
CREATE TABLE IF NOT EXISTS draws (
    plan TEXT NOT NULL,
    class TEXT NOT NULL,
    image TEXT NOT NULL,
    stratum INTEGER NOT NULL,
    number INTEGER NOT NULL,
    size INTEGER NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (plan, class, image)
) STRICT;
CREATE TABLE IF NOT EXISTS classes (
    name TEXT PRIMARY KEY, reviewer TEXT NOT NULL, time REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS plans (
    id TEXT PRIMARY KEY, class TEXT NOT NULL, time REAL NOT NULL
) STRICT;
"""
_DAMAGE = ("not a database", "malformed", "no such", "has no column", "not decode", "file format")
_VERDICT = "image, class, value, asked, score, decided, learned, plan, stratum, inclusion"


class Journal:
    """The journal in a file; it is created if it does not exist.

    Args:
        path: the file.
        about: what the journal belongs to, such as hashes of the run and of the labels. A journal
            that was begun for something else is refused.
    """

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        self.path, self._lock = path, threading.RLock()
        with self._storing():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            (problem,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if problem != "ok":
                raise sqlite3.DatabaseError(f"malformed: {problem}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            with self._changing() as db:
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
        self._check(about)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _check(self, about: Mapping[str, str]) -> None:
        wanted = {"version": VERSION, **about}
        stored = self.about()
        if not stored:
            began = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
            with self._storing(), self._changing() as db:
                rows = {**wanted, "began": began}.items()
                db.executemany("INSERT INTO about VALUES (?, ?)", list(rows))
            return
        changed = [key for key, value in wanted.items() if stored.get(key) != value]
        if changed:
            acts = count(self.size(), "act")
            others = " and ".join(_OTHER.get(key, f"another {key}") for key in changed)
            raise FileError(
                self.path,
                f"this journal was begun on {stored.get('began')} with {others}, and has {acts} of "
                "reviewers. Nothing was changed. Go on with what it was begun with; or to begin "
                f"anew, move the folder {self.path.parent} away",
            )

    def about(self) -> dict[str, str]:
        """What the journal belongs to, and when it was begun."""
        with self._lock, self._storing():
            return dict(self._db.execute("SELECT key, value FROM about").fetchall())

    def size(self) -> int:
        """The number of acts."""
        with self._lock, self._storing():
            return int(self._db.execute("SELECT COUNT(*) FROM acts").fetchone()[0])

    def note(self, key: str, value: str) -> str:
        """Keep a value under a key, unless there is one already; returns what is kept."""
        with self._storing(), self._changing() as db:
            db.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (key, value))
        return self.about()[key]

    def add(self, act: Act) -> int | None:
        """Keep an act; its number, or None if it is kept already, or undoes one that is undone."""
        with self._storing(), self._changing() as db:
            row = db.execute(
                "INSERT OR IGNORE INTO acts (id, reviewer, time, undoes) VALUES (?, ?, ?, ?)",
                (act.id, act.reviewer, act.time, act.undoes),
            )
            if not row.rowcount:
                return None
            number = int(row.lastrowid or 0)
            db.executemany(
                f"INSERT INTO verdicts (act, {_VERDICT}) VALUES (?{', ?' * 10})",
                [
                    (
                        *(number, one.image, one.name, int(one.value), one.asked.value),
                        *(one.score, one.decided, one.learned),
                        *(one.plan, one.stratum, one.inclusion),
                    )
                    for one in act.verdicts
                ],
            )
            return number

    def add_draws(self, draws: list[Draw]) -> None:
        """Keep labels that were drawn at random."""
        rows = [
            (one.plan, one.name, one.image, one.stratum, one.number, one.size, one.time)
            for one in draws
        ]
        with self._storing(), self._changing() as db:
            db.executemany(f"INSERT INTO draws VALUES (?{', ?' * 6})", rows)

    def add_class(self, new: NewClass) -> None:
        """Keep a new class; one that is kept already stays as it is."""
        with self._storing(), self._changing() as db:
            row = (new.name, new.reviewer, new.time)
            db.execute("INSERT OR IGNORE INTO classes VALUES (?, ?, ?)", row)

    def add_plan(self, id: str, name: str, time: float) -> None:
        """Keep a plan for a class; labels are drawn at random by the last one."""
        with self._storing(), self._changing() as db:
            db.execute("INSERT INTO plans VALUES (?, ?, ?)", (id, name, time))

    def plans(self) -> dict[str, str]:
        """The last plan of each class that has one in the journal."""
        with self._lock, self._storing():
            rows = self._db.execute("SELECT class, id FROM plans ORDER BY rowid").fetchall()
        return dict(rows)

    def acts(self, after: int = 0) -> Iterator[tuple[int, Act]]:
        """All acts after a number, with their numbers, in order."""
        with self._lock, self._storing():
            rows = self._db.execute(
                f"SELECT number, id, reviewer, time, undoes, {_VERDICT} FROM acts "
                "LEFT JOIN verdicts ON act = number WHERE number > ? ORDER BY number",
                (after,),
            ).fetchall()
        for number, part in groupby(rows, key=lambda row: int(row[0])):
            lines = list(part)
            _, id, reviewer, at, undoes = lines[0][:5]
            verdicts = (_verdict(line[5:]) for line in lines if line[5] is not None)
            yield number, Act(id, reviewer, at, tuple(verdicts), undoes)

    def draws(self) -> list[Draw]:
        """All labels that were drawn at random, in order."""
        with self._lock, self._storing():
            rows = self._db.execute("SELECT * FROM draws ORDER BY rowid").fetchall()
        return [Draw(*row) for row in rows]

    def classes(self) -> list[NewClass]:
        """The classes that reviewers added, in order."""
        with self._lock, self._storing():
            rows = self._db.execute("SELECT * FROM classes ORDER BY rowid").fetchall()
        return [NewClass(*row) for row in rows]

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, on disk when the block ends."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if any(words in str(error) for words in _DAMAGE):
                raise FileError(self.path, f"damaged ({error}); move it away") from error
            raise JobError(
                f"{self.path}: the journal cannot be written ({error}). Verdicts that were "
                "confirmed are safe; this one was not kept"
            ) from error


def _verdict(row: tuple[Any, ...]) -> Verdict:
    image, name, value, asked, *more = row
    return Verdict(image, name, Value(value), Asked(asked), *more)
