"""The folder of a run while it is trained into: empty or the same run, and locked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partlabel.base import launch, processes
from partlabel.base.errors import FileError, InputError
from partlabel.base.files import atomic_file, sweep
from partlabel.base.locks import LOCK, locked
from partlabel.training.run import Run
from partlabel.training.settings import Settings

_JOB = ".job"  # the file with the name of torchrun's job


@contextmanager
def open_folder(run: Run, settings: Settings, labels: str, *, resume: bool) -> Iterator[bool]:
    """Make the folder of a run, or check that it may go on; yields whether it is finished.

    The folder is locked within the block: no other process can train into it.

    Args:
        settings, labels: as in :func:`check_same`.
        resume: whether the folder may hold a run.
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
        _note_job(folder)
        if run.exists():
            check_same(run, settings, labels)
            if run.finished:
                yield True
                return
        yield False


def is_same_job(folder: Path) -> bool:
    """Whether ``torchrun`` started this training before, and now starts it again."""
    path = folder / _JOB
    before = path.read_text() if processes.is_first() and path.is_file() else ""
    again = launch.is_restarted() or (before == launch.job() and before not in ("", "none"))
    return processes.from_first(again)


def _note_job(folder: Path) -> None:
    if processes.size() > 1 and processes.is_first():
        with atomic_file(folder / _JOB) as stream:
            stream.write(launch.job().encode())


def _check_empty(folder: Path) -> None:
    if {path.name for path in folder.iterdir()} - {LOCK}:
        raise FileError(folder, "is not empty; add --resume to go on, or name another with --out")


def check_same(run: Run, settings: Settings, labels: str) -> None:
    """Refuse to go on with other settings or labels; the images may be in another folder.

    Args:
        run: a run that was started.
        settings: of the training that wants to go on.
        labels: the hash of its labels.
    """
    if not processes.is_first():
        return  # its folder is a copy, and the first process checks the original
    before = run.record
    old_settings, new_settings = (s.model_dump(mode="json") for s in (before.settings, settings))
    for name in sorted(Settings.model_fields):
        old, new = old_settings[name], new_settings[name]
        if old != new:
            raise InputError(f"{run.folder}: was started with {name} = {old!r}, not {new!r}")
    if before.labels != labels:
        raise InputError(f"{run.folder}: was started with other labels")
    features = None if run.given_features is None else run.given_features.digest()
    if features != (None if before.features is None else before.features.digest):
        raise InputError(f"{run.folder}: was started with other features")
    teachers = [teacher.digest for teacher in run.given_teachers]
    if teachers != [teacher.digest for teacher in before.teachers]:
        raise InputError(f"{run.folder}: was started with other teachers")
