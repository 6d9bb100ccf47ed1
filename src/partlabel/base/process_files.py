"""Files when several processes carry out one command: the first writes, the others pretend to.

Each process but the first has a folder of its own for what it writes, and removes it in the end.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partlabel.base import processes

_PREFIX = "partlabel-process-"
_PIECE = 64 << 20  # bytes of a file that are sent at a time


class _State:
    """The folder of this process, and whether a block of :func:`own_folder` is open."""

    scratch: Path | None = None
    inside = False


_state = _State()


def may_write(path: Path) -> bool:
    """Whether this process may write here: the first anywhere, others in their own folder."""
    own = _state.scratch
    return processes.is_first() or (
        own is not None and Path(os.path.realpath(path)).is_relative_to(own)
    )


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """The folder itself in the first process; in others a copy, to write to as if it were alone.

    Blocks can be nested. Inner ones give the folder as it is, which must be within the outer one.
    """
    if processes.size() == 1 or _state.inside:
        yield folder
        return
    _state.inside = True
    try:
        yield _copied(folder)
    finally:
        _state.inside = False


def _copied(folder: Path) -> Path:
    """The folder, or a copy of that of the first process."""
    is_first = processes.is_first()
    names = processes.from_first(_files_in(folder) if is_first else [])
    target = folder if is_first else scratch() / folder.name
    if not is_first:
        shutil.rmtree(target, ignore_errors=True)
    for name in names:
        pieces = _pieces(folder / name) if is_first else iter(())
        while piece := processes.from_first(next(pieces, b"")):
            if not is_first:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                with (target / name).open("ab") as stream:
                    stream.write(piece)
        if not is_first and not (target / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).touch()
    return target


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _files_in(folder: Path) -> list[str]:
    """All files but hidden ones, such as locks."""
    files = sorted(folder.rglob("*")) if folder.is_dir() else []
    names = [path.relative_to(folder) for path in files if path.is_file()]
    return [str(name) for name in names if not name.name.startswith(".")]


def scratch() -> Path:
    """This process's own folder; those of processes that were killed are removed."""
    if _state.scratch is None:
        parent = Path(os.path.realpath(tempfile.gettempdir()))
        for old in parent.glob(f"{_PREFIX}*"):
            if not _is_running(old.name.removeprefix(_PREFIX).split("-")[0]):
                shutil.rmtree(old, ignore_errors=True)
        _state.scratch = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        atexit.register(shutil.rmtree, _state.scratch, ignore_errors=True)
    return _state.scratch


def _is_running(process: str) -> bool:
    return process.isdigit() and Path(f"/proc/{process}").exists()
