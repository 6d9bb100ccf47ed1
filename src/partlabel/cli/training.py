"""The commands around training: ``train``, ``evaluate``, ``predict``, ``complete``, ``report``, ``bench``."""

import json
import math
import warnings
from pathlib import Path
from typing import Annotated, Any, Optional, cast

import typer

from partlabel.base.errors import InputError, PartlabelWarning, count

Images = Annotated[Path, typer.Option("--images", help="Folder of the images.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
Cache = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation
    typer.Option(help="Where features are kept; PARTLABEL_CACHE, or the user's cache folder."),
]
_SETTINGS = "Training"


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SETTINGS, show_default=False)


def train(
    labels: Annotated[Path, typer.Argument(help="A label file.")],
    images: Images,
    out: Annotated[Path, typer.Option("--out", help="The folder of the run; new or empty.")],
    method: Annotated[str, typer.Option(help="How to learn, such as bce, an, em, em-apl; see: partlabel methods")],
    head: Annotated[Optional[str], _option(help="linear (the mean of the feature map), weldon or saliency (places of class maps), or decoder (a query per class), where a method has none of its own. (default: linear)")] = None,  # noqa: UP045
    head_options: Annotated[Optional[list[str]], _option("--head-set", help="key=value: a setting of the head, such as k=3; may be repeated.")] = None,  # noqa: UP045
    backbone: Annotated[Optional[str], _option(help="A network of timm. (default: tf_efficientnet_lite0)")] = None,  # noqa: UP045
    weights: Annotated[Optional[str], _option(help="none, imagenet, or a file. (default: imagenet)")] = None,  # noqa: UP045
    frozen: Annotated[bool, _option("--frozen", help="Keep the backbone as it is; its features are cached, and the head trains in seconds.")] = False,
    unfreeze: Annotated[Optional[str], _option(help="last: train all that comes after the last map of stride 16.")] = None,  # noqa: UP045
    reduce: Annotated[Optional[int], _option(help="With --frozen: keep so many principal components of the features, such as 384; with weight decay (3e-2) and a larger --lr (3e-3) this often generalises better.")] = None,  # noqa: UP045
    view_bank: Annotated[Optional[int], _option("--view-bank", help="With --frozen or --unfreeze: so many strong versions of each training picture are cached, and a mirrored one, for methods that compare views. (default: 2 for those)")] = None,  # noqa: UP045
    size: Annotated[Optional[int], _option(help="Pixels; pictures are squashed to a square. (default: 224)")] = None,  # noqa: UP045
    epochs: Annotated[Optional[int], _option(help="(default: 15)")] = None,  # noqa: UP045
    batch: Annotated[Optional[int], _option(help="Images in a step. (default: 32)")] = None,  # noqa: UP045
    optimizer: Annotated[Optional[str], _option(help="sgd, adam, adamw, rmsprop; or, with --frozen, lbfgs, which takes all images at once and soon comes to the minimum: often better, and wants --weight-decay, such as 1e-3. (default: adam)")] = None,  # noqa: UP045
    lr: Annotated[Optional[float], _option(help="Learning rate. (default: 0.001; of lbfgs 1, the first step that its line search tries)")] = None,  # noqa: UP045
    weight_decay: Annotated[Optional[float], _option(help="Not on biases and norms. (default: 0)")] = None,  # noqa: UP045
    decay_all: Annotated[bool, _option("--decay-all", help="Weight decay on biases and norms too.")] = False,
    momentum: Annotated[Optional[float], _option(help="Of sgd. (default: 0.9)")] = None,  # noqa: UP045
    schedule: Annotated[Optional[str], _option(help="constant, step, cosine, onecycle or plateau. (default: constant)")] = None,  # noqa: UP045
    lr_warmup: Annotated[Optional[float], _option(help="Share of the steps in which the learning rate rises. (default: 0)")] = None,  # noqa: UP045
    clip: Annotated[Optional[float], _option(help="Largest norm of the gradient.")] = None,  # noqa: UP045
    ema: Annotated[Optional[float], _option(help="Keep a running mean of the weights, such as 0.9997; validated beside them, the better is kept.")] = None,  # noqa: UP045
    patience: Annotated[Optional[int], _option(help="Stop after so many epochs without a better validation.")] = None,  # noqa: UP045
    keep: Annotated[Optional[str], _option(help="Which epoch: best by validation, or last. (default: best)")] = None,  # noqa: UP045
    seed: Annotated[Optional[int], _option(help="(default: 0)")] = None,  # noqa: UP045
    split: Annotated[Optional[str], _option(help="Train on this split. (default: train if there is one, else all)")] = None,  # noqa: UP045
    val: Annotated[Optional[float], _option(help="Share of the split to validate on. (default: 0.2)")] = None,  # noqa: UP045
    val_split: Annotated[Optional[str], _option(help="Validate on this split instead. (default: holdout if there is one)")] = None,  # noqa: UP045
    reserve: Annotated[Optional[float], _option(help="Share of the validation images that nothing is chosen on: `complete` tests its promises on them. (default: 0.5)")] = None,  # noqa: UP045
    strict: Annotated[bool, _option("--strict", help="An unreadable image is an error, before training.")] = False,
    drop_empty: Annotated[bool, _option("--drop-empty", help="Leave out classes that no training image is known to have.")] = False,
    side: Annotated[Optional[list[str]], _option(help="Classes by pattern, such as 'species=*', that are not learned but tell which images are alike (imcl); may be repeated.")] = None,  # noqa: UP045
    workers: Annotated[Optional[int], _option(help="Processes that decode images. (default: 0)")] = None,  # noqa: UP045
    cache_pixels: Annotated[bool, _option("--cache-pixels", help="Keep decoded pictures on disk; worth it for large photos and many epochs.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to RUN/tensorboard.")] = False,
    options: Annotated[Optional[list[str]], typer.Option("--set", help="key=value: a setting of the method; may be repeated.")] = None,  # noqa: UP045
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    cache: Cache = None,
    format: Annotated[Optional[str], typer.Option(help="Format of the labels.")] = None,  # noqa: UP045
    unlisted: Annotated[Optional[str], typer.Option(help="absent or unknown.")] = None,  # noqa: UP045
) -> None:  # fmt: skip
    """Train a classifier on the labels that are known.

    Labels of both kinds known: --method bce. Only positives known: --method em-apl.

    Example: partlabel train labels.csv --images photos/ --method em-apl --frozen --out run
    """
    from partlabel.base.terminal import say
    from partlabel.labels import formats
    from partlabel.training.train import train as fit

    if frozen and unfreeze:
        raise InputError("--frozen and --unfreeze last exclude each other")
    if unfreeze not in (None, "last"):
        raise InputError(f"--unfreeze {unfreeze}: only 'last' can be unfrozen")
    given = {
        "method": method,
        "backbone": backbone,
        "weights": weights,
        "frozen": "all" if frozen else "lower" if unfreeze else None,
        "reduce": reduce,
        "view_bank": view_bank,
        "size": size,
        "epochs": epochs,
        "batch": batch,
        "optimizer": optimizer,
        "lr": lr,
        "weight_decay": weight_decay,
        "decay_all": decay_all or None,
        "momentum": momentum,
        "schedule": schedule,
        "lr_warmup": lr_warmup,
        "clip": clip,
        "ema": ema,
        "patience": patience,
        "keep": keep,
        "seed": seed,
        "split": split,
        "val": val,
        "val_split": val_split,
        "reserve": reserve,
        "strict": strict or None,
        "drop_empty": drop_empty or None,
        "side": side or None,
        "workers": workers,
        "cache_pixels": cache_pixels or None,
        "options": _pairs("--set", options),
        "head": head,
        "head_options": _pairs("--head-set", head_options),
    }
    table = formats.read_labels(labels, format, unlisted)
    settings = {name: value for name, value in given.items() if value is not None}
    run = fit(table, images, out, resume=resume, cache=cache, tensorboard=tensorboard, **settings)
    record = run.record
    found = (
        "nothing to validate on: the last epoch is kept. A few hundred images with labels of both "
        "kinds, in a split 'holdout', would help a lot"
    ) if record.best_val_mAP is None else (
        f"validation mAP {100 * record.best_val_mAP:.2f}"
    )  # fmt: skip
    say(f"{out}: epoch {record.best_epoch} kept, {found}")
    if record.broken:
        say(f"  {len(record.broken):,} unreadable images were left out")


