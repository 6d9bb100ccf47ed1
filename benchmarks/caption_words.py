"""Words of captions as partly known labels: the data of Fig. 4 of IMCL.

    python -m benchmarks.caption_words captions.csv labels.csv words.csv --most 200 --test val

The caption file has the columns ``image`` and ``caption``. The words that occur in the most
captions of training images become classes beside those of the label file, with names such as
``word=street``. In training images a word of the caption is present, and all others are unknown: a
caption does not mention everything. In the images of the test split, words that the caption does
not have count as absent, as in the paper; otherwise there would be nothing to measure. With
``--absent`` they count as absent in training images too: the paper's text has labels of 1 and -1.

With ``--side 'word=*'``, ``partlabel train --method imcl`` uses the words only to find similar
images.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.csv

from partlabel import LabelTable, read_labels, write_labels
from partlabel.base.errors import FileError, InputError, count
from partlabel.base.terminal import say
from partlabel.labels.mentions import frequent_words, mentions, words

PREFIX = "word="
# words of three letters and more that name nothing to be seen; shorter ones are left out anyway
FUNCTION_WORDS = (
    *("and", "are", "the", "with", "that", "has", "for", "from", "his", "her", "its", "this"),
    *("two", "three", "one", "some", "many", "several", "each", "other", "another", "very"),
    *("there", "them", "their", "they", "while", "into", "out", "over", "through", "being"),
    *("have", "who", "what", "which"),
)


def read_captions(path: Path) -> dict[str, str]:
    """The caption of each image; several captions of an image are joined."""
    table = pyarrow.csv.read_csv(
        path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)
    )
    if not {"image", "caption"} <= set(table.column_names):
        raise FileError(path, "needs the columns 'image' and 'caption'")
    captions: dict[str, str] = {}
    rows = zip(table["image"].to_pylist(), table["caption"].to_pylist(), strict=True)
    for image, caption in rows:
        captions[str(image)] = f"{captions.get(str(image), '')}\n{caption or ''}".strip()
    return captions


def add_words(
    labels: LabelTable, captions: dict[str, str], most: int, test: str, *, absent: bool = False
) -> LabelTable:
    """The labels, and the most frequent words of the captions as further classes.

    Args:
        labels: all images, with splits.
        captions: by image.
        most: number of words.
        test: the split in which words that are not in a caption are absent.
        absent: they are absent in all splits.
    """
    missing = [name for name in labels.ids if name not in captions]
    if missing:
        raise InputError(f"no caption for {count(len(missing), 'image')}, such as '{missing[0]}'")
    is_test = labels.in_split(test)
    texts = [captions[name] for name in labels.ids]
    training = [text for text, tested in zip(texts, is_test, strict=True) if not tested]
    short = {word for text in training for word in words(text) if len(word) < 3}
    chosen = frequent_words(training, most, [*FUNCTION_WORDS, *short])
    said = mentions(texts, chosen, plurals=False).dense()
    closed = is_test | absent
    said[closed] = np.where(said[closed] == 1, 1, -1)
    classes = [*labels.classes, *(PREFIX + word for word in chosen)]
    matrix = np.concatenate([labels.dense(), said], axis=1)
    return LabelTable(list(labels.ids), classes, matrix, labels.splits)


def main() -> None:
    """Write the labels with words."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.caption_words")
    parser.add_argument("captions", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=200, help="number of words")
    parser.add_argument("--test", default="val", help="the split to test on")
    parser.add_argument("--absent", action="store_true", help="words not in a caption are absent")
    given = parser.parse_args()
    labels, captions = read_labels(given.labels), read_captions(given.captions)
    table = add_words(labels, captions, given.most, given.test, absent=given.absent)
    write_labels(table, given.out, "csv")
    say(f"{given.out}: {count(len(table.classes), 'class', 'classes')}, {table.known:.1%} known")


if __name__ == "__main__":
    main()
