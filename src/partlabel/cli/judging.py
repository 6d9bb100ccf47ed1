"""Commands that use runs: ``evaluate``, ``predict``, ``complete``."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

import typer

from partlabel.base.errors import InputError, count
from partlabel.cli.labels import ExcelSafe, check_excel_safe
from partlabel.cli.reading import reads_labels
from partlabel.cli.run_options import (
    IMAGES,
    Cache,
    Device,
    FeatureIds,
    Features,
    Images,
    MinPrecision,
    RunFolder,
    Teachers,
)

if TYPE_CHECKING:
    from partlabel.judging.completion import Completion
    from partlabel.labels.formats import ReadOptions
    from partlabel.metrics import Evaluation

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
To = Annotated[str, typer.Option("--to", help="Format to write.")]

Reserved = Annotated[
    bool,
    typer.Option(
        "--reserved",
        help="Measure on the run's reserved labels, which nothing was chosen on. "
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
    from partlabel.base.files import atomic_file
    from partlabel.base.terminal import say
    from partlabel.judging import measuring
    from partlabel.output.display import show_evaluation
    from partlabel.training.run import Run

    result = measuring.evaluate(
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
    if threshold is None and not own_thresholds and 2 * result.unpredicted > result.measured:
        say(
            f"no present label of {count(result.unpredicted, 'class', 'classes')} reaches 0.5: the "
            "scores of this run rank images, but are no probabilities. --own-thresholds measures "
            "at the thresholds of `predict`"
        )
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
        typer.Argument(
            metavar="[IMAGES]...",
            help="Images, folders, shards or lists of paths; or use --features.",
        ),
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
    abstain: Annotated[
        bool,
        typer.Option(
            "--abstain",
            help="Answer only where labels that the run reserved show that enough such answers are "
            "right. All other labels stay unknown (an empty value, with a score).",
        ),
    ] = False,
    min_precision: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Share of the answers of --abstain that must be right. (default: 0.95)"),
    ] = None,
    to: To = "cells",
    excel_safe: ExcelSafe = False,
    overwrite: Overwrite = False,
    cache: Cache = None,
    device: Device = None,
) -> None:
    """Label images with a run: a value and a score for each class.

    Examples: partlabel predict run new-photos/ -o predicted.csv

    partlabel predict run new-photos/ -o predicted.csv --abstain --min-precision 0.9
    """
    from partlabel.base.terminal import say
    from partlabel.judging import measuring
    from partlabel.output.display import describe_size

    check_excel_safe(out, to, excel_safe)
    _check_free(out, overwrite)
    labels = measuring.predictions(
        run,
        images or None,
        features=features,
        feature_ids=feature_ids,
        teachers=teachers or (),
        threshold=threshold,
        abstain=abstain,
        min_precision=min_precision,
        cache=cache,
        device=device,
        on_note=say,
    )
    labels.save(out, to, excel_safe=excel_safe)
    measuring.warn_of_broken(labels)
    say(f"wrote {out}: {describe_size(*labels.table.shape, labels.known)}")


def complete(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="The label file to write.")],
    min_precision: MinPrecision = 0.95,
    answers: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--answers",
            help="Answers to the questions of `partlabel suggest RUN --for promises`. They are the "
            "test, in place of labels that were reserved. Only present labels are filled in, and "
            "only FILE is written, with the answers.",
        ),
    ] = None,
    guarantee: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="The labels that a guarantee is tested on: class (those of each class) or pooled "
            "(those of all classes together). Or how: exact (on labels that were reserved) or "
            "cross (on all known labels, by models that were not trained on their images). "
            "(default: class, but pooled for classes with few labels; exact if labels are reserved)"
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Fill in nothing, but write which images to label so that a guarantee can be "
            "given: a random sample.",
        ),
    ] = False,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--images",
            help=f"{IMAGES} They may be further images to complete. Images that the label "
            "file does not mention are completed too. (default: the folder used in training)",
        ),
    ] = None,
    only_labelled: Annotated[
        bool,
        typer.Option(
            "--only-labelled", help="Leave out images that the label file does not mention."
        ),
    ] = False,
    despite_shift: Annotated[
        bool,
        typer.Option(
            "--despite-shift",
            help="Complete images even if they are unlike those that the guarantee was tested on: "
            "images of other origins, and images that the label file does not mention.",
        ),
    ] = False,
    all_scores: Annotated[
        bool,
        typer.Option(
            "--all-scores",
            help="Also write the scores of labels that stay unknown: one row per image and class.",
        ),
    ] = False,
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
    only where held-out labels show, with a confidence of 95%, that enough labels like it are
    correct; all other labels stay unknown. FILE.guarantees.csv has the evidence for each class,
    FILE.suspects.csv lists known labels that look wrong, FILE.doubtful.csv unknown labels that are
    worth asking for, and FILE.origins.csv what is filled in in the images of each origin.

    Examples: partlabel complete run -o completed.csv --min-precision 0.9

    partlabel complete run --answers questions.csv -o completed.csv
    """
    from partlabel.base.terminal import say
    from partlabel.judging import labelling
    from partlabel.judging.completion import files_of
    from partlabel.output.targets import check_labels_target

    check_labels_target(to)
    if plan and answers is not None:
        raise InputError("--plan draws images to label, so it has no use for --answers")
    if str(out) == "-" or (out.exists() and not (out.is_file() or out.is_dir())):
        raise InputError(
            f"{out}: complete writes five files next to each other; give the path of the first one"
        )
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: its folder does not exist")
    for path in files_of(out) if answers is None and not plan else (out,):
        _check_free(path, overwrite)
    if plan:
        drawn = labelling.plan(run, min_precision=min_precision)
        drawn.save(out, excel_safe=excel_safe)
        say(f"wrote {out}: {drawn.describe()}")
        return
    choices: Any = {  # checked by labelling.complete
        "answers": answers,
        "guarantee": guarantee,
        "only_labelled": only_labelled,
        "despite_shift": despite_shift,
        "all_scores": all_scores,
    }
    completion = labelling.complete(
        run,
        min_precision=min_precision,
        images=images,
        features=features,
        feature_ids=feature_ids,
        cache=cache,
        device=device,
        **choices,
    )
    if answers is None:
        _save(completion, out, to, excel_safe)
    else:
        completion.save(out, to, excel_safe=excel_safe)
        say(f"wrote {out}: {completion.headline()}")


def _save(completion: "Completion", out: Path, to: str, excel_safe: bool) -> None:
    """Write a completion and its evidence, and show both."""
    from partlabel.base.terminal import say
    from partlabel.output.display import describe_size, show_completion

    _, _, suspects, *_ = completion.save(out, to, excel_safe=excel_safe)
    say(f"wrote {out}: {describe_size(*completion.size)}")
    show_completion(completion)
    if completion.suspects:
        number, worst = len(completion.suspects), completion.suspects[0]
        say(
            f"{suspects.name} lists {count(number, 'known label')} that may be wrong; the most "
            f"doubtful one is '{worst.name}' in {worst.image} (score {worst.score:.3f})"
        )


def _check_free(out: Path, overwrite: bool) -> None:
    """Raise an error if a file would be replaced, since it may hold labels."""
    if out.is_file() and not overwrite:
        raise InputError(f"{out}: already exists; choose another name, or use --overwrite")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (reads_labels(evaluate), predict, complete):
        app.command()(cast("Any", command))
