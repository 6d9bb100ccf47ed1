"""Atomic writes: the old file stays until the new one is complete.

If several processes carry out one command, only the first writes; what others write is discarded.
"""

import errno
import hashlib
import os
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from partlabel.base.errors import InputError, JobError, PartlabelError
from partlabel.base.process_files import may_write, scratch

_PARTIAL = ".partial"  # the end of the names of temporary files

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
    """A new name in the same folder, so that a rename can replace ``path``.

    It names the computer and the process, so that :func:`sweep` knows whether it is still needed.
    """
    return path.with_name(f".{_host()}-{os.getpid()}-{secrets.token_hex(6)}{_PARTIAL}")


def _host() -> str:
    """A short name of this computer that is valid in a file name."""
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()


def sweep(folder: Path) -> None:
    """Remove temporary files and folders in a folder whose process has ended."""
    for path in folder.glob(f".{_host()}-*{_PARTIAL}"):
        process = path.name.split("-")[1]
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                path.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, but belongs to someone else
        return True
    return True


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
    if not may_write(path):
        with tempfile.TemporaryFile(dir=scratch()) as discarded:
            yield discarded
        return
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
    if not may_write(target):
        with tempfile.TemporaryDirectory(dir=scratch()) as discarded:
            yield Path(discarded)
        return
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


@contextmanager
def atomic_group(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each file. When the block ends, all files are replaced together.

    All new files are complete before the first old one is touched. If the process is killed while
    they are being replaced, files after the first may be missing, but none is older than the first.
    """
    folder = paths[0].parent
    if not may_write(paths[0]):
        with tempfile.TemporaryDirectory(dir=scratch()) as discarded:
            yield [Path(discarded) / path.name for path in paths]
        return
    temporary = _temporary_path(paths[0])
    try:
        temporary.mkdir()
        staged = [temporary / path.name for path in paths]
        yield staged
        for path in paths[1:]:
            path.unlink(missing_ok=True)
        for new, path in zip(staged, paths, strict=True):
            new.replace(path)
        _sync_folder(folder)
    except OSError as error:
        raise _write_error(paths[0], error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
