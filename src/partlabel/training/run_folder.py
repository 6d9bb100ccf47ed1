"""The folder of a run while it is trained into: empty or the same run, and locked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partlabel.base.errors import FileError, InputError
from partlabel.base.files import sweep
from partlabel.base.locks import LOCK, locked
from partlabel.training.run import Record, Run
from partlabel.training.settings import Settings


@contextmanager
def open_folder(run: Run, record: Record, *, resume: bool) -> Iterator[bool]:
    """Make the folder of a run, or check that it may go on; yields whether it is finished.

    The folder is locked within the block: no other process can train into it.
    """
    folder = run.folder
    if folder.exists() and not folder.is_dir():
        raise FileError(folder, "is a file; name a new folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot be made ({error.strerror})") from error
    if not resume:
        _check_empty(folder)
    with locked(folder):
        for part in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            sweep(part)  # also the folders of stages and members
        if not resume:
            _check_empty(folder)  # again: another process may have been first
        if run.exists():
            before = run.record
            _check_same(folder, before, record)
            if before.finished:
                yield True
                return
        yield False


def _check_empty(folder: Path) -> None:
    if {path.name for path in folder.iterdir()} - {LOCK}:
        raise FileError(folder, "is not empty; add --resume to go on, or name another with --out")


def _check_same(folder: Path, before: Record, now: Record) -> None:
    """Refuse to go on with other settings or labels. Images may lie elsewhere by now."""
    old_settings, new_settings = (r.settings.model_dump(mode="json") for r in (before, now))
    for name in sorted(Settings.model_fields):
        old, new = old_settings[name], new_settings[name]
        if old != new:
            raise InputError(f"{folder}: was started with {name} = {old!r}, not {new!r}")
    for what in ("classes", "labels"):
        if getattr(before, what) != getattr(now, what):
            raise InputError(f"{folder}: was started with other {what}")
    digests = [None if r.features is None else r.features.digest for r in (before, now)]
    if digests[0] != digests[1]:
        raise InputError(f"{folder}: was started with other features")
    if [one.digest for one in before.teachers] != [one.digest for one in now.teachers]:
        raise InputError(f"{folder}: was started with other teachers")
