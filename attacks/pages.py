"""A review page that runs in a child, and requests to it."""

import http.client
import json
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from attacks.harness import PATIENCE, Child, Failure

_HEADERS = {"x-partlabel": "review", "content-type": "application/json"}


class Page:
    """The server of ``partlabel review``, with the cookie that its address gives."""

    def __init__(self, run: Path, *options: str) -> None:
        self.child = Child(["review", str(run), "--port", "0", "--no-browser", *options])
        found = re.search(
            r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)", self.child.read_until(b"Ctrl-C")
        )
        if found is None:
            self.child.kill()
            raise Failure(f"the page did not start: {self.child.wait().output[-300:]!r}")
        self.port, self.headers = int(found[1]), dict(_HEADERS)
        status, headers, _ = self._send("GET", f"/?token={found[2]}")
        if status != http.client.SEE_OTHER:
            raise Failure(f"the token was refused with {status}")
        self.headers["cookie"] = headers["set-cookie"].partition(";")[0]

    def __enter__(self) -> "Page":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None and self.child.running():
            self.child.kill()
            self.child.wait()

    def _send(self, method: str, path: str, content: bytes | None = None) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, content, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and content of an answer; an error of the server is a failure."""
        content = None if body is None else json.dumps(body).encode()
        status, _, answer = self._send(method, path, content)
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise Failure(f"{method} {path} {body}: {status} {answer[:200]!r}")
        return status, answer

    def get(self, path: str) -> Any:
        """The content of an answer that must be a good one."""
        return self._good("GET", path)

    def post(self, path: str, body: Any) -> Any:
        """Send a request that must be accepted."""
        return self._good("POST", path, body)

    def _good(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.ask(method, path, body)
        if status != http.client.OK:
            raise Failure(f"{method} {path} {body}: {status} {answer[:200]!r}")
        return json.loads(answer)

    def wait_until_ready(self) -> None:
        """Wait until the review is loaded."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            status = self.get("/api/status")
            if status["error"]:
                raise Failure(f"the page did not load: {status['error']}")
            if status["ready"]:
                return
            time.sleep(0.02)
        raise Failure("the page did not load")

    def judge(self, act: str, verdicts: list[tuple[int, str, int]]) -> Any:
        """Send verdicts on labels: row, class and value."""
        cells = [{"row": row, "name": name, "value": value} for row, name, value in verdicts]
        return self.post("/api/acts", {"id": act, "reviewer": "Ada", "verdicts": cells})
