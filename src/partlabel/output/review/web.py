"""The web application of the review page. It holds no logic: it asks the session."""

import tempfile
import threading
import warnings
import zipfile
from collections.abc import Sequence
from functools import partial
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from partlabel.base.errors import InputError, JobError, PartlabelWarning, one_of
from partlabel.labels.formats import FORMATS
from partlabel.output.review import messages
from partlabel.output.review.guard import App, Guard
from partlabel.output.review.orders import ORDERS
from partlabel.output.review.review_export import write_review
from partlabel.output.review.review_images import MissingImageError
from partlabel.output.review.review_labels import UnknownNameError
from partlabel.output.review.review_progress import class_progress, speeds
from partlabel.output.review.session import LoadingError, Session
from partlabel.output.review.verdicts import Value
from partlabel.version import VERSION

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_DAY = {"cache-control": "private, max-age=86400"}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": messages.Problem} for code in (400, 404, 422, 503, 507)
}
_export_lock = threading.Lock()  # filters of warnings belong to the process

RowInPath = Annotated[int, InPath(ge=0, lt=2**31)]
Filter = Annotated[messages.Text, Query()]
Limit = Annotated[int, Query(ge=1, le=1000)]
Start = Annotated[int, Query(ge=0, lt=2**31)]


def page_files() -> dict[str, bytes]:
    """The files of the page by name."""
    folder = resources.files("partlabel.output.review") / "page"
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if Path(file.name).suffix in _TYPES
    }


def make_app(session: Session, reviewer: str) -> FastAPI:
    """The application for a session, without the guard.

    Args:
        reviewer: the name that the page suggests.
    """
    app = FastAPI(title="partlabel review", version=VERSION, docs_url=None, redoc_url=None)
    _add_errors(app)
    _add_page(app)
    _add_state(app, session, reviewer)
    _add_boards(app, session)
    _add_classes(app, session)
    _add_pictures(app, session)
    _add_export(app, session)
    return app


def guarded(app: FastAPI, token: str, hosts: Sequence[str], port: int) -> App:
    """The application behind its guard."""
    return Guard(app, token, hosts, f"partlabel_review_{port}")


def _add_errors(app: FastAPI) -> None:
    def answer(code: int, request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"message": str(error)}, code)

    def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"message": f"{where}: {first['msg']}"}, 422)

    kinds: list[tuple[type[Exception], int]] = [
        (LoadingError, 503),
        (UnknownNameError, 404),
        (MissingImageError, 404),
        (InputError, 400),
        (JobError, 507),
    ]
    for kind, code in kinds:
        app.add_exception_handler(kind, partial(answer, code))
    app.add_exception_handler(RequestValidationError, invalid)


def _add_page(app: FastAPI) -> None:
    files = page_files()

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return Response(files["index.html"], media_type="text/html")

    @app.get("/page/{name}", include_in_schema=False)
    def file(name: str) -> Response:
        if name not in files:
            return JSONResponse({"message": "there is no such file"}, 404)
        return Response(files[name], media_type=_TYPES[Path(name).suffix])


def _add_state(app: FastAPI, session: Session, reviewer: str) -> None:
    @app.get("/api/status", responses=_PROBLEMS)
    def status() -> messages.Status:
        """Where the review stands; answers while it loads."""
        about = session.journal.about()
        result = messages.Status(
            ready=session.ready,
            step=session.step,
            error=session.error,
            run=str(session.options.run),
            journal=about.get("seed", "") or about.get("began", ""),
            reviewer=reviewer,
            precision=session.options.precision,
            formats=[name for name, one in FORMATS.items() if one.writable],
            orders=list(ORDERS),
        )
        if session.ready:
            desk, background = session.desk, session.background
            result.images, result.classes = len(desk.images), len(desk.classes)
            result.number, result.notes = desk.standings.number, desk.opinions.notes
            result.fits = 0 if background is None else background.fits
            result.learning = "" if background is None else background.now
            result.not_learning = session.why_not_learning()
        return result

    @app.get("/api/changes", responses=_PROBLEMS)
    def changes(after: Start = 0) -> messages.Changes:
        """The labels that acts after a number have changed, of all reviewers."""
        desk, background = session.desk, session.background
        number = desk.standings.number
        return messages.Changes(
            number=number,
            fits=0 if background is None else background.fits,
            learning="" if background is None else background.now,
            not_learning=session.why_not_learning(),
            cells=desk.changes(after) if after < number else [],
        )

    @app.get("/api/progress", responses=_PROBLEMS)
    def progress(text: Filter = "", start: Start = 0, limit: Limit = 50) -> messages.ProgressAnswer:
        """How the review goes: classes with verdicts and new classes first."""
        desk = session.desk
        with desk.lock:
            names = [name for name in desk.classes if text.lower() in name.lower()]
            new = set(desk.new_classes)
            names.sort(key=lambda name: (name not in new, -desk.standings.count(name)))
            conflicts = sum(one.conflict for _, _, one in desk.standings.all())
            total = sum(map(desk.standings.count, desk.classes))
        return messages.ProgressAnswer(
            total=len(names),
            precision=desk.opinions.precision,
            classes=[class_progress(desk, name) for name in names[start : start + limit]],
            speeds=speeds(desk),
            conflicts=conflicts,
            verdicts=total,
        )