def methods(
    name: Annotated[Optional[str], typer.Argument(help="Tell all about this one.")] = None,  # noqa: UP045
) -> None:
    """List the methods, or tell what one does and what can be set in it."""
    from partlabel.base.terminal import console, say
    from partlabel.learning import catalog
    from partlabel.output import display

    if name is not None:
        say(catalog.description(name))
        return
    rows = [list(row) for row in catalog.summaries()]
    console().print(display.grid([("method", False), ("what it does", False)], rows))
    say("Labels of both kinds known: bce. Only positives known: em-apl.")
    say("Settings of one, and its papers: partlabel methods NAME")


def evaluate(
    run: RunFolder,
    labels: Annotated[Optional[Path], typer.Argument(help="A label file; none with --reserved.")] = None,  # noqa: UP045
    images: Annotated[Optional[Path], typer.Option("--images", help="Folder of the images; needed unless --reserved or --estimates.")] = None,  # noqa: UP045
    reserved: Annotated[bool, typer.Option("--reserved", help="On those of the run's own validation images that nothing was chosen on. To report, not to choose among runs by: that is what the validation mAP is for.")] = False,
    estimates: Annotated[bool, typer.Option("--estimates", help="Not the classifier, but the method's own estimates of its training labels (role).")] = False,
    split: Annotated[Optional[str], typer.Option(help="Only this split.")] = None,  # noqa: UP045
    threshold: Annotated[float, typer.Option(help="A class is predicted from this score up.")] = 0.5,
    own_thresholds: Annotated[bool, typer.Option("--own-thresholds", help="Use the run's own thresholds, one per class, chosen on validation labels, as predict does.")] = False,
    json_file: Annotated[Optional[Path], typer.Option("--json", help="Also write the figures to this file.")] = None,  # noqa: UP045
    cache: Cache = None,
    format: Annotated[Optional[str], typer.Option(help="Format of the labels.")] = None,  # noqa: UP045
    unlisted: Annotated[Optional[str], typer.Option(help="absent or unknown.")] = None,  # noqa: UP045
) -> None:  # fmt: skip
    """Measure a run on known labels.

    Labels that a model filled in are left out.

    Examples: partlabel evaluate run labels.csv --images photos/ --split test

    partlabel evaluate run --reserved
    """
    from partlabel import metrics
    from partlabel.base.files import atomic_file
    from partlabel.base.terminal import say
    from partlabel.judging import scoring
    from partlabel.labels import formats
    from partlabel.output import display
    from partlabel.training.run import Run
    from partlabel.training.train import task_of

    if estimates and own_thresholds:
        raise InputError("--own-thresholds are the classifier's; --estimates has none")
    more = (images, split, format, unlisted, estimates or None)
    if reserved == (labels is not None) or (reserved and any(one is not None for one in more)):
        raise InputError("name a label file to measure on, or --reserved, which needs no other")
    limits = scoring.own_thresholds(Run(run)) if own_thresholds else threshold
    if labels is None:
        result = scoring.evaluate_reserved(Run(run), limits, cache)
    else:
        table = formats.read_labels(labels, format, unlisted)
        table = table if split is None else table.split(split)
        if estimates:
            result = scoring.evaluate_estimates(Run(run), table, threshold)
        elif images is None:
            raise InputError("say where the images are with --images DIR")
        else:
            result = scoring.evaluate(Run(run), table, images, limits, cache)
            known = int((table.ids.find(task_of(Run(run)).labels.ids) >= 0).sum())
            if known:
                say(f"{known:,} of {len(table):,} images were trained on: figures flatter the run; "
                    "measure on others with --split, or with --reserved")  # fmt: skip
    display.show_evaluation(result, Run(run).record.classes)
    if json_file is not None:
        figures = {name: None if math.isnan(value) else value for name, value in result.items()}
        classes = [
            {"class": name, **{f: _plain(row[f]) for f in result.per_class.dtype.names}}
            for name, row in zip(Run(run).record.classes, result.per_class, strict=True)
        ]
        groups = metrics.by_annotations(result, task_of(Run(run)).labels)
        said = {**figures, "groups": groups, "per_class": classes}
        with atomic_file(json_file) as stream:
            stream.write(json.dumps(said, indent=1).encode())


