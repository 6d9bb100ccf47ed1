"""The command ``embed``."""

from pathlib import Path
from typing import Annotated, Optional

import typer

from partlabel.base.choices import DEFAULT_BACKBONE
from partlabel.base.errors import InputError, count


def embed(
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES...", help="Images, folders, shards or lists of paths."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="The file to write: .npy (with .npy.ids.txt beside it), .npz, .safetensors, "
            ".parquet or .arrow.",
        ),
    ],
    backbone: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation
        typer.Option(help=f"A network of timm, by name. (default: {DEFAULT_BACKBONE})"),
    ] = None,
    weights: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="none, imagenet, or a file. (default: imagenet)"),
    ] = None,
    size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Image size in pixels. (default: as in train)"),
    ] = None,
    mirror: Annotated[
        bool,
        typer.Option("--mirror", help="Average features over an image and its mirror image."),
    ] = False,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Processes that decode images. (default: as in train)", min=0),
    ] = None,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="cpu, cuda, mps, or one of several GPUs, such as cuda:1. (default: auto)"
        ),
    ] = None,
    cache: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Folder of cached features. (default: PARTLABEL_CACHE, or the user's cache folder)"
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
) -> None:
    """Write the features of images to a file, one vector per image, for --features.

    Example: partlabel embed photos/ -o photos.npy
    """
    from partlabel.base.terminal import say
    from partlabel.training.embed import embed as embed_files

    if out.exists() and not overwrite:
        raise InputError(f"{out}: already exists; choose another name, or use --overwrite")
    vectors = embed_files(
        list(images),
        out,
        backbone=backbone,
        weights=weights,
        size=size,
        mirror=mirror,
        workers=workers,
        cache=cache,
        device=device,
    )
    say(f"wrote {out}: {count(len(vectors), 'image')}, {vectors.dimension:,} features each")


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(embed)
