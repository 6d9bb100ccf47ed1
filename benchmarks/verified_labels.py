"""Groups of classes on labels like those of Open Images: Table 4 of SR, and Table 1 of IMCL.

    python -m benchmarks.verified_labels OUT
    python -m benchmarks.verified_labels OUT --pictures

The first command generates embeddings of images with 500 classes, writes their labels as an Open
Images file, and compares methods on them by ``benchmarks/specs/open_images.yaml``. The second does
the same on generated pictures with 40 classes, for the methods that need maps. Sets and trainings
in OUT that are finished are not made again.

As in Open Images [1], few classes are frequent. Some ten labels of an image are known: people were
asked about classes that a machine found likely, and a little less than half of these are present
(46% in the training images of version 2 [2]). Everything else is made up.

[1] Kuznetsova et al., The Open Images Dataset V4, IJCV 2020.
[2] https://github.com/openimages/dataset, changes from version 1 to version 2.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partlabel import LabelTable, scenes, write_labels
from partlabel.base.terminal import say
from partlabel.labels import ABSENT, PRESENT
from partlabel.output.bench import read_spec, run_spec

SPECS = Path(__file__).parent / "specs"
TAIL = 0.8  # a class of rank k = 1, 2, ... is as frequent as the first times k^-TAIL
VERIFIED = 10  # mean number of known labels of an image
DOUBT = 1.4  # how much the machine that chooses labels to verify errs
_WIDTH, _TOPICS, _NOISE, _PRESENT = 64, 25, 1.0, 7

Floats = NDArray[np.float64]


def verified(likely: Floats, present: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int8]:
    """[n, C] labels, known for the classes of an image that a machine finds most likely.

    Args:
        likely: [n, C] how likely each class is, without error; the machine errs.
        present: [n, C] the true labels.
        rng: random numbers.
    """
    seen = likely + DOUBT * rng.normal(size=likely.shape)
    number = np.clip(rng.poisson(VERIFIED, len(likely)), 1, likely.shape[1])
    known = (-seen).argsort(axis=1).argsort(axis=1) < number[:, None]
    return np.where(known, np.where(present, PRESENT, ABSENT), 0).astype(np.int8)


def embeddings(
    images: int, classes: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[np.bool_]]:
    """Embeddings [n, D] of images with some topics each, their known and their true labels [n, C].

    A class is likelier in images of its topic. The embedding of an image is the sum of the vectors
    of its classes, plus noise. Classes of one topic have similar vectors.
    """
    rng = np.random.default_rng(seed)
    topic = rng.integers(_TOPICS, size=classes)
    rank = rng.permutation(classes) + 1.0
    vectors = rng.normal(size=(_TOPICS, _WIDTH))[topic] + rng.normal(size=(classes, _WIDTH))
    about = rng.random((images, _TOPICS)).argsort(axis=1) < 2  # the topics of an image
    likely = -TAIL * np.log(rank) + 3.0 * about[:, topic] + rng.gumbel(size=(images, classes))
    number = 1 + rng.poisson(_PRESENT, images)
    present = (-likely).argsort(axis=1).argsort(axis=1) < number[:, None]
    noise = _NOISE * np.sqrt(_PRESENT) * rng.normal(size=(images, _WIDTH))
    features = (present @ vectors + noise) / np.sqrt(_PRESENT)
    return features.astype(np.float32), verified(likely, present, rng), present


def identifier(number: int) -> str:
    """The name of an image, as in Open Images.

    >>> identifier(1)
    '000000009e3779b1'
    """
    return f"{number * 2654435761 % 2**64:016x}"


def write_embeddings(folder: Path, images: int, classes: int, seed: int) -> None:
    """Write ``labels.csv`` and ``features.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    features, labels, _ = embeddings(images, classes, seed)
    ids = [identifier(number) for number in range(images)]
    np.savez(folder / "features.npz", features=features, ids=np.array(ids))
    names = [f"/m/{number:05x}" for number in range(classes)]
    write_labels(LabelTable(ids, names, labels), folder / "labels.csv", "open-images")


def write_pictures(folder: Path, images: int, seed: int) -> None:
    """Write ``scenes/images``, and ``labels.csv`` with some labels of each."""
    world = scenes.World(classes=40, size=96, seed=seed, tail=TAIL, objects=6)
    folder.mkdir(parents=True, exist_ok=True)
    truth = scenes.write(folder / "scenes", images, world, test=0)
    rng = np.random.default_rng(seed)
    order = np.argsort(truth.classes)  # Open Images files name classes in no order of their own
    present = truth.dense()[:, order] == PRESENT
    likely = 4.0 * present + np.log(present.mean(axis=0) + 1e-3) + rng.gumbel(size=present.shape)
    ids = [name.removesuffix(".png") for name in truth.ids]
    classes = [truth.classes[j] for j in order.tolist()]
    table = LabelTable(ids, classes, verified(likely, present, rng))
    write_labels(table, folder / "labels.csv", "open-images")


def compare(folder: Path, *, pictures: bool) -> str:
    """The tables of all methods on a set that was written."""
    name = "open_images_pictures.yaml" if pictures else "open_images.yaml"
    images = folder / "scenes" / "images" if pictures else None
    features = None if pictures else folder / "features.npz"
    spec = read_spec(SPECS / name, folder / "labels.csv", images, features)
    return run_spec(spec, folder / "results").tables.markdown()


def main() -> None:
    """Write a set, unless there is one, and compare methods on it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verified_labels")
    parser.add_argument("out", type=Path)
    parser.add_argument("--pictures", action="store_true", help="pictures instead of embeddings")
    parser.add_argument("--images", type=int, help="15,000, or 3,000 pictures")
    parser.add_argument("--classes", type=int, default=500, help="of embeddings")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = given.out / ("pictures" if given.pictures else "embeddings")
    if not (folder / "labels.csv").is_file():
        say(f"writing {folder}")
        if given.pictures:
            write_pictures(folder, given.images or 3_000, given.seed)
        else:
            write_embeddings(folder, given.images or 15_000, given.classes, given.seed)
    print(compare(folder, pictures=given.pictures))


if __name__ == "__main__":
    main()
