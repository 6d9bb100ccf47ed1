"""Options that several commands on runs take."""

from pathlib import Path
from typing import Annotated, Optional

import typer

IMAGES = (
    "Folder of the images, .tar or .parquet shards ('shard-{000..127}.tar'), or a .csv, .tsv or "
    ".txt list of paths."
)
"""The help of ``--images``."""

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Images = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation
    typer.Option("--images", help=f"{IMAGES} (default: those used in training)"),
]
Cache = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        help="Folder of cached features. (default: PARTLABEL_CACHE, or the user's cache folder)"
    ),
]
Device = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="cpu, cuda, mps, or one of several GPUs, such as cuda:1. (default: auto)"),
]
MinPrecision = Annotated[
    float, typer.Option(help="Share of the filled-in labels that must be correct.")
]
Features = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation
    typer.Option(
        "--features",
        help="A file with a vector per image, instead of images: .npy, .npz, .safetensors, "
        ".parquet or .arrow.",
    ),
]
FeatureIds = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--feature-ids",
        help="A file with the id of each vector (one per line, or a CSV), if the ids are not in "
        "the file of the features.",
    ),
]
Teachers = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        "--teacher",
        help="A table with scores of another model (image, class, score or logit), used as "
        "evidence and never as labels; may be repeated.",
    ),
]
