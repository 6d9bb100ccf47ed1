"""The web application of the review page. It holds no logic: it asks the session."""

from collections.abc import Sequence
from functools import partial
from importlib import resources
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from partlabel.base.errors import InputError, JobError
from partlabel.base.validation import in_words
from partlabel.output.review.file_routes import add_export, add_pictures
from partlabel.output.review.guard import App, Guard
from partlabel.output.review.label_routes import add_boards, add_classes, add_state
from partlabel.output.review.review_images import MissingImageError
from partlabel.output.review.review_labels import UnknownNameError
from partlabel.output.review.session import LoadingError, Session
from partlabel.version import VERSION

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


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
    add_state(app, session, reviewer)
    add_boards(app, session)
    add_classes(app, session)
    add_pictures(app, session)
    add_export(app, session)
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
        return JSONResponse({"message": f"{where}: {in_words(first)}"}, 422)

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
