"""The state of a review: journal, verdicts, random labels, learning, new classes, export."""

import csv
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partlabel import LabelTable, read_labels
from partlabel.base.errors import InputError, JobError, PartlabelWarning
from partlabel.labels import CHOSEN, MODEL, RANDOM
from partlabel.output.review.audit import Audit, Plan
from partlabel.output.review.background import Background
from partlabel.output.review.desk import Desk
from partlabel.output.review.learner import fit
from partlabel.output.review.opinions import load_opinions, save_opinions
from partlabel.output.review.orders import ORDERS
from partlabel.output.review.review_export import reviewed_table, write_review
from partlabel.output.review.review_labels import UnknownNameError
from partlabel.output.review.review_progress import class_progress, speeds
from partlabel.output.review.verdict_journal import Journal
from partlabel.output.review.verdicts import Act, Asked, Value, Verdict
from reviews import CLASSES, make_desk, make_opinions


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return make_desk(tmp_path)


def truth_of(desk: Desk) -> np.ndarray:
    return np.asarray(np.load(desk.opinions.images.parent / "truth.npy"))


def wait_until(condition: object) -> None:
    assert callable(condition)
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited too long")


# ---- journal


def test_acts_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path, {"run": "a"})
    one = Verdict("x.png", "cat", Value.PRESENT, Asked.RANDOM, 0.5, 1, 0.25, "plan", 3, 0.1)
    acts = [
        Act("a" * 8, "Ada", 1.5, (one, Verdict("y.png", "cat", Value.SKIPPED))),
        Act("b" * 8, "Bob", 2.5, undoes="a" * 8),
    ]
    numbers = [journal.add(act) for act in acts]
    assert journal.add(acts[0]) is None  # the same id counts once
    journal.close()
    again = Journal(path, {"run": "a"})
    assert list(again.acts()) == list(zip(numbers, acts, strict=True))
    assert list(again.acts(after=1)) == [(2, acts[1])]


def test_a_journal_is_written_before_a_call_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite", {})
    journal.add(Act("a" * 8, "Ada", 1.0, (Verdict("x", "c", Value.ABSENT),)))
    other = sqlite3.connect(tmp_path / "journal.sqlite")
    assert other.execute("SELECT image, value FROM verdicts").fetchall() == [("x", -1)]
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_journal_of_other_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    Journal(path, {"run": "a", "labels": "b"}).close()
    with pytest.raises(InputError, match=r"begun on .* with other labels"):
        Journal(path, {"run": "a", "labels": "changed"})


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(InputError, match="damaged"):
        Journal(path, {})


def test_a_full_disk_is_an_error_and_earlier_verdicts_stay(desk: Desk) -> None:
    desk.judge("first-one", "Ada", [(0, "red", Value.PRESENT)])
    pages = desk.journal._db.execute("PRAGMA page_count").fetchone()[0]
    desk.journal._db.execute(f"PRAGMA max_page_count = {pages}")  # as if the disk had no more room
    many = [(row, name, Value.ABSENT) for row in range(60) for name in CLASSES]

    def fill_up() -> None:
        for number in range(50):
            desk.judge(f"too-much-{number}", "Ada", many)

    with pytest.raises(JobError, match="full"):
        fill_up()
    kept = desk.standings.number
    reopened = make_desk(desk.folder, desk.opinions)
    assert reopened.standings.number == kept >= 1
    assert reopened.cell("red", 0).opinions[0].reviewer == "Ada"


# ---- verdicts


def test_a_verdict_sent_twice_counts_once(desk: Desk) -> None:
    first = desk.judge("same-id-1", "Ada", [(0, "red", Value.PRESENT)])
    again = desk.judge("same-id-1", "Ada", [(0, "red", Value.PRESENT)])
    assert (first.repeated, again.repeated) == (False, True)
    assert again.cells == first.cells
    assert desk.journal.size() == 1


