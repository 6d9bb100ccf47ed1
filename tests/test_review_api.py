"""The server of the review page: its answers, and whom it refuses."""

import io
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from PIL import Image
from schemathesis.checks import not_a_server_error

from partlabel import LabelTable
from partlabel.cli import main
from partlabel.labels.formats import FORMATS
from partlabel.output.review.guard import MOST_BYTES
from partlabel.output.review.session import Session
from partlabel.output.review.web import guarded, make_app, page_files
from reviews import CLASSES, make_opinions, make_session

HOST = "127.0.0.1:8765"
MINE = {"x-partlabel": "review", "origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = make_session(tmp_path, make_opinions(tmp_path / "data"))
    yield session
    session.close()


@pytest.fixture
def stranger(session: Session) -> TestClient:
    """A browser that knows the address, but not the token."""
    app = guarded(make_app(session, "Ada"), "the-token", [HOST, "localhost:8765"], 8765)
    return TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)


@pytest.fixture
def client(stranger: TestClient) -> TestClient:
    """A browser that opened the address with the token."""
    assert stranger.get("/?token=the-token").status_code == 200
    stranger.headers.update(MINE)
    return stranger


def act(row: int, value: int, id: str = "an-act-of-mine", name: str = "red") -> dict[str, Any]:
    return {"id": id, "reviewer": "Ada", "verdicts": [{"row": row, "name": name, "value": value}]}


# ---- who gets in


def test_nothing_is_served_without_the_token(stranger: TestClient) -> None:
    for path in ("/", "/?token=wrong", "/page/app.js", "/api/status", "/api/images/0/thumbnail"):
        answer = stranger.get(path)
        assert answer.status_code == 403
        assert "partlabel review" in answer.text
    assert stranger.post("/api/acts", json=act(0, 1), headers=MINE).status_code == 403
    assert stranger.get("/openapi.json").status_code == 403