def predict(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Images or folders.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write.")],
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="A class is present from this score up; else chosen on validation."),
    ] = None,
    to: Annotated[str, typer.Option("--to", help="Format to write.")] = "cells",
    overwrite: Overwrite = False,
) -> None:
    """Label images with a run: a value and a score for each class.

    Example: partlabel predict run new-photos/ -o predicted.csv
    """
    from partlabel.judging import scoring
    from partlabel.training.run import Run

    _check_free(out, overwrite)
    table, broken = scoring.predict(Run(run), images, threshold)
    _write(table, out, to)
    for message in broken:
        warnings.warn(f"left out: {message}", PartlabelWarning, stacklevel=2)


def complete(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write.")],
    min_precision: Annotated[float, typer.Option(help="Share of the labels filled in that must be right.")] = 0.95,
    guarantee: Annotated[Optional[str], typer.Option(help="On whose labels it rests: class, each on its own; pooled, all together. (default: class, those that hardly pass or have too few labels pooled)")] = None,  # noqa: UP045
    to: Annotated[str, typer.Option("--to", help="Format to write.")] = "cells",
    overwrite: Overwrite = False,
    cache: Cache = None,
) -> None:  # fmt: skip
    """Fill in the unknown labels of the run's own label file; known ones are never changed.

    Writes value, calibrated score and source (human or model) for each cell. A label is filled in
    where labels that the training kept aside show, with a confidence of 95%, that so many like it
    are right; all else stays unknown. Beside FILE.csv, FILE.guarantees.csv tells for each class what
    that rests on, and FILE.suspects.csv lists known labels that are unlikely to the model.
    """
    from partlabel.base.errors import one_of
    from partlabel.base.terminal import say
    from partlabel.judging.completion import complete as fill
    from partlabel.labels.formats import FORMATS
    from partlabel.output import completion_summary as output
    from partlabel.training.run import Run

    def note(message: str) -> None:
        warnings.warn(message, PartlabelWarning, stacklevel=2)

    if guarantee is not None:
        one_of("guarantee", guarantee, ("class", "pooled"))
    one_of("format", to, FORMATS)
    if str(out) == "-" or (out.exists() and not (out.is_file() or out.is_dir())):
        raise InputError(f"{out}: complete writes three files side by side; name the first of them")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: there is no such folder")
    beside = [out.with_name(f"{out.stem}.{what}.csv") for what in ("guarantees", "suspects")]
    for path in (out, *beside):
        _check_free(path, overwrite)
    done = fill(Run(run), min_precision, cast("Any", guarantee), cache, note)
    _write(done.table, out, to)
    output.show(done)
    output.write_promises(done, beside[0])
    output.write_suspects(done, beside[1])
    if done.suspects:
        worst = done.suspects[0]
        say(f"worth a look, in {beside[1].name}: {count(len(done.suspects), 'known label')} "
            f"unlikely to the model, most of all "
            f"'{worst.name}' in {worst.image} (score {worst.score:.3f})")  # fmt: skip


