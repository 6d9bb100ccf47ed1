"""Label files made to mislead: special files, keys that occur twice, values of odd types."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from partlabel import read_labels
from partlabel.base.errors import InputError

ANNOTATION = "<annotation><filename>a.jpg</filename><object><name>cat</name></object></annotation>"


def test_pipes_and_devices_in_a_folder_of_annotations_are_not_opened(tmp_path: Path) -> None:
    """Opening the pipe would wait for ever, and the device has no end."""
    (tmp_path / "a.xml").write_text(ANNOTATION)
    os.mkfifo(tmp_path / "b.xml")
    (tmp_path / "c.xml").symlink_to("/dev/zero")

    def give_up(*_: object) -> None:
        raise TimeoutError("a pipe was opened")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    try:
        assert list(read_labels(tmp_path, unlisted="unknown").ids) == ["a.jpg"]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_device_is_no_label_file(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a device, not a label file"):
        read_labels(tmp_path / "labels.csv")


def documents() -> dict[str, str]:
    """A small file of each format whose content is one JSON document."""
    images = '"images": [{"id": 1, "file_name": "a"MORE}]'
    rest = '"categories": [{"id": 1, "name": "x"}], "annotations": []'
    studio = '[{"data": {"image": "a"}, "annotations": [{"result": []MORE}]}]'
    lvis = images.replace('"a"', '"a", "neg_category_ids": [1]')
    return {
        "coco": f"{{{images}, {rest}}}",
        "lvis": f"{{{lvis}, {rest}}}",
        "label-studio": studio,
    }


@pytest.mark.parametrize("format", ["coco", "lvis", "label-studio"])
def test_keys_that_occur_twice_are_errors(format: str, tmp_path: Path) -> None:
    """JSON would take the last one, and other programs the first."""
    path, text = tmp_path / "labels.json", documents()[format]
    path.write_text(text.replace("MORE", ""))
    read_labels(path, format, unlisted="unknown")
    path.write_text(text.replace("MORE", ', "id": 3, "id": 4'))
    with pytest.raises(InputError, match="'id' occurs twice"):
        read_labels(path, format, unlisted="unknown")


def test_a_text_is_not_taken_for_true_or_false(tmp_path: Path) -> None:
    """The text "false" would count as true, and its annotation would be left out."""
    annotation = {"result": [], "was_cancelled": "false"}
    task = {"data": {"image": "a"}, "annotations": [annotation]}
    (tmp_path / "t.json").write_text(json.dumps([task]))
    with pytest.raises(InputError, match="was_cancelled"):
        read_labels(tmp_path / "t.json", "label-studio")


def test_a_list_is_not_taken_for_a_name(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text('{"file_name": ["a"], "cat": 1}\n')
    with pytest.raises(InputError, match=r"metadata\.jsonl"):
        read_labels(tmp_path / "metadata.jsonl", "hf")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_entities_are_refused_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    text = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]>' + ANNOTATION
    (tmp_path / "a.xml").write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match=r"a\.xml"):
        read_labels(tmp_path, unlisted="unknown")


def test_other_systems_are_refused_with_a_reason() -> None:
    """Without the locks of Unix, two trainings could write into one run."""
    code = "import importlib.metadata, os; os.name = 'nt'; import partlabel"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "it runs on Linux and macOS" in done.stderr
