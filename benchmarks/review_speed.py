"""How fast the server of the review page answers, with 100,000 images x 200 classes.

    python -m benchmarks review_speed

Labels, scores and features are random; the requests go through the whole application, with the
guard, and verdicts are written to disk. The pictures of one board are real files.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient
from PIL import Image
from scipy import sparse

from partlabel import LabelTable
from partlabel.output.review.learner import Features
from partlabel.output.review.opinions import Opinions
from partlabel.output.review.session import ReviewOptions, Session
from partlabel.output.review.verdict_journal import Journal
from partlabel.output.review.web import guarded, make_app

IMAGES, CLASSES, KNOWN, SIZE = 100_000, 200, 0.05, 320
HEADERS = {"x-partlabel": "review"}


def opinions(folder: Path) -> Opinions:
    """Random labels, scores and features."""
    rng = np.random.default_rng(0)
    cells = np.flatnonzero(rng.random(IMAGES * CLASSES, dtype=np.float32) < KNOWN)
    values = np.where(rng.random(len(cells)) < 0.1, 1, -1).astype(np.int8)
    where = np.divmod(cells, CLASSES)
    known = sparse.coo_array((values, where), shape=(IMAGES, CLASSES))
    ids = [f"{number:06}.jpg" for number in range(IMAGES)]
    table = LabelTable(ids, [f"class {number}" for number in range(CLASSES)], known)
    scores = rng.beta(0.3, 2, (CLASSES, IMAGES)).astype(np.float32)
    vectors = rng.normal(size=(IMAGES, SIZE)).astype(np.float16)
    one = np.ones(SIZE, dtype=np.float32)
    return Opinions(
        table,
        scores,
        np.where(scores < 0.01, -1, 0).astype(np.int8),
        np.empty((0, 2), dtype=np.int64),
        {},
        folder / "images",
        "",
        [],
        0.95,
        Features(vectors, 0 * one, one),
        np.arange(IMAGES),
    )


def timed(work: Callable[[int], object], times: int) -> list[float]:
    """Milliseconds of each call."""
    taken = []
    for number in range(times):
        started = time.perf_counter()
        work(number)
        taken.append(1000 * (time.perf_counter() - started))
    return taken


def show(what: str, taken: list[float], target: float) -> None:
    """One line: median, and the slowest of 20, beside the target."""
    ordered = sorted(taken)
    slow = ordered[int(0.95 * (len(ordered) - 1))]
    verdict = "ok" if slow < target else "MISSED"
    times = f"median {statistics.median(taken):6.1f} ms, 95% below {slow:6.1f} ms"
    print(f"  {what:<40} {times} (target {target:g}: {verdict})")


def run() -> None:
    """Print the times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "images").mkdir()
        picture = Image.effect_noise((640, 480), 60).convert("RGB")
        for number in range(24):
            picture.save(folder / "images" / f"{number:06}.jpg")
        about = {"run": "random", "labels": "random"}
        journal = Journal(folder / "journal.sqlite", about)
        session = Session(ReviewOptions(folder), folder, journal, about)
        started = time.perf_counter()
        session.use(opinions(folder))
        print(f"review: {IMAGES:,} images x {CLASSES} classes, {KNOWN:.0%} known")
        print(f"  ready after {time.perf_counter() - started:.1f} s, data included")
        app = guarded(make_app(session, "bench"), "token", ["testserver"], 80)
        client = TestClient(app, headers=HEADERS)
        client.get("/?token=token")
        measure(client)
        session.close()


def measure(client: TestClient) -> None:
    """Time boards, verdicts, pictures and progress."""
    rows: list[int] = []

    def board(number: int) -> None:
        request = {"name": f"class {number % 20}", "size": 24, "random": 4, "seen": rows[-5000:]}
        answer = client.post("/api/board", json=request)
        answer.raise_for_status()
        rows.extend(cell["row"] for cell in answer.json()["cells"])

    def verdict(number: int) -> None:
        one = {"row": rows[number], "name": f"class {number % 20}", "value": 1 - 2 * (number % 2)}
        body = {"id": f"verdict-{number:08}", "reviewer": "bench", "verdicts": [one]}
        client.post("/api/acts", json=body).raise_for_status()

    def get(path: str) -> Callable[[int], object]:
        return lambda number: client.get(path.format(number)).raise_for_status()

    show("the first board of each of 20 classes", timed(board, 20), 200)
    show("the next boards", timed(board, 60), 200)
    show("a verdict, on disk", timed(verdict, 400), 50)
    show("the next boards, after 400 verdicts", timed(board, 60), 200)
    show("all labels of a picture", timed(get("/api/images/{}"), 30), 200)
    show("a thumbnail, made", timed(get("/api/images/{}/thumbnail"), 24), 100)
    show("a thumbnail, kept", timed(get("/api/images/{}/thumbnail"), 24), 50)
    show("changes of other reviewers", timed(get("/api/changes?after=390"), 30), 50)


if __name__ == "__main__":
    run()
