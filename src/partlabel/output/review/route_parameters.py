"""What all routes share: parameters of requests, and the form of errors."""

from typing import Annotated, Any

from fastapi import Path as InPath
from fastapi import Query

from partlabel.output.review import messages

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": messages.Problem} for code in (400, 404, 422, 503, 507)
}

RowInPath = Annotated[int, InPath(ge=0, lt=2**31)]
Filter = Annotated[messages.Text, Query()]
Limit = Annotated[int, Query(ge=1, le=1000)]
Start = Annotated[int, Query(ge=0, lt=2**31)]
