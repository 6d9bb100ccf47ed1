"""Starts the server of the review page on this computer."""

import contextlib
import secrets
import socket
import sys
import threading
import webbrowser
from pathlib import Path

from partlabel.base.errors import InputError, JobError
from partlabel.base.terminal import complain, say
from partlabel.output.review.session import ReviewOptions, Session, in_thread, open_session

PORT = 8765
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def review(
    options: ReviewOptions,
    reviewer: str,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
) -> int:
    """Serve the page until it is stopped; returns the exit code.

    Args:
        options: what to review.
        reviewer: the name that the page suggests.
        host: the address to listen on; all but loopback can be reached by others.
        port: None for 8765, or any other if that is in use.
        browser: whether to open the page in a browser.
    """
    try:
        import uvicorn

        from partlabel.output.review.web import guarded, make_app
    except ImportError as error:
        raise InputError(
            f"the page needs more packages ({error.name} is missing); install them with: "
            "pip install 'partlabel[web]'"
        ) from error
    with _listen(host, port) as listener, open_session(options) as session:
        number = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = guarded(make_app(session, reviewer), token, _names(host, number), number)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=60)
        server = uvicorn.Server(config)
        address = f"http://{_shown(host)}:{number}/?token={token}"
        say(f"review of {options.run}: {address}")
        if host not in ("127.0.0.1", "localhost", "::1"):
            complain("warning", "others can reach this page, and it is not encrypted", "yellow")
        say("Stop with Ctrl-C. Every verdict is kept at once; start again to go on.")
        stays = browser and sys.stdout.isatty()

        def loaded() -> None:
            if session.error:
                complain("error", session.error, "bold red")
                server.should_exit = server.should_exit or not stays

        in_thread(session, loaded)
        if browser:
            threading.Thread(target=_open, args=(address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
        _say_goodbye(session)
        return session.exit_code


def _open(address: str) -> None:
    with contextlib.suppress(Exception):  # no browser: the address was printed
        webbrowser.open(address)


def _say_goodbye(session: Session) -> None:
    if not session.error:
        say(f"stopped; {session.journal.path} has {session.journal.size():,} acts of reviewers")


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens; without a port of the caller's choice, any other is fine."""
    if port is not None:
        return _bound(host, port)
    try:
        return _bound(host, PORT)
    except InputError:
        return _bound(host, 0)


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(
            f"--port {port}: cannot listen at {host} ({error.strerror}); choose another with --port"
        ) from error
    return listener


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _names(host: str, port: int) -> list[str]:
    """The values of the Host header that are this page's own."""
    names = {*_LOOPBACK, _shown(host).lower()}
    if host in ("0.0.0.0", "::"):
        names.add(socket.gethostname().lower())
        with contextlib.suppress(OSError):
            names.update(socket.gethostbyname_ex(socket.gethostname())[2])
    return [f"{name}:{port}" for name in sorted(names)]


def export_review(
    options: ReviewOptions,
    path: Path,
    format: str | None,
    *,
    filled: bool = False,
    excel_safe: bool = False,
) -> list[Path]:
    """Write the labels with all verdicts, without a page."""
    from partlabel.output.review.review_export import write_review

    with open_session(options) as session:
        session.load()
        if session.error:
            raise (InputError if session.exit_code == 2 else JobError)(session.error)
        return write_review(session.desk, path, format, filled=filled, excel_safe=excel_safe)
