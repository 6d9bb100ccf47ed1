"""Atomic writes: the old file stays until the new one is complete."""

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

# errors that mean that the path is wrong; any other error means that writing failed
_BAD_PATH_REASONS = {
    errno.ENOENT: "its folder does not exist",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the disk is read-only",
    errno.ENAMETOOLONG: "its name is too long",
}


def _write_error(path: Path, error: OSError) -> PartlabelError:
    reason = _BAD_PATH_REASONS.get(error.errno or 0)
    if reason is not None:
        return InputError(f"{path}: cannot write here: {reason}")
    return JobError(f"{path}: writing failed ({error.strerror or error}); nothing was changed")


def _sync_folder(folder: Path) -> None:
    """Flush a folder to disk; without this a new file name would not survive a power cut."""
    with suppress(OSError):  # some systems cannot sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _temporary_path(path: Path) -> Path:
    """A new name in the same folder, so that a rename can replace ``path``."""
    return path.with_name(f".{secrets.token_hex(6)}.partial")


def _is_stream(path: Path) -> bool:
    """Whether a path names a stream of this process, such as ``/dev/stdout`` or ``/dev/fd/3``."""
    name = os.path.normpath(path.absolute())
    return name in ("/dev/stdout", "/dev/stderr") or name.startswith(("/dev/fd/", "/proc/self/fd/"))


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing; it replaces ``path`` if the block ends without an error.

    Devices, pipes and the process's own streams, such as ``/dev/stdout``, are written directly.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))  # a link stays a link, its target is replaced
    temporary = _temporary_path(target)
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if _is_stream(path) or (mode is not None and not stat.S_ISREG(mode)):
            with path.open("ab") as stream:  # append: /dev/stdout may be a file with other output
                yield stream
            return
        if mode is not None and not mode & 0o222:
            raise PermissionError(errno.EACCES, "is write-protected")
        with temporary.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), stat.S_IMODE(mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _write_error(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Create a temporary folder to fill; it becomes ``path`` if the block ends without an error.

    ``path`` must not exist, or be an empty folder.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"{path}: exists and is not an empty folder; choose a new name")
        temporary = _temporary_path(target)
        temporary.mkdir()
    except OSError as error:
        raise _write_error(Path(path), error) from error
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise _write_error(Path(path), error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