def test_undo_goes_back_to_the_beginning(desk: Desk) -> None:
    before = [desk.cell("red", row) for row in range(30)]
    for number in range(10):
        rows = range(3 * number, 3 * number + 3)
        value = Value.PRESENT if number % 2 else Value.ABSENT
        desk.judge(f"act-{number:05}", "Ada", [(row, "red", value) for row in rows])
    desk.judge("act-again", "Ada", [(0, "red", Value.SKIPPED)])
    first = desk.undo("undo-first", "Ada")
    assert first is not None
    assert first.cells[0].value == -1  # what it was before the last act
    assert desk.undo("undo-first", "Ada").repeated  # type: ignore[union-attr]
    for number in range(10):
        assert desk.undo(f"undo-{number:05}", "Ada") is not None
    assert desk.undo("undo-none", "Ada") is None
    assert [desk.cell("red", row) for row in range(30)] == before


def test_everybody_undoes_their_own_acts(desk: Desk) -> None:
    desk.judge("by-ada-1", "Ada", [(0, "red", Value.PRESENT)])
    desk.judge("by-bob-1", "Bob", [(1, "red", Value.PRESENT)])
    undone = desk.undo("undo-ada", "Ada")
    assert undone is not None
    assert [cell.row for cell in undone.cells] == [0]
    assert desk.cell("red", 1).value == 1


def test_reviewers_who_differ_are_both_kept(desk: Desk) -> None:
    row = int(np.flatnonzero(desk.known("red") == 0)[0])
    desk.judge("by-ada-1", "Ada", [(row, "red", Value.PRESENT)])
    desk.judge("by-bob-1", "Bob", [(row, "red", Value.ABSENT)])
    cell = desk.cell("red", row)
    assert (cell.conflict, cell.value) == (True, 0)
    assert {(one.reviewer, one.value) for one in cell.opinions} == {("Ada", 1), ("Bob", -1)}
    desk.judge("by-bob-2", "Bob", [(row, "red", Value.PRESENT)])
    assert not desk.cell("red", row).conflict


def test_names_that_do_not_exist_are_refused(desk: Desk) -> None:
    for row, name in ((0, "no such class"), (10_000, "red"), (-1, "red")):
        with pytest.raises(UnknownNameError):
            desk.judge("wrong-one", "Ada", [(row, name, Value.PRESENT)])
    assert desk.journal.size() == 0


def test_a_restart_gives_the_same_state(desk: Desk) -> None:
    for number in range(12):
        cells = desk.board("green", "doubtful", 5, random=2)
        verdicts = [(cell.row, "green", Value.PRESENT) for cell in cells[: 1 + number % 5]]
        desk.judge(f"act-{number:05}", "Ada", verdicts)
    desk.undo("undo-one", "Ada")
    again = make_desk(desk.folder, desk.opinions)
    rows = range(len(desk.images))
    assert again.cells("green", rows) == desk.cells("green", rows)
    assert again.random.audit("green").answers == desk.random.audit("green").answers  # type: ignore[union-attr]