def report(
    run: RunFolder,
    truth: Annotated[Optional[Path], typer.Option(help="A label file with more of the true labels: shows what became of unknown ones.")] = None,  # noqa: UP045
    baseline: Annotated[Optional[Path], typer.Option(metavar="RUN2", help="Another run on the same labels to compare with.")] = None,  # noqa: UP045
    boxes: Annotated[Optional[Path], typer.Option(help="A file of boxes (image,class,left,top,right,bottom): shows whether class maps are highest on objects.")] = None,  # noqa: UP045
    min_precision: Annotated[float, typer.Option(help="What `complete` is to promise, in the part that shows what it would.")] = 0.95,
    landscape: Annotated[bool, typer.Option("--landscape", help="Also draw the loss around the trained weights; takes minutes if the backbone was trained.")] = False,
    cache: Cache = None,
    format: Annotated[Optional[str], typer.Option(help="Format of the true labels.")] = None,  # noqa: UP045
    unlisted: Annotated[Optional[str], typer.Option(help="absent or unknown.")] = None,  # noqa: UP045
) -> None:  # fmt: skip
    """Write RUN/report.html: curves, classes, scores, and sample images; one file to send around.

    Example: partlabel report run --truth full.csv --baseline run-an --landscape
    """
    from partlabel.base.terminal import say
    from partlabel.labels import formats
    from partlabel.labels.formats.boxes import read_boxes
    from partlabel.output.report import build
    from partlabel.training.run import Run

    if truth is None and (format is not None or unlisted is not None):
        raise InputError("--format and --unlisted say how to read --truth, which is not given")
    table = None if truth is None else formats.read_labels(truth, format, unlisted)
    other = None if baseline is None else Run(baseline)
    stated = None if boxes is None else read_boxes(boxes)
    path = build(
        Run(run),
        cache,
        truth=table,
        baseline=other,
        boxes=stated,
        landscape=landscape,
        precision=min_precision,
    )
    say(f"wrote {path}")


