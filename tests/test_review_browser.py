"""Journeys through the review page in a real browser, with a real run and a real server."""

import io
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partlabel import LabelTable, read_labels, train, write_labels
from partlabel.base.errors import InputError
from partlabel.output.review.session import ReviewOptions, open_session, review_folder
from partlabel.output.review.verdicts import Value
from partlabel.output.review.web import page_files

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None
)
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
TINY: dict[str, Any] = {"backbone": "test_efficientnet", "weights": "none", "size": 64}
NAMES = ["<img src=x onerror=alert(1)>", "a & b"]  # that a page must not take for markup

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here; install one with: apt-get install chromium"
)


@pytest.fixture(scope="module")
def trained(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on forty images; two of its classes have names that look like markup."""
    folder = tmp_path_factory.mktemp("browser")
    labels = read_labels(scene / "partial.csv")
    classes = [*NAMES, *list(labels.classes)[2:]]
    table = LabelTable(labels.ids, classes, labels.dense(), labels.splits)
    write_labels(table, folder / "labels.csv")
    train(
        folder / "labels.csv", scene / "images", folder / "run",
        method="bce", frozen="all", epochs=2, batch=8, cache=folder / "cache", **TINY,
    )  # fmt: skip
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run; what the run says is computed once."""
    shutil.copytree(trained, tmp_path / "run")
    kept = review_folder(trained)
    if kept.is_dir():
        ignore = shutil.ignore_patterns("journal*", ".lock")
        shutil.copytree(kept, tmp_path / "run.review", ignore=ignore)
    return tmp_path / "run"


def test_other_labels_of_the_run_and_a_changed_file(run: Path, scene: Path) -> None:
    """Labels of some of the images, of an image that the run does not know, and of a new class."""
    full = read_labels(scene / "labels.csv")
    known = np.zeros((12, 3), dtype=np.int8)
    known[:, :2] = full.dense()[:12, :2]
    known[0, 2] = 1
    other = LabelTable(list(full.ids)[:12], [*NAMES, "other"], known)
    options = ReviewOptions(run, other, cache=run.parent / "cache")
    with open_session(options) as session:
        session.load()
        assert session.error == ""
        desk = session.desk
        assert desk.images == list(full.ids)[:12]
        assert desk.classes[:3] == [*NAMES, "other"]
        assert len(desk.classes) == 6  # with those of the run that the file does not have
        assert desk.run_scores("other") is None
        scores = desk.run_scores(NAMES[0])
        assert scores is not None
        assert not np.isnan(scores).any()
        desk.judge("an-act-of-ada", "Ada", [(3, "other", Value.PRESENT)])
        with pytest.raises(InputError, match="is in use by process"), open_session(options):
            pass
    known[1, 2] = -1
    changed = LabelTable(list(full.ids)[:12], [*NAMES, "other"], known)
    again = open_session(ReviewOptions(run, changed, cache=run.parent / "cache"))
    with pytest.raises(InputError, match="with other labels, and has 1 act"), again:
        pass
    with open_session(options) as session:  # with the first file it goes on
        session.load()
        assert session.desk.cell("other", 3).value == 1


class Server:
    """``partlabel review`` in a process of its own."""

    def __init__(self, run: Path, *options: str) -> None:
        self.run = run
        call = [sys.executable, "-m", "partlabel", "review", str(run), "--no-browser", *options]
        environment = {**os.environ, "PARTLABEL_CACHE": str(run.parent / "cache")}
        self.process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        self.address = found.group()
        self.port = int(re.search(r":(\d+)/", self.address).group(1))  # type: ignore[union-attr]

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        self.process.stdout.close()  # type: ignore[union-attr]
        return code

    def rows(self, query: str) -> list[Any]:
        path = review_folder(self.run) / "journal.sqlite"
        with sqlite3.connect(path) as database:
            return database.execute(query).fetchall()


@pytest.fixture
def serve(run: Path, trained: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*options: str) -> Server:
        servers.append(Server(run, "--reviewer", "Ada", *options))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.stop()
    made = list(review_folder(run).glob("opinions-*"))
    if made and not review_folder(trained).is_dir():  # for the next journeys
        shutil.copytree(review_folder(run), review_folder(trained))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[[Server], Any]]:
    """Opens a page in a browser of its own; errors on the page fail the test."""
    contexts, problems = [], list[str]()

    def open_page(server: Server) -> Any:
        context = chromium.new_context(viewport={"width": 1000, "height": 700})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"markup ran: {dialog.message}"))
        page.goto(server.address)
        page.wait_for_selector("body[data-ready=yes] .tile", timeout=60_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def until(page: Any, expression: str, argument: Any = None) -> None:
    """Wait until an expression is true; the policy of the page forbids Playwright's own waiting."""
    for _ in range(300):
        if page.evaluate(expression, argument):
            return
        time.sleep(0.05)
    raise AssertionError(expression)


def saved(page: Any) -> None:
    until(page, "document.getElementById('saved').textContent === 'All saved'")


def in_journal(server: Server, number: int) -> None:
    for _ in range(200):
        if server.rows("SELECT COUNT(*) FROM acts")[0][0] >= number:
            break
        time.sleep(0.05)
    assert server.rows("SELECT COUNT(*) FROM acts")[0][0] == number


@needs_browser
def test_a_board_is_labelled_by_keys_and_undone(
    serve: Callable[..., Server], visit: Callable[[Server], Any]
) -> None:
    server = serve()
    page = visit(server)
    assert page.url == f"http://127.0.0.1:{server.port}/#" + page.url.split("#")[1]  # no token
    assert page.inner_text("h1") == NAMES[0]
    tiles = page.locator(".tile")
    number = tiles.count()
    for key in ("1", "0", "Space"):
        page.keyboard.press(key)
    in_journal(server, 3)
    values = [row[0] for row in server.rows("SELECT value FROM verdicts ORDER BY act")]
    assert values == [1, -1, 2]
    assert "present" in tiles.nth(0).get_attribute("class")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator(".tile.chosen").count() == 3
    page.keyboard.press("1")
    in_journal(server, 4)
    assert server.rows("SELECT COUNT(*) FROM verdicts WHERE act = 4") == [(3,)]
    saved(page)
    page.keyboard.press("r")
    blind = page.locator(".tile.blind").count()
    until(page, "left => document.querySelectorAll('.tile.unknown').length === left", blind)
    saved(page)
    assert server.rows("SELECT COUNT(*) FROM verdicts")[0][0] == number - blind
    random = server.rows("SELECT inclusion FROM verdicts WHERE asked = 'random'")
    assert all(0 < inclusion <= 1 for (inclusion,) in random)
    acts = server.rows("SELECT COUNT(*) FROM acts")[0][0]
    for _ in range(acts):
        page.keyboard.press("u")
    in_journal(server, 2 * acts)
    saved(page)
    assert page.locator(".tile.unknown").count() == number
    page.keyboard.press("u")
    page.wait_for_selector("text=There is nothing to undo.")
    assert server.stop() == 0


@needs_browser
def test_tiles_that_do_not_fit_are_scrolled_and_not_squeezed(
    serve: Callable[..., Server], visit: Callable[[Server], Any]
) -> None:
    page = visit(serve())
    page.set_viewport_size({"width": 500, "height": 350})
    cut = "[...document.querySelectorAll('.tile')].filter(t => t.scrollHeight > t.clientHeight + 2)"
    assert page.evaluate("document.querySelector('.tiles').scrollHeight") > 350
    assert page.evaluate(f"{cut}.length") == 0


@needs_browser
def test_pages_fit_a_small_window_and_work_without_a_mouse(
    serve: Callable[..., Server], visit: Callable[[Server], Any]
) -> None:
    page = visit(serve())
    for key, title in (("F2", ".view img"), ("F3", "text=Suspects"), ("F4", "table")):
        page.keyboard.press(key)
        page.wait_for_selector(title)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 1000
    page.keyboard.press("F2")
    page.wait_for_selector(".line")
    page.keyboard.press("/")
    page.keyboard.type("a &")
    until(page, "document.querySelectorAll('.line').length === 1")
    assert page.inner_text(".line b") == NAMES[1]
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    saved(page)
    page.wait_for_selector(".line.present")
    page.keyboard.press("F1")
    page.wait_for_selector(".tile")
    box = page.locator(".tile").last.bounding_box()
    assert box["y"] + box["height"] <= 700 - 25  # no tile below the window
    shown = "[...document.querySelectorAll('.tile')].map(tile => tile.dataset.row).join()"
    before = page.evaluate(shown)
    page.keyboard.press("Enter")
    until(page, f"rows => {shown} !== rows", before)
    page.keyboard.press("b")
    until(page, f"rows => {shown} === rows", before)
    page.keyboard.press("]")
    until(page, "name => document.querySelector('h1').textContent === name", NAMES[1])
    page.locator("#classes a").first.click()  # keys work at once after a click, too
    until(page, f"rows => {shown} === rows", before)
    page.keyboard.press("Enter")
    until(page, f"rows => {shown} !== rows", before)


@needs_browser
def test_pages_that_are_not_shown_follow_what_happens(
    serve: Callable[..., Server], visit: Callable[[Server], Any]
) -> None:
    """Undo, quick changes of the order, two presses of Enter, and the numbers of classes."""
    page = visit(serve())
    page.set_viewport_size({"width": 700, "height": 450})  # few labels on a page
    page.uncheck("#random")
    for key in "]]]":  # to a class of the run with enough unknown labels
        page.keyboard.press(key)
    until(page, "document.querySelector('h1').textContent === 'striped-star'")
    page.select_option("#order", "likely")
    page.select_option("#order", "doubtful")  # before the first answer is here
    until(page, "document.querySelector('.info').textContent.startsWith('Page 1')")
    shown = "[...document.querySelectorAll('.tile')].map(tile => tile.dataset.row)"
    page.keyboard.press("1")
    saved(page)
    count = "document.querySelector('.class[aria-selected=true] small').textContent.includes('1 ✓')"
    until(page, count)
    first = page.evaluate(shown)
    press = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
    page.evaluate(f"[{press}, {press}].forEach(one => document.body.dispatchEvent(one))")
    until(page, "document.querySelector('.info').textContent.startsWith('Page 2')")
    assert not set(first) & set(page.evaluate(shown))
    page.keyboard.press("u")  # what is undone stands on the page before
    page.wait_for_selector("text=Undone:")
    until(page, f"!{count}")
    page.keyboard.press("b")
    until(page, f"rows => {shown}.join() === rows", ",".join(first))
    assert page.locator(".tile.present").count() == 0
    assert page.locator(".toast.error").count() == 0


@needs_browser
def test_controls_work_with_keys_and_do_not_take_them_after_a_click(
    serve: Callable[..., Server], visit: Callable[[Server], Any]
) -> None:
    server = serve()
    page = visit(server)
    page.focus("#random")
    page.keyboard.press("Space")
    assert not page.is_checked("#random")
    assert server.rows("SELECT COUNT(*) FROM acts") == [(0,)]
    page.click("#undo")
    page.keyboard.press("Space")  # skips a label; it is no second click
    in_journal(server, 1)
    keys = "document.getElementById('keys')"
    assert page.evaluate(f"{keys}.scrollWidth <= {keys}.clientWidth")  # no key is cut off
    page.keyboard.press("F4")
    page.wait_for_selector("table")
    page.keyboard.press("F3")


@needs_browser
def test_a_heat_map_on_a_key(serve: Callable[..., Server], visit: Callable[[Server], Any]) -> None:
    page = visit(serve())
    page.uncheck("#random")
    page.keyboard.press("]")
    # not the tiles of the class before: these are replaced, with what was pressed on them
    until(page, "name => document.querySelector('h1').textContent === name", NAMES[1])
    page.wait_for_selector(".tile")
    page.keyboard.press("h")
    page.wait_for_selector(".tile.cursor img[src*=heat]", timeout=60_000)
    page.keyboard.press("h")
    page.wait_for_selector(".tile.cursor img[src*=thumbnail]")


@needs_browser
def test_two_reviewers_in_two_browsers(
    serve: Callable[..., Server], visit: Callable[[Server], Any]
) -> None:
    server = serve()
    ada, bob = visit(server), visit(server)
    bob.click("#who")
    bob.fill("dialog input", "Bob <b>")
    bob.keyboard.press("Enter")
    bob.wait_for_selector("#who:has-text('Bob <b>')")
    row = ada.get_attribute(".tile.cursor", "data-row")
    same = f".tile[data-row='{row}']"
    ada.keyboard.press("1")
    saved(ada)
    bob.wait_for_selector(f"{same}.present")  # Bob sees what Ada did
    bob.click(same)
    bob.keyboard.press("0")
    bob.wait_for_selector(f"{same}.conflict")
    ada.wait_for_selector(f"{same}.conflict")
    bob.keyboard.press("F3")
    bob.wait_for_selector(".tile.conflict")
    assert "Bob <b>: absent" in bob.inner_text(".tile.conflict")
    assert server.rows("SELECT reviewer, value FROM acts JOIN verdicts ON act = number") == [
        ("Ada", 1),
        ("Bob <b>", -1),
    ]


@needs_browser
def test_nothing_is_lost_or_doubled_when_the_server_is_killed(
    serve: Callable[..., Server], visit: Callable[[Server], Any]
) -> None:
    # a port of its own: the usual one could be taken by another test while no server runs
    server = serve("--port", str(free_port()))
    page = visit(server)
    confirmed = list[str]()
    page.on("response", lambda answer: confirmed.append(answer.request.post_data or "")
            if answer.url.endswith("/api/acts") and answer.status == 200 else None)  # fmt: skip
    for number in range(200):
        page.keyboard.press("1" if number % 2 else "0")
        if number == 90:
            server.stop(signal.SIGKILL)
    page.wait_for_selector("#saved.bad")
    kept = {row[0] for row in server.rows("SELECT id FROM acts")}
    assert {json.loads(body)["id"] for body in confirmed} <= kept
    assert 0 < len(kept) < 200
    again = serve("--port", str(server.port))
    page.goto(again.address)
    page.wait_for_selector("body[data-ready=yes] .tile", timeout=60_000)
    saved(page)
    in_journal(again, 200)
    assert again.rows("SELECT COUNT(DISTINCT id) FROM acts") == [(200,)]
    assert again.rows("SELECT COUNT(*) FROM verdicts") == [(200,)]
    values = [row[0] for row in again.rows("SELECT value FROM verdicts ORDER BY act")]
    assert values == [1 if number % 2 else -1 for number in range(200)]


@needs_browser
def test_without_the_token_nobody_gets_in(serve: Callable[..., Server], chromium: Any) -> None:
    server = serve()
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(f"http://127.0.0.1:{server.port}/")
    assert answer.status == 403
    assert page.locator(".tile").count() == 0
    assert page.goto(f"http://127.0.0.1:{server.port}/?token=guess").status == 403
    context.close()


@needs_browser
def test_a_new_class(serve: Callable[..., Server], visit: Callable[[Server], Any]) -> None:
    server = serve()
    page = visit(server)
    page.keyboard.press("c")
    page.keyboard.type("stripes")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search")  # there is no example yet
    page.wait_for_selector(".tile")
    for key in "1010101010":
        page.keyboard.press(key)
    saved(page)
    until(page, "document.getElementById('learning').textContent.startsWith('Learned')")
    page.select_option("#order", "likely")
    page.wait_for_selector(".tile .score:has-text('now')")
    page.keyboard.press("F4")
    page.click("button:has-text('Test the scores')")
    page.wait_for_selector("td:has-text('missing for')")
    page.keyboard.press("F1")
    page.wait_for_selector("h1:has-text('stripes')")
    page.click("#next")
    page.wait_for_selector(".tile.blind")
    assert server.rows("SELECT name FROM classes") == [("stripes",)]
    assert server.rows("SELECT COUNT(*) FROM draws WHERE class = 'stripes'")[0][0] > 0


@needs_browser
def test_the_button_exports(
    serve: Callable[..., Server], visit: Callable[[Server], Any], run: Path, tmp_path: Path
) -> None:
    server = serve()
    page = visit(server)
    page.keyboard.press("1")
    saved(page)
    page.click("#export")
    page.select_option("dialog select", "cells")
    with page.expect_download() as download:
        page.click("dialog button[type=submit]")
    archive = zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert archive.namelist() == ["labels.csv", "verdicts.csv"]
    assert server.stop() == 0
    target = tmp_path / "out.csv"
    call = [sys.executable, "-m", "partlabel", "review", str(run), "--export", str(target)]
    subprocess.run([*call, "--to", "cells"], check=True)
    assert target.read_bytes() == archive.read("labels.csv")
    assert (tmp_path / "verdicts.csv").read_bytes() == archive.read("verdicts.csv")


@needs_browser
def test_a_run_without_its_images_says_so(
    run: Path, scene: Path, tmp_path: Path, chromium: Any
) -> None:
    record = json.loads((run / "run.json").read_text())
    assert record["images"]["absolute"] == str((scene / "images").resolve())
    call = [sys.executable, "-m", "partlabel", "review", str(run), "--no-browser"]
    gone = subprocess.run(
        [*call, "--images", str(tmp_path / "nowhere")], capture_output=True, text=True
    )
    assert gone.returncode == 2
    assert "nowhere" in gone.stderr


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, as WCAG 2 defines it."""

    def luminance(color: str) -> float:
        parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_have_a_readable_contrast(scheme: int) -> None:
    style = page_files()["style.css"].decode()
    block = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]
    colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    pairs = [(name, "surface") for name in ("text", "quiet", "accent", "random", "warn", "bad")]
    pairs += [("text", "ground"), ("quiet", "ground"), ("on-accent", "accent")]
    pairs += [("text", f"{kind}-soft") for kind in ("present", "absent", "random")]
    pairs += [("surface", kind) for kind in ("present", "absent", "random", "bad", "warn")]
    pairs += [("quiet", "present-soft"), ("quiet", "absent-soft"), ("random", "random-soft")]
    for one, other in pairs:
        assert contrast(colors[one], colors[other]) >= 4.5, (one, other)
