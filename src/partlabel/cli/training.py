"""The commands around training: ``train`` and ``methods``."""

import inspect
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from partlabel.base.errors import InputError
from partlabel.cli.options import parameters_of, values_of
from partlabel.training.settings import Execution, Settings


def train(
    labels: Annotated[Path, typer.Argument(help="A label file.")],
    images: Annotated[Path, typer.Option("--images", help="Folder of the images.")],
    out: Annotated[Path, typer.Option("--out", help="The folder of the run; new or empty.")],
    config: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads the annotation
        typer.Option(help="A YAML file of settings, such as RUN/config.yaml; options win over it."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped.")
    ] = False,
    format: Annotated[Optional[str], typer.Option(help="Format of the labels.")] = None,  # noqa: UP045
    unlisted: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="What a class is where the file does not list it: absent or unknown."),
    ] = None,
    frozen: Annotated[
        bool,
        typer.Option(
            "--frozen",
            help="Keep the backbone as it is: its features are cached, and the head trains in "
            "seconds.",
            rich_help_panel="Network",
        ),
    ] = False,
    unfreeze: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="last: train what comes after the last feature map of stride 16; all: train "
            "everything. (default: all)",
            rich_help_panel="Network",
            show_default=False,
        ),
    ] = None,
    **values: Any,
) -> None:
    """Train a classifier on the labels that are known.

    If absent labels are known too, start with --method bce; if only present ones, with em-apl.

    Example: partlabel train labels.csv --images photos/ --method em-apl --frozen --out run
    """
    from partlabel.base.terminal import say
    from partlabel.training.train import train as train_run

    if frozen and unfreeze:
        raise InputError("--frozen and --unfreeze exclude each other")
    parts = {None: None, "last": "lower", "all": "nothing"}
    if unfreeze not in parts:
        raise InputError(f"--unfreeze {unfreeze}: say last or all")
    part = "all" if frozen else parts[unfreeze]
    settings = values_of(Settings, values) | values_of(Execution, values)
    settings |= {} if part is None else {"frozen": part}
    if "method" not in settings and config is None:
        raise InputError("say how to learn with --method, such as bce or em-apl")
    run = train_run(
        labels,
        images,
        out,
        resume=resume,
        config=config,
        format=format,
        unlisted=unlisted,
        **settings,
    )
    record = run.record
    if record.best_val_mAP is None:
        score = (
            "nothing to validate on, so the last epoch is kept. A few hundred images with present "
            "and absent labels, in a split 'holdout', would help a lot"
        )
    else:
        score = f"validation mAP {100 * record.best_val_mAP:.2f}"
    say(f"{out}: epoch {record.best_epoch} kept, {score}")
    if record.broken:
        say(f"  {len(record.broken):,} unreadable images were left out")


def _with_settings(command: Any) -> Any:
    """The command with an option for each setting, in place of its ``**values``."""
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    own = [p.replace(kind=p.KEYWORD_ONLY) for p in own]
    settings = [*parameters_of(Settings, skip=("frozen",)), *parameters_of(Execution)]
    network = [p for p in own if p.name in ("frozen", "unfreeze")]  # beside the backbone
    at = next(number for number, p in enumerate(settings) if p.name == "backbone")
    settings[at:at] = network
    others = [p for p in own if p not in network]
    command.__signature__ = signature.replace(parameters=[*others, *settings])
    return command


def methods(
    name: Annotated[Optional[str], typer.Argument(help="Describe this method.")] = None,  # noqa: UP045
) -> None:
    """List the methods, or describe one and its settings."""
    from partlabel.base.terminal import console, say
    from partlabel.learning import catalog
    from partlabel.output import display

    if name is not None:
        say(catalog.description(name))
        return
    rows = [list(row) for row in catalog.summaries()]
    console().print(display.grid([("method", False), ("what it does", False)], rows))
    say("If absent labels are known too, start with bce; if only present ones, with em-apl.")
    say("Settings and papers of a method: partlabel methods NAME")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (methods, _with_settings(train)):
        app.command()(command)
