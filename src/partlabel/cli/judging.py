"""Commands on runs: ``evaluate``, ``predict``, ``complete``, ``report``, ``bench``."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

import typer

from partlabel.base.errors import InputError, count

if TYPE_CHECKING:
    from partlabel.metrics import Evaluation

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
To = Annotated[str, typer.Option("--to", help="Format to write.")]
Images = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation
    typer.Option("--images", help="Folder of the images. (default: where the run remembers it)"),
]
Cache = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        help="Folder of cached features. (default: PARTLABEL_CACHE, or the user's cache folder)"
    ),
]
Format = Annotated[Optional[str], typer.Option(help="Format of the labels.")]  # noqa: UP045
Unlisted = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="What a class is where the file does not list it: absent or unknown."),
]
MinPrecision = Annotated[
    float, typer.Option(help="Share of the labels filled in that must be correct.")
]


def evaluate(
    run: RunFolder,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A label file; not needed with --reserved."),
    ] = None,
    images: Images = None,
    reserved: Annotated[
        bool,
        typer.Option(
            "--reserved",
            help="Measure on the run's reserved validation images, which nothing was chosen on. "
            "Report this figure, but choose among runs by validation mAP.",
        ),
    ] = False,
    estimates: Annotated[
        bool,
        typer.Option(
            "--estimates",
            help="Measure the method's own estimates of its training labels (role), not the "
            "classifier.",
        ),
    ] = False,
    split: Annotated[Optional[str], typer.Option(help="Measure on this split only.")] = None,  # noqa: UP045
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="A class is predicted from this score on. (default: 0.5)"),
    ] = None,
    own_thresholds: Annotated[
        bool,
        typer.Option(
            "--own-thresholds",
            help="Use the run's own thresholds, one per class, as predict does.",
        ),
    ] = False,
    json_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--json", help="Also write the figures to this file."),
    ] = None,
    cache: Cache = None,
    format: Format = None,
    unlisted: Unlisted = None,
) -> None:
    """Measure a run on known labels. Labels that a model filled in are left out.

    Examples: partlabel evaluate run labels.csv --images photos/ --split test

    partlabel evaluate run --reserved
    """
    from partlabel import api
    from partlabel.base.files import atomic_file
    from partlabel.output.display import show_evaluation
    from partlabel.training.run import Run

    result = api.evaluate(
        run,
        labels,
        images,
        reserved=reserved,
        estimates=estimates,
        split=split,
        threshold=threshold,
        own_thresholds=own_thresholds,
        format=format,
        unlisted=unlisted,
        cache=cache,
    )
    show_evaluation(result)
    if json_file is not None:
        with atomic_file(json_file) as stream:
            stream.write(json.dumps(_as_json(result, Run(run)), indent=1).encode())


def _as_json(result: "Evaluation", run: Any) -> dict[str, Any]:
    """All figures, groups of classes by known training labels, and the classes."""
    from partlabel.metrics import by_annotations

    figures = {name: None if math.isnan(value) else value for name, value in result.items()}
    classes = [
        {"class": name, **{field: _plain(row[field]) for field in result.per_class.dtype.names}}
        for name, row in zip(result.classes or [], result.per_class, strict=True)
    ]
    groups = by_annotations(result, run.selection.training)
    return {**figures, "groups": groups, "per_class": classes}


def _plain(value: Any) -> Any:
    number = value.item()
    return None if isinstance(number, float) and math.isnan(number) else number


def predict(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Images or folders.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write.")],
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="A class is present from this score on. (default: one threshold per class, "
            "chosen on validation labels)"
        ),
    ] = None,
    to: To = "cells",
    overwrite: Overwrite = False,
) -> None:
    """Label images with a run: a value and a score for each class.

    Example: partlabel predict run new-photos/ -o predicted.csv
    """
    from partlabel import api
    from partlabel.base.terminal import say
    from partlabel.labels.formats import write_labels
    from partlabel.output.display import describe

    _check_free(out, overwrite)
    table = api.predict(run, list(images), threshold=threshold)
    write_labels(table, out, to)
    say(f"wrote {out}: {describe(table)}")


def complete(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write.")],
    min_precision: MinPrecision = 0.95,
    guarantee: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="The labels that the guarantee is tested on: class, those of each class; pooled, "
            "those of all classes together. (default: class, and pooled for classes with few "
            "labels)"
        ),
    ] = None,
    images: Images = None,
    to: To = "cells",
    overwrite: Overwrite = False,
    cache: Cache = None,
) -> None:
    """Fill in the unknown labels of the run's own label file; known labels are never changed.

    Writes value, calibrated score and source (human or model) of each label. A label is filled in
    only where reserved labels show, with a confidence of 95%, that enough labels like it are
    correct; all other labels stay unknown. FILE.guarantees.csv has the evidence for each class, and
    FILE.suspects.csv lists known labels that look wrong.

    Example: partlabel complete run -o completed.csv --min-precision 0.9
    """
    from partlabel import api
    from partlabel.base.errors import one_of
    from partlabel.base.terminal import say
    from partlabel.judging.completion import files_of
    from partlabel.labels.formats import FORMATS
    from partlabel.output.display import describe, show_completion

    one_of("format", to, FORMATS)
    if str(out) == "-" or (out.exists() and not (out.is_file() or out.is_dir())):
        raise InputError(f"{out}: complete writes three files side by side; name the first of them")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: there is no such folder")
    for path in files_of(out):
        _check_free(path, overwrite)
    kind: Any = guarantee
    done = api.complete(
        run, min_precision=min_precision, guarantee=kind, images=images, cache=cache
    )
    _, _, suspects = done.save(out, to)
    say(f"wrote {out}: {describe(done.table)}")
    show_completion(done)
    if done.suspects:
        worst = done.suspects[0]
        say(
            f"{suspects.name} lists {count(len(done.suspects), 'known label')} that may be wrong, "
            f"first '{worst.name}' in {worst.image} (score {worst.score:.3f})"
        )


def report(
    run: RunFolder,
    truth: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="A label file with more of the true labels, to show how unknown labels were "
            "predicted."
        ),
    ] = None,
    baseline: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="RUN2", help="Another run on the same labels to compare with."),
    ] = None,
    boxes: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="A file of boxes (image,class,left,top,right,bottom), to show whether class maps "
            "are highest on objects."
        ),
    ] = None,
    min_precision: MinPrecision = 0.95,
    landscape: Annotated[
        bool,
        typer.Option(
            "--landscape",
            help="Also draw the loss around the trained weights; takes minutes if the backbone was "
            "trained.",
        ),
    ] = False,
    images: Images = None,
    cache: Cache = None,
    format: Format = None,
    unlisted: Unlisted = None,
) -> None:
    """Write RUN/report.html: curves, classes, scores and sample images in one file.

    Example: partlabel report run --truth full.csv --baseline run-an --landscape
    """
    from partlabel import api
    from partlabel.base.terminal import say

    path = api.report(
        run,
        truth=truth,
        baseline=baseline,
        boxes=boxes,
        min_precision=min_precision,
        landscape=landscape,
        images=images,
        format=format,
        unlisted=unlisted,
        cache=cache,
    )
    say(f"wrote {path}")


def bench(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="What to compare.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and results.")],
    jobs: Annotated[
        int, typer.Option(help="Trainings at a time; they share the cores.", min=1)
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue; finished trainings are kept.")
    ] = False,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A label file, instead of the spec's; full, unless nothing is hidden."),
    ] = None,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the images, instead of the spec's."),
    ] = None,
    cache: Cache = None,
) -> None:
    """Compare methods on the same labels, with the same tuning on validation labels.

    Writes results.csv (one line per training), table.md and table.tex (mean and standard deviation
    over seeds) and, with several proportions, curves.svg.
    """
    from partlabel import api
    from partlabel.base.errors import JobError
    from partlabel.base.terminal import console, say
    from partlabel.output.bench.sheets import on_terminal

    done = api.bench(spec, out, jobs=jobs, resume=resume, labels=labels, images=images, cache=cache)
    for sheet in done.tables.sheets:
        console().print(on_terminal(sheet))
    for note in done.tables.notes:
        say(f"* {note}")
    failed = sum("error" in result for result in done.results)
    if failed:
        raise JobError(f"{failed} of {len(done.results)} trainings failed, see below the tables")


def _check_free(out: Path, overwrite: bool) -> None:
    """Refuse to replace a file, which may hold someone's labels."""
    if out.is_file() and not overwrite:
        raise InputError(f"{out}: exists; name another, or say --overwrite")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (evaluate, predict, complete, report, bench):
        app.command()(cast("Any", command))