def test_threads_do_not_lose_verdicts(desk: Desk) -> None:
    def work(reviewer: str) -> None:
        for row in range(40):
            desk.judge(f"{reviewer}-{row:06}", reviewer, [(row, "red", Value.ABSENT)])

    threads = [threading.Thread(target=work, args=(name,)) for name in ("Ada", "Bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert desk.journal.size() == desk.standings.number == 80


# ---- boards and random labels


def test_orders_show_what_they_say(desk: Desk) -> None:
    scores, known = desk.run_scores("red"), desk.known("red")
    assert scores is not None
    doubtful = [cell.row for cell in desk.board("red", "doubtful", 10)]
    unknown = np.flatnonzero(known == 0)
    nearest = unknown[np.argsort(np.abs(scores[unknown] - 0.5))][:10]
    assert doubtful == nearest.tolist()
    assert all(known[row] == 0 for row in doubtful)
    likely = [scores[cell.row] for cell in desk.board("red", "likely", 10)]
    assert likely == sorted(likely, reverse=True)
    assert all(cell.decided for cell in desk.board("red", "filled", 10))
    assert all(cell.suspect and cell.known for cell in desk.board("red", "suspects", 10))
    assert set(ORDERS) >= {"doubtful", "likely", "filled", "suspects", "similar"}
    with pytest.raises(InputError, match="there is no order 'nonsense'"):
        desk.board("red", "nonsense", 10)


def test_the_most_useful_labels_come_first_and_are_chosen_anew_after_a_fit(desk: Desk) -> None:
    board = desk.board("red", "useful", 40)
    rows = [cell.row for cell in board]
    assert len(set(rows)) == len(rows)
    assert all(cell.known == 0 for cell in board)
    doubtful = [cell.row for cell in desk.board("red", "doubtful", 40)]
    assert set(rows) == set(doubtful)  # all unknown labels of a small table
    assert rows != doubtful  # but spread over unlike images
    desk.judge("answer-1", "Ada", [(rows[0], "red", Value.PRESENT)])
    assert [cell.row for cell in desk.board("red", "useful", 5)] == rows[1:6]
    desk.learned["red"] = np.linspace(0, 1, 60).astype(np.float32)
    assert [cell.row for cell in desk.board("red", "useful", 5)] != rows[1:6]
    (desk.folder / "again").mkdir()
    silent = make_desk(desk.folder / "again", replace(desk.opinions, features=None))
    assert [cell.row for cell in silent.board("red", "useful", 40)] == doubtful


def test_a_board_shows_nothing_twice(desk: Desk) -> None:
    first = [cell.row for cell in desk.board("red", "doubtful", 8, random=2)]
    second = [cell.row for cell in desk.board("red", "doubtful", 8, seen=first)]
    assert not set(first) & set(second)
    desk.judge("answer-1", "Ada", [(second[0], "red", Value.SKIPPED)])
    assert second[0] not in [cell.row for cell in desk.board("red", "doubtful", 50)]


def test_random_labels_are_blind_until_they_are_answered(desk: Desk) -> None:
    board = desk.board("red", "doubtful", 12, random=4)
    blind = [cell for cell in board if cell.blind]
    assert len(blind) == 4
    for cell in blind:
        assert (cell.score, cell.learned, cell.decided, cell.source) == (None, None, 0, "")
        assert cell.guarantee is None
        assert desk.picture_order(cell.row, "")[-1] == "red"  # the place would show the score
    # the same ones come again until they have an answer, first of all
    again = [cell.row for cell in desk.board("red", "likely", 6, random=4) if cell.blind]
    assert set(again) == {cell.row for cell in blind}
    row = blind[0].row
    desk.judge("answer-1", "Ada", [(row, "red", Value.PRESENT)])
    shown = desk.cell("red", row)
    assert (shown.blind, shown.random) == (False, True)
    assert shown.score is not None
    verdict = desk.standings.entries("red", shown.image)[0].verdict
    assert verdict.asked == Asked.RANDOM
    assert 0 < verdict.inclusion <= 1  # type: ignore[operator]


def test_a_verdict_on_a_label_that_was_shown_with_its_score_is_no_random_one(desk: Desk) -> None:
    """Another reviewer's page, or an earlier one, may show the score of a label drawn since."""
    row = next(cell.row for cell in desk.board("red", "doubtful", 12, random=4) if cell.blind)
    seen = desk.judge("with-its-score", "Bob", [(row, "red", Value.PRESENT)], {(row, "red")})
    assert seen.cells[0].blind  # it still waits
    assert audit_of(desk).waits(row)
    assert desk.standings.entries("red", desk.images[row])[0].verdict.asked == Asked.CHOSEN
    desk.judge("by-the-picture", "Bob", [(row, "red", Value.PRESENT)])
    assert not audit_of(desk).waits(row)
    assert row not in desk.training("red").rows


def test_draws_are_random_within_strata_and_recorded_with_their_probabilities(desk: Desk) -> None:
    for number in range(6):
        cells = desk.board("red", "doubtful", 6, random=6)
        verdicts = [(cell.row, "red", Value.ABSENT) for cell in cells if cell.blind]
        desk.judge(f"act-{number:05}", "Ada", verdicts)
    audit = desk.random.audit("red")
    assert audit is not None
    for draw in desk.random.draws["red"]:
        rows = np.flatnonzero(audit.plan.strata == draw.stratum)
        assert draw.size == len(rows)
        assert desk.row_of[draw.image] in rows
        assert draw.inclusion == draw.number / len(rows)
    numbers = [(draw.stratum, draw.number) for draw in desk.random.draws["red"]]
    assert len(set(numbers)) == len(numbers)


def test_the_order_of_draws_depends_on_the_seed_only() -> None:
    scores = np.linspace(0.01, 0.99, 500).astype(np.float32)
    keys = np.arange(500, dtype=np.uint64)
    drawn = [
        Audit(Plan("p", scores, np.ones(500, dtype=np.bool_), seed)).next(0.9, keys, 20)
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def audit_of(desk: Desk, name: str = "red") -> Audit:
    audit = desk.random.audit(name)
    assert audit is not None
    return audit


def test_skipped_waiting_and_disputed_random_labels_count_as_wrong(desk: Desk) -> None:
    rows = [cell.row for cell in desk.board("red", "doubtful", 4, random=4)]
    audit = audit_of(desk)
    values = {row: audit.drawn[row] for row in rows}
    right = {row: Value.PRESENT if stratum < 4 else Value.ABSENT for row, stratum in values.items()}
    assert audit.sampled().wrong.sum() == 4  # they wait
    for number, row in enumerate(rows):
        desk.judge(f"by-ada-{number}", "Ada", [(row, "red", right[row])])
    assert audit.sampled().wrong.sum() == 0
    desk.undo("undo-ada", "Ada")
    assert audit.sampled().wrong.sum() == 1
    desk.judge("by-ada-skip", "Ada", [(rows[3], "red", Value.SKIPPED)])
    assert audit.sampled().wrong.sum() == 1
    # chosen verdicts never test anything: this one is no longer blind for Bob
    desk.judge("by-bob-1", "Bob", [(rows[0], "red", Value(-right[rows[0]]))])
    assert audit.sampled().wrong.sum() == 1


def test_random_verdicts_show_a_guarantee_and_export_fills_in(tmp_path: Path) -> None:
    opinions = make_opinions(tmp_path / "data", images=400, known=0.05)
    truth = np.load(tmp_path / "data" / "truth.npy")
    exact = np.where(truth[:, :3] == 1, 0.999, 0.001).T.astype(np.float32)
    desk = make_desk(tmp_path, replace(opinions, scores=exact))
    missing = [side.missing for side in audit_of(desk).sides(0.9)]
    assert min(missing) >= 22  # no fewer could show 90%
    for number in range(60):
        cells = [c for c in desk.board("red", "doubtful", 4, random=4) if c.blind]
        if not cells:
            break
        verdicts = [(c.row, "red", Value(int(truth[c.row, 0]))) for c in cells]
        desk.judge(f"act-{number:05}", "Ada", verdicts)
    sides = audit_of(desk).sides(0.9)
    assert all(side.guaranteed == side.size and side.limit == 0.99 for side in sides)
    assert number < 59  # nothing more is drawn once all is shown
    table = reviewed_table(desk, filled=True)
    red = table.with_classes(["red"])
    assert np.array_equal(red.dense()[:, 0], truth[:, 0])
    assert (red.cells.sources_or_human() == MODEL).sum() == sum(
        side.size - side.drawn for side in sides
    )
    assert reviewed_table(desk).known < table.known


def test_a_wrong_model_gets_no_guarantee(tmp_path: Path) -> None:
    opinions = make_opinions(tmp_path / "data", images=300, known=0.0)
    truth = np.load(tmp_path / "data" / "truth.npy")
    rng = np.random.default_rng(1)
    wrong = np.where(rng.random((300, 3)) < 0.3, -truth[:, :3], truth[:, :3])
    scores = np.where(wrong == 1, 0.999, 0.001).T.astype(np.float32)
    desk = make_desk(tmp_path, replace(opinions, scores=scores))
    for number in range(20):
        cells = [c for c in desk.board("red", "doubtful", 8, random=8) if c.blind]
        verdicts = [(c.row, "red", Value(int(truth[c.row, 0]))) for c in cells]
        if verdicts:
            desk.judge(f"act-{number:05}", "Ada", verdicts)
        assert not any(test.passed for test in audit_of(desk).tests(0.9))


# ---- learning


def test_a_head_without_labels_to_learn_is_the_run() -> None:
    rng = np.random.default_rng(0)
    features, logits = rng.normal(size=(40, 6)).astype(np.float32), rng.normal(size=40) * 3
    present = logits > 0
    head = fit(features[:4], present[:4], logits[:4])
    later = features @ head.weights + head.bias + head.scale * logits
    assert np.corrcoef(later, logits)[0, 1] > 0.95


def test_a_fit_is_the_minimum_of_the_penalised_loss() -> None:
    """Compared with plain gradient descent from another start."""
    rng = np.random.default_rng(0)
    x, present = rng.normal(size=(30, 3)).astype(np.float32), rng.random(30) < 0.5
    offset = rng.normal(size=30)
    head = fit(x, present, offset)
    parameters = np.array([0.3, -0.2, 0.1, 0.5, 0.7])
    sign = np.where(present, 1.0, -1.0)
    design = np.column_stack([x, np.ones(30), offset])
    center, precision = np.array([0, 0, 0, 0, 1.0]), np.array([3 / 4, 3 / 4, 3 / 4, 0, 4.0])
    for _ in range(4000):
        margin = sign * (design @ parameters)
        gradient = -design.T @ (sign / (1 + np.exp(margin))) + precision * (parameters - center)
        parameters -= 0.02 * gradient
    found = np.array([*head.weights, head.bias, head.scale])
    assert found == pytest.approx(parameters, abs=1e-3)


def test_verdicts_are_learned_in_the_background(tmp_path: Path) -> None:
    opinions = make_opinions(tmp_path / "data", images=300, known=0.0)
    flat = replace(opinions, scores=np.full_like(opinions.scores, 0.5))
    desk = make_desk(tmp_path, flat)
    background = Background(desk, lambda error: pytest.fail(str(error)))
    truth = np.load(tmp_path / "data" / "truth.npy")
    for number, row in enumerate(range(60)):
        desk.judge(f"act-{number:05}", "Ada", [(row, "red", Value(int(truth[row, 0])))])
        background.notice()
    wait_until(lambda: background.fits >= 1 and not background._due())
    learned = desk.learned["red"]
    others = np.arange(60, 300)
    assert ((learned[others] > 0.5) == (truth[others, 0] == 1)).mean() > 0.85
    assert desk.cell("red", 100).learned is not None
    background.stop()


def test_random_labels_are_not_learned_from(desk: Desk) -> None:
    cells = desk.board("red", "doubtful", 10, random=5)
    desk.judge("all-of-it", "Ada", [(cell.row, "red", Value.PRESENT) for cell in cells])
    random_rows = {cell.row for cell in cells if cell.blind}
    chosen_rows = {cell.row for cell in cells if not cell.blind}
    used = set(desk.training("red").rows.tolist())
    assert not used & random_rows
    assert chosen_rows <= used
    # also if somebody chooses them later
    desk.judge("and-again", "Bob", [(row, "red", Value.PRESENT) for row in random_rows])
    assert not set(desk.training("red").rows.tolist()) & random_rows


# ---- new classes


def test_a_new_class_from_a_few_examples_to_a_guarantee(tmp_path: Path) -> None:
    opinions = make_opinions(tmp_path / "data", images=500, known=0.3)
    desk = make_desk(tmp_path, opinions)
    background = Background(desk, lambda error: pytest.fail(str(error)))
    truth = np.load(tmp_path / "data" / "truth.npy")[:, 3]
    assert desk.add_class("blue", "Ada")
    assert not desk.add_class("blue", "Bob")
    assert desk.board("blue", "similar", 8) == []  # there is no example yet
    example = int(np.flatnonzero(truth == 1)[0])
    desk.judge("example-1", "Ada", [(example, "blue", Value.PRESENT)])
    similar = [cell.row for cell in desk.board("blue", "similar", 30)]
    assert (truth[similar] == 1).mean() > (truth == 1).mean() + 0.2
    with pytest.raises(InputError, match="needs 4 more present ones and 5 more absent ones"):
        desk.start_test("blue")
    for number, row in enumerate(range(80)):
        desk.judge(f"act-{number:05}", "Ada", [(row, "blue", Value(int(truth[row])))])
        background.notice()
    wait_until(lambda: "blue" in desk.learned and not background._due())
    ranked = [cell.row for cell in desk.board("blue", "likely", 40)]
    assert (truth[ranked] == 1).mean() > 0.9  # the archive is scored and ranked
    progress = class_progress(desk, "blue")
    assert (progress.new, progress.tested, progress.ready) == (True, False, True)
    desk.start_test("blue")
    assert min(side.missing for side in class_progress(desk, "blue").sides) > 20
    for number in range(80):
        cells = [c for c in desk.board("blue", "likely", 5, random=5) if c.blind]
        if not cells:
            break
        verdicts = [(c.row, "blue", Value(int(truth[c.row]))) for c in cells]
        desk.judge(f"random-{number:03}", "Ada", verdicts)
    assert any(side.guaranteed for side in class_progress(desk, "blue").sides)
    background.stop()
    again = make_desk(tmp_path, opinions)
    assert again.new_classes == ["blue"]
    assert class_progress(again, "blue").sides == class_progress(desk, "blue").sides


@pytest.mark.parametrize("name", ["", " padded", "two\nlines", "\u202edirection"])
def test_names_of_new_classes_are_checked(desk: Desk, name: str) -> None:
    with pytest.raises(InputError):
        desk.add_class(name, "Ada")


# ---- progress and export


def test_progress_counts_what_was_done(desk: Desk) -> None:
    truth = truth_of(desk)
    before = class_progress(desk, "red")
    rows = np.flatnonzero(desk.known("red") == 0)[:6].tolist()
    for number, row in enumerate(rows):
        desk.judge(f"act-{number:05}", "Ada", [(row, "red", Value(int(truth[row, 0])))])
    after = class_progress(desk, "red")
    assert after.unknown == before.unknown - 6
    assert (after.verdicts, after.chosen.total, after.random.total) == (6, 6, 0)
    assert [(one.reviewer, one.verdicts) for one in speeds(desk)] == [("Ada", 6)]
    assert before.guarantee == {"present": 0.96}


def test_export_has_values_origins_and_why_they_were_asked(desk: Desk, tmp_path: Path) -> None:
    board = desk.board("red", "doubtful", 8, random=2)
    chosen = next(cell for cell in board if not cell.blind)
    blind = next(cell for cell in board if cell.blind)
    known = int(np.flatnonzero(desk.known("green") == 1)[0])
    disputed = [c for c in board if not c.blind][1]
    desk.judge("act-00001", "Ada", [(chosen.row, "red", Value.PRESENT)])
    desk.judge("act-00002", "Bob", [(blind.row, "red", Value.ABSENT)])
    desk.judge("act-00003", "Ada", [(known, "green", Value.UNKNOWN)])
    desk.judge("act-00004", "Ada", [(disputed.row, "red", Value.PRESENT)])
    desk.judge("act-00005", "Bob", [(disputed.row, "red", Value.ABSENT)])
    desk.judge("act-00006", "Ada", [(0, CLASSES[2], Value.PRESENT)])
    desk.undo("undo-0001", "Ada")
    target = tmp_path / "reviewed.csv"
    with pytest.warns(PartlabelWarning, match="reviewers differ on 1 label"):
        write_review(desk, target, "cells")
    table = read_labels(target, "cells")
    cells = {
        (table.ids[r], table.classes[c]): (int(v), table.origins[o - 1] if o else "", int(a))
        for r, c, v, o, a in zip(
            table.cells.rows.tolist(),
            table.cells.columns.tolist(),
            table.cells.values,
            table.cells.origins_or_none().tolist(),
            table.cells.asked_or_not(),
            strict=True,
        )
    }
    assert cells[chosen.image, "red"] == (1, "Ada", CHOSEN)
    assert cells[blind.image, "red"] == (-1, "Bob", RANDOM)
    assert (desk.images[known], "green") not in cells
    assert (disputed.image, "red") not in cells
    with (tmp_path / "verdicts.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert [line["verdict"] for line in lines] == [
        *("present", "absent", "unknown", "present", "absent", "present")
    ]
    assert [line["undone"] for line in lines] == ["no"] * 5 + ["yes"]
    assert lines[1]["asked"] == "random"
    assert 0 < float(lines[1]["inclusion"]) <= 1
    assert lines[0]["score"] != ""


@pytest.mark.parametrize("format", ["csv", "open-images", "label-studio", "coco", "voc"])
@pytest.mark.filterwarnings(f"ignore::{PartlabelWarning.__module__}.PartlabelWarning")
def test_export_writes_other_formats(desk: Desk, tmp_path: Path, format: str) -> None:
    desk.judge("act-00001", "Ada", [(3, "red", Value.PRESENT)])
    suffix = {"csv": ".csv", "open-images": ".csv", "label-studio": ".json", "coco": ".json"}
    target = tmp_path / "out" / f"labels{suffix.get(format, '')}"
    target.parent.mkdir()
    paths = write_review(desk, target, format)
    assert all(path.exists() for path in paths)
    unlisted = None if format in ("csv", "open-images", "label-studio") else "unknown"
    table = read_labels(target, format, unlisted)
    row, column = table.ids.find(["003.png"])[0], table.classes.find(["red"])[0]
    if row < 0:  # formats that name images without suffix
        row = table.ids.find(["003"])[0]
    assert table.dense()[row, column] == 1


def test_opinions_come_back_from_disk(tmp_path: Path) -> None:
    opinions = make_opinions(tmp_path / "data")
    assert opinions.features is not None
    save_opinions(opinions, tmp_path / "kept", opinions.features.vectors)
    again = load_opinions(tmp_path / "kept")
    assert again is not None
    assert again.table == opinions.table
    assert np.array_equal(again.scores, opinions.scores)
    assert np.array_equal(again.suspects, opinions.suspects)
    assert again.guarantees == opinions.guarantees
    (tmp_path / "kept" / "scores.npy").write_bytes(b"damaged")
    with pytest.raises(InputError, match="remove it"):
        load_opinions(tmp_path / "kept")


def test_a_table_without_any_class_or_label_can_be_reviewed(tmp_path: Path) -> None:
    opinions = make_opinions(tmp_path / "data", images=5)
    table = LabelTable(list(opinions.table.ids), CLASSES, np.zeros((5, 3), dtype=np.int8))
    empty = replace(
        opinions, table=table, scores=np.full((3, 5), np.nan, dtype=np.float32),
        suspects=np.empty((0, 2), dtype=np.int64),
    )  # fmt: skip
    desk = make_desk(tmp_path, empty)
    assert desk.random.audit("red") is None
    assert len(desk.board("red", "doubtful", 10, random=3)) == 5
    assert class_progress(desk, "red").sides == []
