"""The commands ``train`` and ``methods``.

Most options of ``train`` are made from ``training/settings.py``.
"""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from partlabel.base.errors import InputError, count
from partlabel.cli.options import parameters_of, values_of
from partlabel.cli.reading import reads_labels
from partlabel.cli.run_options import IMAGES, FeatureIds, Features, Teachers
from partlabel.training.settings import AUTO, Execution, Settings

if TYPE_CHECKING:
    from partlabel.labels.formats import ReadOptions

Config = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation
    typer.Option(help="A YAML file of settings, such as RUN/config.yaml; options override it."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")]
Frozen = Annotated[
    bool,
    typer.Option(
        "--frozen",
        help="Do not train the backbone. Its features are cached, and the head trains in seconds.",
        rich_help_panel="Network",
    ),
]
Unfreeze = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="last: train only the layers after the last feature map of stride 16. all: train all "
        "layers. (default: all)",
        rich_help_panel="Network",
        show_default=False,
    ),
]


def train(
    labels: Annotated[Path, typer.Argument(metavar="LABELS", help="A label file.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="The folder of the run: new or empty, unless --resume is given."
        ),
    ],
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--images",
            help=f"{IMAGES} With --features, it only serves to show them in reports.",
        ),
    ] = None,
    features: Features = None,
    feature_ids: FeatureIds = None,
    teachers: Teachers = None,
    config: Config = None,
    resume: Resume = False,
    frozen: Frozen = False,
    unfreeze: Unfreeze = None,
    *,
    reading: "ReadOptions",
    **values: Any,
) -> None:
    """Train a classifier on the known labels.

    Without --method, several methods are tried on the features of a frozen backbone, compared on
    held-out labels, and the best are combined.

    Example: partlabel train labels.csv --images photos/ --out run
    """
    from partlabel.base.terminal import say
    from partlabel.training.train import train as train_run
    from partlabel.training.unfreezing import describe
    from partlabel.training.validation_note import describe_validation

    settings = values_of(Settings, values) | values_of(Execution, values)
    settings |= _frozen_part(frozen, unfreeze)
    run = train_run(
        labels,
        images,
        out,
        features=features,
        feature_ids=feature_ids,
        teachers=teachers or (),
        resume=resume,
        config=config,
        reading=reading,
        **settings,
    )
    record = run.record
    if record.members:
        validation = describe_validation(run)
        say(f"{out}: {count(len(record.members), 'member')}{validation and f', {validation}'}")
    elif record.best_val_mAP is None:
        say(
            f"{out}: the last epoch ({record.best_epoch}) is kept, since there are no labels to "
            "validate on. A few hundred images with present and absent labels, in a split "
            "'holdout', would help a lot"
        )
    else:
        say(f"{out}: epoch {record.best_epoch} is kept, {describe_validation(run)}")
    if kept := describe(out):
        say(f"  {kept}")
    if record.broken:
        say(f"  {count(len(record.broken), 'unreadable image')} left out")


def _frozen_part(frozen: bool, unfreeze: str | None) -> dict[str, str]:
    """The setting ``frozen`` for the options --frozen and --unfreeze; empty without them."""
    if frozen and unfreeze:
        raise InputError("--frozen and --unfreeze exclude each other")
    if frozen:
        return {"frozen": "all"}
    if unfreeze is None:
        return {}
    parts = {"last": "lower", "all": "nothing"}
    if unfreeze not in parts:
        raise InputError(f"--unfreeze {unfreeze}: must be last or all")
    return {"frozen": parts[unfreeze]}


def _with_settings(command: Any) -> Any:
    """The command with an option for each setting, in place of its ``**values``."""
    signature = inspect.signature(command)
    own = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
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
    from partlabel.training.auto.auto_settings import DESCRIPTION, SUMMARY

    if name is not None:
        say(DESCRIPTION if name == AUTO else catalog.description(name))
        return
    rows = [[AUTO, SUMMARY], *(list(row) for row in catalog.summaries())]
    console().print(display.grid([("method", False), ("what it does", False)], rows))
    say("Without --method, `auto` tries several of them and combines the best.")
    say("Settings and papers of a method: partlabel methods NAME")


def backbones(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Describe this network, or list those that match, such as 'vit*'."),
    ] = None,
    size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Image size in pixels, for the shape of the maps.", min=16, max=4096),
    ] = None,
) -> None:
    """Describe a network, or list networks: pooling, sizes, maps, weights."""
    from partlabel.base.terminal import say
    from partlabel.models.backbones import description

    if name is None:
        say("ImageNet weights are packaged for " + ", ".join(description.packaged()) + ".")
        say("Any network of timm can be used; --backbone A+B joins several.")
        say("List them by a pattern: partlabel backbones 'vit_small*'")
        say("Pooling, sizes and weights of a network: partlabel backbones NAME")
    elif "*" in name or "?" in name:
        names = description.matching(name)
        if not names:
            raise InputError(f"timm has no backbone that matches '{name}'")
        say("\n".join(names))
    else:
        say(str(description.describe(name, size)))


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (methods, backbones, _with_settings(reads_labels(train))):
        app.command()(command)