def test_the_token_is_exchanged_for_a_cookie(stranger: TestClient) -> None:
    answer = stranger.get("/?token=the-token", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = SimpleCookie(answer.headers["set-cookie"])["partlabel_review_8765"]
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "Strict"
    assert "the-token" not in answer.headers["set-cookie"]
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:1"])
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    assert client.get("/api/status", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "change",
    [
        {"x-partlabel": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_requests_of_other_sites_are_refused(
    client: TestClient, session: Session, change: dict[str, str]
) -> None:
    answer = client.post("/api/acts", json=act(0, 1), headers=change)
    assert answer.status_code == 403
    assert session.journal.size() == 0
    assert client.post("/api/acts", json=act(0, 1)).status_code == 200


def test_answers_forbid_everything_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/api/status", "/page/nothing", "/api/images/0/thumbnail"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert client.get("/api/status").headers["cache-control"] == "no-store"


def test_the_page_needs_nothing_from_elsewhere_and_no_inline_code() -> None:
    files = page_files()
    assert {"index.html", "style.css", "app.js"} <= set(files)
    for name, content in files.items():
        text = content.decode()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), name
        assert "https://" not in text, name
        assert "innerHTML" not in text, name
        assert "style=" not in text, name
    index = files["index.html"].decode()
    assert index.count("<script") == index.count('<script type="module" src=')


@pytest.mark.parametrize(
    "path",
    ["/page/../web.py", "/page/%2e%2e/web.py", "/page/..%2fweb.py", "/api/images/../../etc/passwd"],
)
def test_only_files_of_the_page_and_images_of_the_table_are_served(
    client: TestClient, path: str
) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert b"import" not in answer.content


def test_rows_outside_of_the_table_are_not_found(client: TestClient) -> None:
    for path in ("/api/images/60", "/api/images/60/thumbnail", "/api/images/60/large"):
        assert client.get(path).status_code == 404
    assert client.get("/api/images/-1").status_code == 422
    assert client.get("/api/images/0/heat?name=nothing").status_code == 404


def test_what_is_too_large_is_refused(client: TestClient) -> None:
    assert client.post("/api/examples", content=b"x" * (MOST_BYTES + 1)).status_code == 413
    many = [{"row": 0, "name": "red", "value": 1}] * 501
    body = {"id": "many-many", "reviewer": "Ada", "verdicts": many}
    assert client.post("/api/acts", json=body).status_code == 422


# ---- answers


def test_status_says_what_is_reviewed(client: TestClient) -> None:
    status = client.get("/api/status").json()
    assert status["ready"] is True
    assert (status["images"], status["classes"], status["reviewer"]) == (60, 3, "Ada")
    assert "cells" in status["formats"]
    assert status["orders"][:2] == ["useful", "doubtful"]  # the first is shown first
    plain, by_name = (
        client.post("/api/board", json={"name": "red", "size": 8, **more}).json()["cells"]
        for more in ({}, {"order": "useful"})
    )
    assert [cell["row"] for cell in plain] == [cell["row"] for cell in by_name]


def test_a_verdict_is_kept_and_undone(client: TestClient) -> None:
    board = client.post("/api/board", json={"name": "red", "size": 6, "random": 1}).json()
    assert len(board["cells"]) == 6
    row = board["cells"][0]["row"]
    answer = client.post("/api/acts", json=act(row, 1)).json()
    assert (answer["repeated"], answer["cells"][0]["value"]) == (False, 1)
    assert client.post("/api/acts", json=act(row, 1)).json()["repeated"] is True
    changes = client.get("/api/changes?after=0").json()
    assert [cell["row"] for cell in changes["cells"]] == [row]
    undone = client.post("/api/undo", json={"id": "undo-undo", "reviewer": "Ada"}).json()
    assert (undone["undone"], undone["cells"][0]["value"]) == (True, 0)
    nothing = client.post("/api/undo", json={"id": "undo-more", "reviewer": "Ada"}).json()
    assert nothing["undone"] is False


def test_a_verdict_on_a_label_shown_with_its_score_tests_nothing(
    client: TestClient, session: Session
) -> None:
    board = client.post("/api/board", json={"name": "red", "size": 6, "random": 2}).json()
    row = next(cell["row"] for cell in board["cells"] if cell["blind"])
    for number, scored in enumerate((True, False)):
        body = act(row, 1, f"an-act-{number}")
        body["verdicts"][0]["scored"] = scored
        cell = client.post("/api/acts", json=body).json()["cells"][0]
        assert cell["blind"] is scored
    entries = session.desk.standings.entries("red", session.desk.images[row])
    assert [one.verdict.asked for one in entries] == ["chosen", "random"]


@pytest.mark.parametrize(
    "body",
    [
        act(0, 3),
        act(0, 1, id="short"),
        act(0, 1, id="has spaces in it"),
        {**act(0, 1), "reviewer": "two\nlines"},
        {**act(0, 1), "reviewer": "\ud800"},
        {**act(0, 1), "more": 1},
        {"id": "no-verdicts", "reviewer": "Ada", "verdicts": []},
    ],
)
def test_wrong_requests_get_a_message(client: TestClient, body: dict[str, Any]) -> None:
    import json

    answer = client.post(
        "/api/acts", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json()["message"]


@pytest.mark.parametrize(
    "name", ["zero\u200bwidth", "no\u00a0break", "soft\u00adhyphen", "x" * 900]
)
def test_a_class_with_any_name_that_label_files_may_have_can_be_reviewed(
    tmp_path: Path, name: str
) -> None:
    opinions = make_opinions(tmp_path / "data")
    table = opinions.table
    renamed = LabelTable(list(table.ids), [name, *table.classes[1:]], table.dense())
    session = make_session(tmp_path, replace(opinions, table=renamed))
    client = TestClient(make_app(session, "Ada"))
    assert client.post("/api/board", json={"name": name}).status_code == 200
    verdict = {"row": 0, "name": name, "value": 1}
    sent = {"id": "act-0001", "reviewer": "Ada", "verdicts": [verdict]}
    assert client.post("/api/acts", json=sent).json()["cells"][0]["value"] == 1
    session.close()


def test_pictures_suspects_and_progress(client: TestClient) -> None:
    picture = client.get("/api/images/3").json()
    assert picture["image"] == "003.png"
    scores = [cell["score"] for cell in picture["cells"]]
    assert scores == sorted(scores, reverse=True)
    assert [c["name"] for c in client.get("/api/images/3?text=BOLD").json()["cells"]] == [
        CLASSES[2]
    ]
    suspects = client.get("/api/suspects").json()
    assert suspects["total"] == len(suspects["suspects"]) > 0
    assert all(cell["suspect"] for cell in suspects["suspects"])
    progress = client.get("/api/progress").json()
    assert [one["name"] for one in progress["classes"]] == CLASSES
    assert all(len(one["sides"]) == 2 for one in progress["classes"])
    assert client.get("/api/images?text=01").json()["images"][0]["image"] == "001.png"


def test_thumbnails_are_made_once(client: TestClient, session: Session) -> None:
    first = client.get("/api/images/5/thumbnail")
    assert first.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(first.content)).size == (48, 36)
    files = list(session.images.cache.rglob("*.jpg"))
    assert len(files) == 1
    files[0].write_bytes(b"from the cache")
    assert client.get("/api/images/5/thumbnail").content == b"from the cache"


def test_a_picture_that_vanished_or_is_damaged_gets_a_message(
    client: TestClient, session: Session
) -> None:
    client.get("/api/images/7/thumbnail")
    folder = session.desk.opinions.images
    (folder / "007.png").unlink()
    (folder / "008.png").write_bytes(b"no picture")
    gone = client.get("/api/images/7/thumbnail")
    assert (gone.status_code, "not in" in gone.json()["message"]) == (404, True)
    damaged = client.get("/api/images/8/large")
    assert (damaged.status_code, "decoded" in damaged.json()["message"]) == (404, True)
    assert client.post("/api/acts", json=act(7, 2)).status_code == 200  # it can be skipped


def test_a_full_disk_is_said(client: TestClient, session: Session) -> None:
    session.journal._db.execute("PRAGMA max_page_count = 1")
    answers = [
        client.post("/api/acts", json=act(row, 1, f"act-{row:06}-{n}", CLASSES[2]))
        for n in range(4)
        for row in range(60)
    ]
    failed = [answer for answer in answers if answer.status_code == 507]
    assert failed
    assert "not kept" in failed[0].json()["message"]
    kept = sum(answer.status_code == 200 for answer in answers)
    assert session.journal.size() == kept


def test_classes_can_be_added_and_searched(client: TestClient) -> None:
    new = client.post("/api/classes", json={"name": "blue", "reviewer": "Ada"}).json()
    assert (new["new"], new["unknown"]) == (True, 60)
    names = [one["name"] for one in client.get("/api/classes").json()["classes"]]
    assert names == ["blue", *CLASSES]
    assert client.get("/api/classes?text=RE").json()["total"] == 2
    assert client.post("/api/tests", json={"name": "blue"}).status_code == 400
    assert client.post("/api/tests", json={"name": "none"}).status_code == 404


def test_the_export_is_an_archive(client: TestClient) -> None:
    client.post("/api/acts", json=act(4, 1))
    answer = client.get("/api/export?format=coco")
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    assert archive.namelist() == ["labels.json", "notes.txt", "verdicts.csv"]
    assert "Ada" in archive.read("verdicts.csv").decode()
    assert client.get("/api/export?format=nonsense").status_code == 400


@pytest.mark.parametrize("format", [name for name, one in FORMATS.items() if one.writable])
def test_every_format_can_be_downloaded(client: TestClient, format: str) -> None:
    client.post("/api/acts", json=act(4, 1))
    answer = client.get(f"/api/export?format={format}&filled=true")
    assert answer.status_code == 200, answer.text
    names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
    assert len([name for name in names if name not in ("verdicts.csv", "notes.txt")]) >= 1


def test_ten_thousand_classes(tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(10_000)]
    base = make_opinions(tmp_path / "data", images=20)
    wide = replace(
        base,
        table=LabelTable(list(base.table.ids), names, np.zeros((20, 10_000), dtype=np.int8)),
        scores=np.random.default_rng(0).random((10_000, 20), dtype=np.float32),
        decided=np.zeros((10_000, 20), dtype=np.int8),
        suspects=np.empty((0, 2), dtype=np.int64),
    )
    session = make_session(tmp_path, wide)
    client = TestClient(make_app(session, "Ada"))
    started = time.monotonic()
    assert client.get("/api/classes").json()["total"] == 10_000
    assert len(client.get("/api/images/3").json()["cells"]) == 300
    assert client.get("/api/images/3?text=class 9999").json()["total"] == 1
    assert len(client.get("/api/progress?limit=5").json()["classes"]) == 5
    assert time.monotonic() - started < 20
    session.close()


def test_a_run_without_features_says_that_it_does_not_learn(tmp_path: Path) -> None:
    base = make_opinions(tmp_path / "data")
    session = make_session(
        tmp_path, replace(base, features=None, learns="It trained its backbone.")
    )
    client = TestClient(make_app(session, "Ada"))
    status = client.get("/api/status").json()
    assert status["not_learning"] == "It trained its backbone."
    assert status["orders"][0] == "doubtful"
    assert client.post("/api/acts", json=act(0, 1)).status_code == 200
    request = {"name": "red", "order": "similar", "examples": [1]}
    answer = client.post("/api/board", json=request)
    assert (answer.status_code, answer.json()["message"]) == (400, "It trained its backbone.")
    session.close()


# ---- loading


def test_while_it_loads_the_page_says_so(tmp_path: Path) -> None:
    session = make_session(tmp_path, make_opinions(tmp_path / "data"))
    session._ready, session.step = None, "scoring the images"
    client = TestClient(make_app(session, "Ada"))
    status = client.get("/api/status").json()
    assert (status["ready"], status["step"]) == (False, "scoring the images")
    answer = client.post("/api/board", json={"name": "red"})
    assert (answer.status_code, "scoring" in answer.json()["message"]) == (503, True)
    session.error = "the images are gone"
    assert client.get("/api/status").json()["error"] == "the images are gone"
    session.close()


def test_the_server_answers_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fastapi.testclient import TestClient;"
        "sys.path.insert(0, sys.argv[2]);"
        "from reviews import make_opinions, make_session;"
        "from partlabel.output.review.web import make_app; import partlabel.output.review.serve;"
        "folder = Path(sys.argv[1]);"
        "session = make_session(folder, make_opinions(folder / 'data'));"
        "client = TestClient(make_app(session, 'Ada'));"
        "assert client.get('/api/status').json()['ready'];"
        "assert client.post('/api/board', json={'name': 'red'}).status_code == 200;"
        "assert 'torch' not in sys.modules; session.close()"
    )
    tests = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path), tests],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


