"""The ``partlabel`` command: turns words into calls and results into words, nothing more.

What a command needs is imported when it runs, so that ``--help`` and mistakes answer at once.
"""

import io
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from partlabel.base.errors import PartlabelError, PartlabelWarning
from partlabel.cli import caching, judging, labels, training
from partlabel.version import VERSION

app = typer.Typer(
    name="partlabel",
    help="Multi-label image classification when most labels are unknown.",
    epilog="Every command answers to --help. Try it: partlabel demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 the job failed, 2 the call is wrong."""
    from partlabel.base.terminal import complain

    with warnings.catch_warnings():
        warnings.simplefilter("always", PartlabelWarning)
        show = warnings.showwarning

        def tell(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, PartlabelWarning):
                complain("warning", str(message), "yellow")
            else:
                show(message, category, *rest, **more)

        warnings.showwarning = tell
        try:
            app(arguments)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except PartlabelError as error:
            complain("error", str(error), "bold red")
            return error.exit_code
        except MemoryError:
            complain("error", "not enough memory for this", "bold red")
            return 1
        except OSError as error:
            complain("error", str(error), "bold red")
            return 1
        return 0


def run() -> None:
    """Run the command that the shell was given."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal cannot show
    sys.exit(main())


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"partlabel {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
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
training.register(app)
judging.register(app)
caching.register(app)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="A new folder for what is made.")] = Path("demo"),
) -> None:
    """Show it all on generated pictures, in two minutes: merge, hide, train, complete, report."""
    from partlabel.cli.tour import run as tour

    tour(out)