def _add_boards(app: FastAPI, session: Session) -> None:
    @app.post("/api/board", responses=_PROBLEMS)
    def board(request: messages.BoardRequest) -> messages.BoardAnswer:
        """The next labels of a class to look at."""
        desk, background = session.desk, session.background
        if request.rows is not None:
            cells = desk.cells(request.name, request.rows)
        else:
            cells = desk.board(
                request.name,
                request.order,
                request.size,
                request.seen,
                request.random,
                request.examples,
            )
        return messages.BoardAnswer(
            cells=cells,
            fits=0 if background is None else background.fits,
            until_learned=None if background is None else background.until_next(request.name),
        )

    @app.post("/api/acts", responses=_PROBLEMS)
    def act(request: messages.ActRequest) -> messages.ActAnswer:
        """Keep verdicts; the answer comes when they are on disk."""
        verdicts = {(one.row, one.name): Value(one.value) for one in request.verdicts}
        triples = [(row, name, value) for (row, name), value in verdicts.items()]
        judged = session.desk.judge(request.id, request.reviewer, triples)
        session.notice()
        return messages.ActAnswer(
            number=judged.number, repeated=judged.repeated, cells=judged.cells
        )

    @app.post("/api/undo", responses=_PROBLEMS)
    def undo(request: messages.UndoRequest) -> messages.UndoAnswer:
        """Take back the last act of a reviewer."""
        done = session.desk.undo(request.id, request.reviewer)
        if done is None:
            number = session.desk.standings.number
            return messages.UndoAnswer(number=number, undone=False, cells=[])
        return messages.UndoAnswer(number=done.number, undone=True, cells=done.cells)

    @app.get("/api/suspects", responses=_PROBLEMS)
    def suspects(start: Start = 0, limit: Limit = 60) -> messages.SuspectList:
        """Known labels that look wrong and have no verdict, and labels that reviewers differ on."""
        desk = session.desk
        with desk.lock:
            pairs = desk.open_suspects()
            shown = [desk.cell(name, row) for row, name in pairs[start : start + limit]]
            differing = [
                desk.cell(name, desk.row_of[image])
                for name, image, one in desk.standings.all()
                if one.conflict
            ]
        return messages.SuspectList(total=len(pairs), conflicts=differing[:limit], suspects=shown)


def _add_classes(app: FastAPI, session: Session) -> None:
    @app.get("/api/classes", responses=_PROBLEMS)
    def classes(text: Filter = "", limit: Limit = 200) -> messages.ClassList:
        """The classes whose name has a text in it; new ones first."""
        desk = session.desk
        with desk.lock:
            ordered = [*desk.new_classes, *desk.table.classes]
            names = [name for name in ordered if text.lower() in name.lower()]
            lines = [
                messages.ClassLine(
                    name=name,
                    new=name in desk.new_classes,
                    unknown=desk.unknown_count(name),
                    verdicts=desk.standings.count(name),
                    suspects=desk.suspect_count(name),
                )
                for name in names[:limit]
            ]
        return messages.ClassList(total=len(names), classes=lines)

    @app.post("/api/classes", responses=_PROBLEMS)
    def new_class(request: messages.ClassRequest) -> messages.ClassLine:
        """Add a class; one that exists stays as it is."""
        session.desk.add_class(request.name, request.reviewer)
        desk = session.desk
        return messages.ClassLine(
            name=request.name,
            new=request.name in desk.new_classes,
            unknown=desk.unknown_count(request.name),
            verdicts=desk.standings.count(request.name),
            suspects=0,
        )

    @app.post("/api/tests", responses=_PROBLEMS)
    def test(request: messages.TestRequest) -> messages.Problem:
        """Fix the scores of a new class, and test them with random labels from now on."""
        session.desk.start_test(request.name)
        return messages.Problem(message="")

    @app.post("/api/examples", responses=_PROBLEMS, include_in_schema=False)
    async def example(request: Request) -> messages.FoundImages:
        """The images most similar to a picture that is sent; it is not kept."""
        from fastapi.concurrency import run_in_threadpool

        return await run_in_threadpool(_similar, session, await request.body())