# ---- the command


def test_mistakes_in_the_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review", str(tmp_path / "none"), "--no-browser"]) == 2
    assert "there is no run here" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["review", str(tmp_path), "--port", str(port), "--no-browser"]) == 2
    assert f"--port {port}: cannot listen" in capsys.readouterr().err
    assert main(["review", str(tmp_path), "--filled"]) == 2
    assert "without --export" in capsys.readouterr().err
    assert main(["review", str(tmp_path), "--min-precision", "95"]) == 2


# ---- its own description


@pytest.fixture(scope="module")
def open_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("schema")
    session = make_session(folder, make_opinions(folder / "data"))
    yield make_app(session, "Ada")
    session.close()


def test_no_request_makes_the_server_fail(open_app: Any) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", open_app)
    operations: list[Any] = [cast(Any, result).ok() for result in schema.get_all_operations()]
    assert len(operations) >= 14
    for operation in operations:

        @settings(
            max_examples=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def attack(case: Any) -> None:
            case.validate_response(case.call(), checks=[not_a_server_error])

        attack()


def test_every_path_is_described(open_app: Any) -> None:
    paths = set(TestClient(open_app).get("/openapi.json").json()["paths"])
    assert {"/api/acts", "/api/undo", "/api/board", "/api/export", "/api/images/{row}"} <= paths
