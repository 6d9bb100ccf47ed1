"""Commands on runs: ``evaluate``, ``predict``, ``complete``, ``report``, ``bench``."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

import typer

from partlabel.base.errors import InputError, count
from partlabel.cli.labels import ExcelSafe, check_excel_safe
from partlabel.cli.options import FeatureIds, Features, Teachers
from partlabel.cli.reading import reads_labels

if TYPE_CHECKING:
    from partlabel.labels.formats import ReadOptions
    from partlabel.metrics import Evaluation

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
To = Annotated[str, typer.Option("--to", help="Format to write.")]
Images = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation
    typer.Option("--images", help="Folder of the images. (default: the folder used in training)"),
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

Reserved = Annotated[
    bool,
    typer.Option(
        "--reserved",
        help="Measure on the run's reserved validation images, which nothing was chosen on. "
        "Report this figure, but choose among runs by validation mAP.",
    ),
]
Estimates = Annotated[
    bool,
    typer.Option(
        "--estimates",
        help="Measure the method's own estimates of its training labels (role), not the "
        "classifier.",
    ),
]
OwnThresholds = Annotated[
    bool,
    typer.Option(
        "--own-thresholds",
        help="Use the run's own thresholds, one per class, as predict does.",
    ),
]
JsonFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--json", help="Also write the figures to this file."),
]


def evaluate(
    run: RunFolder,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(metavar="LABELS", help="A label file; not needed with --reserved."),
    ] = None,
    images: Images = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    teachers: Teachers = None,
    reserved: Reserved = False,
    estimates: Estimates = False,
    split: Annotated[Optional[str], typer.Option(help="Measure on this split only.")] = None,  # noqa: UP045
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="A class is predicted if its score is at least this. (default: 0.5)"),
    ] = None,
    own_thresholds: OwnThresholds = False,
    json_file: JsonFile = None,
    cache: Cache = None,
    device: Device = None,
    *,
    reading: "ReadOptions",
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
        features=features,
        feature_ids=feature_ids,
        teachers=teachers or (),
        cache=cache,
        device=device,
        reading=reading,
    )
    show_evaluation(result)
    if json_file is not None:
        with atomic_file(json_file) as stream:
            stream.write(json.dumps(_as_json(result, Run(run)), indent=1).encode())


def _as_json(result: "Evaluation", run: Any) -> dict[str, Any]:
    """All figures: overall, per group of classes by known training labels, and per class."""
    from partlabel.metrics import by_annotations

    figures = {name: None if math.isnan(value) else value for name, value in result.items()}
    classes = [
        {"class": name, **{field: _plain(row[field]) for field in result.per_class.dtype.names}}
        for name, row in zip(result.classes or [], result.per_class, strict=True)
    ]
    groups = by_annotations(result, run.selection.training)
    return {**figures, "groups": groups, "per_class": classes}


def _plain(value: Any) -> Any:
    """A numpy number as a Python number; None for NaN, which JSON does not have."""
    number = value.item()
    return None if isinstance(number, float) and math.isnan(number) else number


def predict(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="The label file to write.")],
    images: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(metavar="[IMAGES]...", help="Images or folders; or use --features."),
    ] = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    teachers: Teachers = None,
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="A class is present if its score is at least this. (default: one threshold per "
            "class, chosen on validation labels)"
        ),
    ] = None,
    to: To = "cells",
    excel_safe: ExcelSafe = False,
    overwrite: Overwrite = False,
    device: Device = None,
) -> None:
    """Label images with a run: a value and a score for each class.

    Example: partlabel predict run new-photos/ -o predicted.csv
    """
    from partlabel import api
    from partlabel.base.terminal import say
    from partlabel.labels.formats import write_labels
    from partlabel.output.display import describe

    check_excel_safe(out, to, excel_safe)
    _check_free(out, overwrite)
    table = api.predict(
        run,
        images or None,
        features=features,
        feature_ids=feature_ids,
        teachers=teachers or (),
        threshold=threshold,
        device=device,
    )
    write_labels(table, out, to, excel_safe=excel_safe)
    say(f"wrote {out}: {describe(table)}")


def complete(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="The label file to write.")],
    min_precision: MinPrecision = 0.95,
    guarantee: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="The labels that a guarantee is tested on: class (those of each class) or pooled "
            "(those of all classes together). (default: class, but pooled for classes with few "
            "labels)"
        ),
    ] = None,
    images: Images = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    to: To = "cells",
    excel_safe: ExcelSafe = False,
    overwrite: Overwrite = False,
    cache: Cache = None,
    device: Device = None,
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
        raise InputError(
            f"{out}: complete writes three files next to each other; give the path of the first one"
        )
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: its folder does not exist")
    for path in files_of(out):
        _check_free(path, overwrite)
    basis: Any = guarantee  # checked by api.complete
    completion = api.complete(
        run,
        min_precision=min_precision,
        guarantee=basis,
        images=images,
        features=features,
        feature_ids=feature_ids,
        cache=cache,
        device=device,
    )
    _, _, suspects = completion.save(out, to, excel_safe=excel_safe)
    say(f"wrote {out}: {describe(completion.table)}")
    show_completion(completion)
    if completion.suspects:
        number, worst = len(completion.suspects), completion.suspects[0]
        say(
            f"{suspects.name} lists {count(number, 'known label')} that may be wrong; the most "
            f"doubtful one is '{worst.name}' in {worst.image} (score {worst.score:.3f})"
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
            help="Also draw the loss around the trained weights. This takes minutes if the "
            "backbone was trained.",
        ),
    ] = False,
    images: Images = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    cache: Cache = None,
    device: Device = None,
    *,
    reading: "ReadOptions",
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
        features=features,
        feature_ids=feature_ids,
        cache=cache,
        device=device,
        reading=reading,
    )
    say(f"wrote {path}")


def bench(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC.yaml", help="The file that says what to compare.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and results.")],
    jobs: Annotated[
        int, typer.Option(help="Number of trainings at a time; they share the cores.", min=1)
    ] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue in a folder with results; finished trainings are kept."
        ),
    ] = False,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="A label file, instead of the spec's. All labels must be known, unless the spec "
            "hides none."
        ),
    ] = None,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the images, instead of the spec's."),
    ] = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    cache: Cache = None,
) -> None:
    """Compare methods on the same labels, with the same tuning on validation labels.

    Writes results.csv (one line per training), table.md and table.tex (mean and standard deviation
    over seeds) and, with several proportions, curves.svg.

    Example: partlabel bench compare.yaml -o compared --labels labels.csv --images photos/
    """
    from partlabel import api
    from partlabel.base.errors import JobError
    from partlabel.base.terminal import console, say
    from partlabel.output.bench.sheets import on_terminal

    benchmark = api.bench(
        spec,
        out,
        jobs=jobs,
        resume=resume,
        labels=labels,
        images=images,
        features=features,
        feature_ids=feature_ids,
        cache=cache,
    )
    for sheet in benchmark.tables.sheets:
        console().print(on_terminal(sheet))
    for note in benchmark.tables.notes:
        say(f"* {note}")
    trainings = len(benchmark.results)
    failed = sum("error" in result for result in benchmark.results)
    if failed:
        raise JobError(
            f"{failed} of {count(trainings, 'training')} failed; the reasons are below the tables"
        )


def _check_free(out: Path, overwrite: bool) -> None:
    """Raise an error if a file would be replaced, since it may hold labels."""
    if out.is_file() and not overwrite:
        raise InputError(f"{out}: already exists; choose another name, or use --overwrite")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (reads_labels(evaluate), predict, complete, reads_labels(report), bench):
        app.command()(cast("Any", command))
