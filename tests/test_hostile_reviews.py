"""Damaged files of a review: each is an error that names the file, and is never used."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partlabel.base.errors import InputError
from partlabel.output.review.desk import Desk
from partlabel.output.review.opinions import Opinions, load_opinions, save_opinions
from partlabel.output.review.verdicts import Value
from reviews import make_desk, make_opinions


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with verdicts of one reviewer, of which one is undone, and random labels."""
    desk = make_desk(tmp_path)
    desk.judge("act-0001", "Ada", [(0, "red", Value.PRESENT), (1, "red", Value.ABSENT)])
    desk.judge("act-0002", "Ada", [(2, "green", Value.PRESENT)])
    desk.undo("undo-001", "Ada")
    desk.board("red", "doubtful", 8, [], 4, [])
    return desk


def reopened(desk: Desk) -> Desk:
    desk.journal.close()
    return make_desk(desk.folder, desk.opinions)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE verdicts SET image = 'nowhere' WHERE rowid = 1",
        "UPDATE verdicts SET class = 'nothing'",
        "UPDATE verdicts SET value = 7",
        "UPDATE verdicts SET asked = 'never'",
        "UPDATE verdicts SET decided = 5",
        "UPDATE verdicts SET stratum = 4000",
        "UPDATE acts SET time = 1e300",
        "UPDATE acts SET reviewer = ''",
        "UPDATE acts SET undoes = 'nothing' WHERE undoes IS NOT NULL",
        "UPDATE draws SET image = 'nowhere' WHERE rowid = 1",
        "UPDATE draws SET class = 'nothing' WHERE rowid = 1",
        "UPDATE draws SET stratum = -1 WHERE rowid = 1",
        "UPDATE draws SET size = 0 WHERE rowid = 1",
        "UPDATE about SET value = 'x' WHERE key = 'seed'",
        "INSERT INTO classes VALUES (char(27), 'Ada', 0)",
        "ALTER TABLE verdicts RENAME COLUMN image TO other",
    ],
)
def test_a_journal_with_impossible_rows_is_named(desk: Desk, statement: str) -> None:
    with closing(sqlite3.connect(desk.journal.path, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        changed = db.execute(statement).rowcount
        assert changed  # -1 for a statement that changes no rows but the table
    with pytest.raises(InputError, match=r"journal\.sqlite: damaged"):
        reopened(desk)


def test_a_journal_with_a_damaged_page_is_named(desk: Desk) -> None:
    desk.journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(desk.journal.path.read_bytes())
    pages = range(4096, len(content), 4096)
    for start in pages:
        content[start + 1 : start + 8] = bytes(7)  # the header of a page
    desk.journal.close()
    desk.journal.path.write_bytes(content)
    with pytest.raises(InputError, match=r"journal\.sqlite: damaged"):
        make_desk(desk.folder, desk.opinions)


def kept(folder: Path) -> tuple[Opinions, Path]:
    opinions = make_opinions(folder / "data")
    assert opinions.features is not None
    save_opinions(opinions, folder / "kept", opinions.features.vectors)
    return opinions, folder / "kept"


def test_every_byte_of_opinions_counts(tmp_path: Path) -> None:
    _, folder = kept(tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        *("about.json", "decided.npy", "features.npy", "labels.arrow"),
        *("scale.npy", "scores.npy", "suspects.npy", "train.npy"),
    ]
    for name in names:
        path = folder / name
        content = path.read_bytes()
        for place in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(InputError, match=r"kept: damaged .*remove it"):
                load_opinions(folder)
        path.unlink()
        with pytest.raises(InputError, match=r"kept: damaged .*remove it"):
            load_opinions(folder)
        path.write_bytes(content)
    assert load_opinions(folder) is not None


def test_opinions_of_another_version_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = kept(tmp_path)
    monkeypatch.setattr("partlabel.output.review.opinions._VERSION", 99)
    with pytest.raises(InputError, match="another version of the program"):
        load_opinions(folder)


def test_damaged_scores_of_a_plan_are_named(tmp_path: Path) -> None:
    opinions = make_opinions(tmp_path / "data")
    nothing = np.full_like(opinions.scores, np.nan)  # the run does not know the classes
    desk = make_desk(tmp_path, replace(opinions, scores=nothing))
    desk.random.start("red", np.linspace(0, 1, len(desk.images), dtype=np.float32))
    assert desk.random.audit("red") is not None
    (path,) = tmp_path.glob("plan-*.npy")
    content = path.read_bytes()
    for damaged in (content[:-1] + b"\x7f", content[:50], b"", b"PK\x03\x04"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=f"{path.name}: damaged"):
            reopened(desk).random.audit("red")
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name}: damaged"):
        reopened(desk).random.audit("red")
