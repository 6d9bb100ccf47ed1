"""Atomic writes: any failure leaves the old file in place, and no other file."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from partlabel.base.errors import InputError, JobError
from partlabel.base.files import atomic_file, atomic_folder, atomic_group


class BrokenError(Exception):
    pass


def raise_after(_: object) -> None:
    raise BrokenError


def test_the_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with atomic_file(path) as stream:
        stream.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(BrokenError), atomic_file(path) as stream:
        raise_after(stream.write(b"ne"))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path, reason in [
        (tmp_path / "no" / "f", "its folder does not exist"),
        (tmp_path / "file" / "f", "a file, not a folder"),
        (tmp_path / "folder", "it is a folder"),
        (tmp_path / ("x" * 300), "too long"),
    ]:
        with pytest.raises(InputError, match=reason), atomic_file(path):
            pass
    with pytest.raises(InputError, match="not an empty folder"), atomic_folder(tmp_path):
        pass
    with pytest.raises(InputError, match="does not exist"), atomic_folder(tmp_path / "a" / "b"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with atomic_file(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_modes_are_kept_and_write_protection_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o600)
    with atomic_file(path) as stream:
        stream.write(b"new")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o400)
    with pytest.raises(InputError, match="permission denied"), atomic_file(path):
        pass
    assert path.read_text() == "new"


def test_devices_are_written_directly() -> None:
    with atomic_file("/dev/null") as stream:
        stream.write(b"x")
    assert not Path("/dev/null").is_file()


def test_a_folder_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with pytest.raises(BrokenError), atomic_folder(path) as folder:
        raise_after((folder / "a").write_text("x"))
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(path) as folder:
        (folder / "a").write_text("x")
        assert not path.exists()
    assert (path / "a").read_text() == "x"


FULL_DISK = """
import resource, sys
from partlabel import LabelTable, write_labels
from partlabel.base.errors import JobError
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
table = LabelTable([f"{i}.jpg" for i in range(20_000)], ["x"], [[1]] * 20_000)
try:
    write_labels(table, sys.argv[1], sys.argv[2])
except JobError as error:
    print("JobError:", error)
"""


@pytest.mark.parametrize("format", ["csv", "cells", "coco", "hf", "arrow", "label-studio"])
def test_a_full_disk_keeps_the_old_file(format: str, tmp_path: Path) -> None:
    path = tmp_path / ("f.jsonl" if format == "hf" else "f")
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), format], capture_output=True, text=True
    )
    assert "JobError:" in done.stdout, done.stderr
    assert "nothing was changed" in done.stdout
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_job_errors_have_another_exit_code() -> None:
    assert (InputError.exit_code, JobError.exit_code) == (2, 1)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no /dev/shm")
def test_files_below_dev_are_replaced_and_not_appended_to() -> None:
    """/dev/shm holds ordinary files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "o.csv"
        for content in (b"first and longer", b"second"):
            with atomic_file(path) as stream:
                stream.write(content)
        assert path.read_bytes() == b"second"
        assert list(Path(folder).iterdir()) == [path]


def test_standard_output_that_is_a_file_is_appended_to(tmp_path: Path) -> None:
    code = "from partlabel.base.files import atomic_file\nprint('before', flush=True)\n"
    code += "with atomic_file('/dev/stdout') as stream: stream.write(b'after')"
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == b"before\nafter"


def replace_all(paths: list[Path], after: Callable[[object], None] = lambda _: None) -> None:
    with atomic_group(paths) as staged:
        for path in staged:
            path.write_text("new")
        after(staged)


def test_files_that_belong_together_are_replaced_together(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        path.write_text("old")
    with pytest.raises(BrokenError):
        replace_all(paths, raise_after)
    assert [path.read_text() for path in paths] == ["old"] * 3
    with atomic_group(paths) as staged:
        for path in staged:
            path.write_text("new")
        assert [path.read_text() for path in paths] == ["old"] * 3
    assert [path.read_text() for path in paths] == ["new"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_kill_leaves_no_older_companion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at every moment of the replacement: a companion is new, or missing."""
    original = Path.replace
    for stop in range(3):
        paths = [tmp_path / name for name in ("a", "b", "c")]
        for path in paths:
            path.write_text("old")
        calls = 0

        def replace(self: Path, target: Path, stop: int = stop) -> Path:
            nonlocal calls
            if calls == stop:
                raise BrokenError
            calls += 1
            return original(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            with pytest.raises(BrokenError):
                replace_all(paths)
        states = [path.read_text() if path.exists() else None for path in paths]
        assert "old" not in states[1:]
        assert states[0] in ("old", "new")
