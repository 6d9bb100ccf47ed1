"""The ``partlabel`` command: reads arguments, calls the package and prints results.

A command imports what it needs when it runs, so that ``--help`` and errors in a call are fast.
"""

import gc
import io
import os
import signal
import sys
import warnings
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import CommandInfo

from partlabel.base import launch, processes
from partlabel.base.errors import JobError, PartlabelError, PartlabelWarning, StoppedError
from partlabel.base.interruption import STOPPING
from partlabel.base.wording import words_of_commands
from partlabel.cli import (
    caching,
    exporting,
    features,
    judging,
    labels,
    merging,
    reporting,
    reviewing,
    suggesting,
    training,
)
from partlabel.cli.torchrun import is_shared, together_or_alone, write_to_log
from partlabel.version import VERSION

# new objects, after which Python looks for garbage; with its 700, imports are searched many times
_COLLECT_AFTER = 10_000

_PANELS = {
    command: panel
    for panel, commands in {
        "First look": "demo",
        "Label files": "inspect convert merge edit simulate scenes",
        "Train": "train methods backbones embed bench cache",
        "Use a run": "evaluate predict complete report suggest review export",
    }.items()
    for command in commands.split()
}
"""The part of ``partlabel --help`` that shows a command, in the order of the page."""

app = typer.Typer(
    name="partlabel",
    help="Multi-label image classification when most labels are unknown.",
    epilog="Every command has --help. For a first look, run: partlabel demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 success, 1 the job failed, 2 the call is wrong."""
    from partlabel.base.terminal import complain

    with words_of_commands(), warnings.catch_warnings():
        warnings.simplefilter("always", PartlabelWarning)
        show_other = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, PartlabelWarning):
                complain("warning", str(message), "yellow")
            else:
                show_other(message, category, *rest, **more)

        warnings.showwarning = show
        try:
            with together_or_alone(sys.argv[1:] if arguments is None else arguments):
                app(arguments)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except PartlabelError as error:
            shown = processes.tell_others(error)
            complain("error", str(shown), "bold red")
            return shown.exit_code
        except KeyboardInterrupt:
            complain("error", "stopped by SIGINT", "bold red")
            return 128 + signal.SIGINT
        except (MemoryError, OSError) as error:
            text = "not enough memory" if isinstance(error, MemoryError) else str(error)
            complain("error", str(processes.tell_others(JobError(text))), "bold red")
            return 1
        return 0


def _stop(number: int, frame: Any) -> None:
    """End by an exception, so that open files are closed and temporary ones removed."""
    raise StoppedError(f"stopped by {signal.Signals(number).name}", number)


def run() -> None:
    """Run the command of the shell's command line."""
    gc.set_threshold(_COLLECT_AFTER)
    for number in STOPPING[1:]:  # Python turns the first, Ctrl-C, into an exception itself
        signal.signal(number, _stop)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for names that the terminal cannot show
    if launch.launched_rank() > 0 and not is_shared(sys.argv[1:]):
        return  # the first process does it
    if launch.launched_rank() > 0:
        write_to_log()
    code = main()
    processes.end(code)
    gc.freeze()  # else Python looks through all objects of torch once more before it ends
    sys.exit(code)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"partlabel {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    no_symlinks: Annotated[
        bool,
        typer.Option(
            "--no-symlinks",
            help="Ignore symbolic links in image folders, which may lead to files elsewhere.",
        ),
    ] = False,
) -> None:
    if no_symlinks:
        os.environ["PARTLABEL_NO_SYMLINKS"] = "1"  # also for the processes of bench


labels.register(app)
merging.register(app)
training.register(app)
features.register(app)
judging.register(app)
suggesting.register(app)
reporting.register(app)
exporting.register(app)
reviewing.register(app)
caching.register(app)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write, new or empty.")] = Path("demo"),
) -> None:
    """Try all steps on generated images, in two minutes: merge, train, complete, report."""
    from partlabel.output.tour import run as tour

    tour(out)


def _reflowed(text: str) -> str:
    """Text with one line per paragraph, which the terminal then wraps to its own width."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


def _name(command: CommandInfo) -> str:
    assert command.callback is not None
    return command.name or command.callback.__name__


app.registered_commands.sort(key=lambda command: list(_PANELS).index(_name(command)))
for _command in app.registered_commands:
    _command.help = _reflowed(getattr(_command.callback, "__doc__", None) or "")
    _command.rich_help_panel = _PANELS[_name(_command)]
