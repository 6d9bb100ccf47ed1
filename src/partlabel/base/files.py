"""Files written whole or not at all: what was there before stays until the new one is complete."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from partlabel.base.errors import InputError, JobError, PartlabelError

_WRONG_PLACE = {
    errno.ENOENT: "its folder does not exist",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the disk is read-only",
    errno.ENAMETOOLONG: "its name is too long",
}


def _explain(path: Path, error: OSError) -> PartlabelError:
    why = _WRONG_PLACE.get(error.errno or 0)
    if why is not None:
        return InputError(f"{path}: cannot write here: {why}")
    return JobError(f"{path}: writing failed ({error.strerror or error}); nothing was changed")


def _remember(folder: Path) -> None:
    """Make the system write down what is in a folder: a new name would not survive a power cut."""
    with suppress(OSError):  # not every system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _beside(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(6)}.partial")


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of ``path`` only when the block ends well."""
    given = Path(path)
    target = Path(os.path.realpath(given))  # a link stays a link, its target is replaced
    partial = _beside(target)
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if given.is_relative_to("/dev") or (mode is not None and not stat.S_ISREG(mode)):
            with given.open("ab") as stream:  # /dev/stdout may be a file that others write to
                yield stream
            return
        if mode is not None and not mode & 0o222:
            raise PermissionError(errno.EACCES, "is write-protected")
        with partial.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), stat.S_IMODE(mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
        _remember(target.parent)
    except OSError as error:
        raise _explain(given, error) from error
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new folder to fill, which becomes ``path`` (new, or an empty folder) at the end."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"{path}: exists and is not an empty folder; name a new one")
        partial = _beside(target)
        partial.mkdir()
    except OSError as error:
        raise _explain(Path(path), error) from error
    try:
        yield partial
        partial.replace(target)
    except OSError as error:
        raise _explain(Path(path), error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