def _similar(session: Session, content: bytes) -> messages.FoundImages:
    desk = session.desk
    features = desk.opinions.features
    if features is None:
        raise InputError(desk.opinions.learns)
    with tempfile.NamedTemporaryFile(suffix=".image") as file:
        file.write(content)
        file.flush()
        vector = session.model().embed(Path(file.name))
    rows = features.nearest(vector, 12).tolist()
    found = [messages.Found(row=row, image=desk.images[row]) for row in rows]
    return messages.FoundImages(total=len(found), images=found)


def _add_pictures(app: FastAPI, session: Session) -> None:
    @app.get("/api/images", responses=_PROBLEMS)
    def find(text: Filter = "", limit: Limit = 50) -> messages.FoundImages:
        """The images whose name has a text in it."""
        names = session.desk.images
        rows = [row for row, name in enumerate(names) if text.lower() in name.lower()]
        found = [messages.Found(row=row, image=names[row]) for row in rows[:limit]]
        return messages.FoundImages(total=len(rows), images=found)

    @app.get("/api/images/{row}", responses=_PROBLEMS)
    def picture(row: RowInPath, text: Filter = "", limit: Limit = 300) -> messages.Picture:
        """An image with its labels, likely ones first."""
        desk = session.desk
        names = desk.picture_order(row, text.lower())
        with desk.lock:
            cells = [desk.cell(name, row) for name in names[:limit]]
        return messages.Picture(row=row, image=desk.image(row), total=len(names), cells=cells)

    image_answer: dict[int | str, dict[str, Any]] = {
        200: {"content": {"image/jpeg": {}}},
        **_PROBLEMS,
    }

    @app.get("/api/images/{row}/thumbnail", responses=image_answer, response_class=Response)
    def thumbnail(row: RowInPath) -> Response:
        """A small picture."""
        session.desk.image(row)
        return Response(session.images.thumbnail(row), media_type="image/jpeg", headers=_DAY)

    @app.get("/api/images/{row}/large", responses=image_answer, response_class=Response)
    def large(row: RowInPath) -> Response:
        """A picture that fills a window."""
        session.desk.image(row)
        return Response(session.images.large(row), media_type="image/jpeg", headers=_DAY)

    @app.get("/api/images/{row}/heat", responses=image_answer, response_class=Response)
    def heat(row: RowInPath, name: Annotated[messages.Name, Query()]) -> Response:
        """A picture under the heat map of a class. A label that waits as random has none."""
        desk = session.desk
        if desk.cell(name, row).blind:
            raise InputError("this label was drawn at random: decide by the picture alone")
        path = session.images.path(row)
        content = session.model().heat_map(path, name, session.head(name), desk.opinions.features)
        return Response(content, media_type="image/jpeg")


def _add_export(app: FastAPI, session: Session) -> None:
    answer: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/zip": {}}},
        **_PROBLEMS,
    }

    @app.get("/api/export", responses=answer, response_class=Response)
    def export(format: Filter = "cells", filled: bool = False) -> Response:
        """The labels with all verdicts, and verdicts.csv, in one archive."""
        one_of("format", format, [name for name, one in FORMATS.items() if one.writable])
        content = _archive(session, format, filled)
        headers = {"content-disposition": 'attachment; filename="reviewed-labels.zip"'}
        return Response(content, media_type="application/zip", headers=headers)


def _file_name(format: str) -> str:
    """The name of a label file, or of a folder, in an archive."""
    json = dict.fromkeys(("coco", "lvis", "label-studio"), "labels.json")
    more = {"cvat": "labels.xml", "arrow": "labels.arrow", "names": "labels.txt"}
    return {**json, **more, "voc": "labels", "hf": "metadata.csv"}.get(format, "labels.csv")


def _archive(session: Session, format: str, filled: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder, _export_lock, warnings.catch_warnings():
        warnings.simplefilter("always", PartlabelWarning)
        notes: list[str] = []
        warnings.showwarning = lambda message, *rest, **more: notes.append(str(message))
        target = Path(folder) / _file_name(format)
        write_review(session.desk, target, format, filled=filled)
        if notes:
            (Path(folder) / "notes.txt").write_text("\n".join(notes).replace(folder, "") + "\n")
        stream = BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(folder))
        return stream.getvalue()
