"""A review without a trained run: pictures, labels, scores and features that follow the truth."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from partlabel.labels import LabelTable
from partlabel.output.review.desk import Desk
from partlabel.output.review.learner import Features
from partlabel.output.review.opinions import Opinions, scale_of
from partlabel.output.review.session import ReviewOptions, Session
from partlabel.output.review.verdict_journal import Journal

CLASSES = ["red", "green", "<b>bold</b> & co"]


def make_opinions(folder: Path, images: int = 60, known: float = 0.3, seed: int = 0) -> Opinions:
    """Pictures in a folder, each with a truth for three classes, and what a run would say.

    The truth is in ``folder / "truth.npy"``; its fourth column is a class that nobody labelled.
    """
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random((images, 4)) < 0.4, 1, -1).astype(np.int8)
    (folder / "images").mkdir(parents=True)
    for row in range(images):
        color = tuple(int(40 + 180 * (value > 0)) for value in truth[row, :3])
        Image.new("RGB", (48, 36), color).save(folder / "images" / f"{row:03}.png")
    np.save(folder / "truth.npy", truth)
    labels = np.where(rng.random((images, 3)) < known, truth[:, :3], 0)
    logits = 1.3 * truth[:, :3] + rng.normal(size=(images, 3))
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    decided = np.where((labels == 0) & (np.abs(logits) > 2.5), np.sign(logits), 0)
    table = LabelTable([f"{row:03}.png" for row in range(images)], CLASSES, labels)
    suspects = np.argwhere(labels * logits < 0)
    return Opinions(
        table,
        np.ascontiguousarray(scores.T),
        np.ascontiguousarray(decided.T.astype(np.int8)),
        suspects,
        {"red": {"present": 0.96}},
        folder / "images",
        "",
        ["a note of the run"],
        0.9,
        features_of(truth, rng),
        np.arange(images // 2),
    )


def features_of(truth: NDArray[np.int8], rng: np.random.Generator) -> Features:
    """Features [n, 12] from which all classes can be learned."""
    mixing = rng.normal(size=(truth.shape[1], 12))
    vectors = (truth @ mixing + 0.3 * rng.normal(size=(len(truth), 12))).astype(np.float16)
    mean, deviation = scale_of(vectors)
    return Features(vectors, mean, deviation)


def make_desk(folder: Path, opinions: Opinions | None = None) -> Desk:
    """A desk with a journal in a folder; the same folder gives the same journal."""
    opinions = opinions or make_opinions(folder / "data")
    journal = Journal(folder / "journal.sqlite", {"run": "r", "labels": "l"})
    return Desk(opinions, journal, folder)


def make_session(folder: Path, opinions: Opinions) -> Session:
    """A session that is ready."""
    journal = Journal(folder / "journal.sqlite", {"run": "r", "labels": "l"})
    options = ReviewOptions(folder, precision=opinions.precision)
    session = Session(options, folder, journal, {"run": "r", "labels": "l"})
    session.use(opinions)
    return session