def bench(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="What to compare.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and results.")],
    jobs: Annotated[
        int, typer.Option(help="Trainings at a time; cores are shared out.", min=1)
    ] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on; what is done is kept.")] = False,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A label file instead of the spec's; full, unless nothing is hidden."),
    ] = None,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the images, instead of the spec's."),
    ] = None,
    cache: Cache = None,
) -> None:
    """Compare methods: each on the same labels, with the same tuning on validation labels.

    Writes results.csv (a line a training), table.md and table.tex (mean and deviation over seeds) and,
    with several proportions, curves.svg.
    """
    from partlabel.base.errors import JobError
    from partlabel.base.terminal import console, say
    from partlabel.output import bench as benchmark
    from partlabel.output.bench.sheets import on_terminal

    if out.is_dir() and any(out.iterdir()) and not resume:
        raise InputError(f"{out}: is not empty; add --resume to go on, or name another")
    compared = benchmark.read_spec(spec, labels, images)
    results = benchmark.run(compared, out, jobs, cache, say)
    shown = benchmark.tables_of(compared, results)
    for sheet in shown.sheets:
        console().print(on_terminal(sheet))
    for note in shown.notes:
        say(f"* {note}")
    failed = sum("error" in result for result in results)
    if failed:
        raise JobError(f"{failed} of {len(results)} trainings failed, see beneath the tables")


def _check_free(out: Path, overwrite: bool) -> None:
    """Refuse to replace a file, which may be someone's labels."""
    if out.is_file() and not overwrite:
        raise InputError(f"{out}: exists; name another, or say --overwrite")


def _write(table: Any, out: Path, to: str) -> None:
    from partlabel.base.terminal import say
    from partlabel.labels import formats
    from partlabel.output import display

    formats.write_labels(table, out, to)
    say(f"wrote {out}: {display.describe(table)}")


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """What is given as ``option key=value``, perhaps several times."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: write key=value")
        if name in pairs:
            raise InputError(f"{option} {name} is given twice")
        pairs[name] = value
    return pairs


def _plain(value: Any) -> Any:
    found = value.item()
    return None if isinstance(found, float) and math.isnan(found) else found


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (methods, train, evaluate, predict, complete, report, bench):
        app.command()(command)
