"""Words of captions as labels."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.caption_words import add_words, read_captions

from partlabel import LabelTable
from partlabel.base.errors import FileError, InputError

LABELS = LabelTable(
    ["a.jpg", "b.jpg", "c.jpg"], ["dog"], np.array([[1], [-1], [0]]), ["train", "train", "val"]
)


def test_words_are_present_or_unknown_and_in_the_test_split_absent(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text(
        'image,caption\na.jpg,"A street, and a street"\nb.jpg,A red street\nc.jpg,Red\n'
    )
    table = add_words(LABELS, read_captions(path), 2, "val")
    assert list(table.classes) == ["dog", "word=street", "word=red"]
    assert table.dense().tolist() == [[1, 1, 0], [-1, 1, 1], [0, -1, 1]]
    assert list(table.splits or []) == ["train", "train", "val"]
    table = add_words(LABELS, read_captions(path), 2, "val", absent=True)
    assert table.dense().tolist() == [[1, 1, -1], [-1, 1, 1], [0, -1, 1]]


def test_words_of_test_images_are_not_counted() -> None:
    captions = {"a.jpg": "tree", "b.jpg": "tree", "c.jpg": "bird bird bird"}
    assert list(add_words(LABELS, captions, 5, "val").classes) == ["dog", "word=tree"]


def test_several_captions_of_an_image_are_joined_and_none_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text("image,caption\na.jpg,one tree\na.jpg,\na.jpg,blue sky\n")
    captions = read_captions(path)
    assert captions == {"a.jpg": "one tree\nblue sky"}
    with pytest.raises(InputError, match=r"no caption for 2 images, such as 'b\.jpg'"):
        add_words(LABELS, captions, 5, "val")
    path.write_text("picture,caption\na.jpg,one\n")
    with pytest.raises(FileError, match="needs the columns 'image' and 'caption'"):
        read_captions(path)
