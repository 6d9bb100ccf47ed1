"""Requests about images and files: search, pictures, heat maps, similar images, the download."""

import tempfile
import threading
import warnings
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from partlabel.base.errors import InputError, PartlabelWarning, one_of
from partlabel.labels.formats import FORMATS
from partlabel.output.review import messages
from partlabel.output.review.review_export import write_review
from partlabel.output.review.route_parameters import PROBLEMS, Filter, Limit, RowInPath
from partlabel.output.review.session import Session

_DAY = {"cache-control": "private, max-age=86400"}
_export_lock = threading.Lock()  # filters of warnings belong to the process


def add_pictures(app: FastAPI, session: Session) -> None:
    """Add the requests for images and pictures."""

    @app.get("/api/images", responses=PROBLEMS)
    def find(text: Filter = "", limit: Limit = 50) -> messages.FoundImages:
        """The images whose name has a text in it."""
        names = session.desk.images
        rows = [row for row, name in enumerate(names) if text.lower() in name.lower()]
        images = [messages.Found(row=row, image=names[row]) for row in rows[:limit]]
        return messages.FoundImages(total=len(rows), images=images)

    @app.get("/api/images/{row}", responses=PROBLEMS)
    def picture(row: RowInPath, text: Filter = "", limit: Limit = 300) -> messages.Picture:
        """An image with its labels, likely ones first."""
        desk = session.desk
        names = desk.picture_order(row, text.lower())
        with desk.lock:
            cells = [desk.cell(name, row) for name in names[:limit]]
        return messages.Picture(row=row, image=desk.image(row), total=len(names), cells=cells)

    image_answer: dict[int | str, dict[str, Any]] = {
        200: {"content": {"image/jpeg": {}}},
        **PROBLEMS,
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
        path = session.images.stored(row)
        content = session.model().heat_map(path, name, session.head(name), desk.opinions.features)
        return Response(content, media_type="image/jpeg")

    @app.post("/api/examples", responses=PROBLEMS, include_in_schema=False)
    async def example(request: Request) -> messages.FoundImages:
        """The images most similar to a picture that is sent; it is not kept."""
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
    images = [messages.Found(row=row, image=desk.images[row]) for row in rows]
    return messages.FoundImages(total=len(images), images=images)


def add_export(app: FastAPI, session: Session) -> None:
    """Add the request for the labels with all verdicts."""
    answer: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/zip": {}}},
        **PROBLEMS,
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
