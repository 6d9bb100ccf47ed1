"""The progress of a training: progress bars in a terminal, and one line per epoch."""

import math
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.base.terminal import console
from partlabel.base.wording import worded
from partlabel.training.run import Run

_SCORES = {"val_mAP": "validation mAP", "ema_val_mAP": "of the averaged weights"}
_SHOW_EVERY = 0.1  # seconds between figures of steps
_UNPRINTED = {"epoch", "stage", "lr", "positives", "images_per_second"}  # the log has them


class Monitor:
    """Shows the progress of a training on standard error.

    Args:
        bar: the progress bars.
        run: the run, which keeps the log.
        board: TensorBoard's writer; None for none.
        name: printed before each line of an epoch.
        quiet: whether to print neither epochs nor notes.
    """

    def __init__(
        self, bar: Progress, run: Run, board: Any, name: str = "", *, quiet: bool = False
    ) -> None:
        self.bar, self.run, self.board, self.name, self.quiet = bar, run, board, name, quiet
        self.epochs_bar = bar.add_task(f"{name} epochs".strip(), total=None)
        self.steps_bar = bar.add_task("", total=None)
        self.epochs, self.steps, self.images, self.started = 0, 1, 0, time.monotonic()
        self.shown, self.waiting = 0.0, 0

    def begin(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """Show an epoch that begins; ``done`` of its steps may be done already."""
        self.epochs, self.steps = epochs, max(steps, 1)
        self.images, self.started, self.waiting = 0, time.monotonic(), 0
        self.bar.update(self.epochs_bar, completed=epoch, total=epochs)
        self.bar.reset(self.steps_bar, total=steps, completed=done, description="")

    def step(self, figures: dict[str, float], images: int) -> None:
        """Show the figures of a step, unless others were shown just before."""
        self.images += images
        self.waiting += 1
        now = time.monotonic()
        if now - self.shown < _SHOW_EVERY:
            return
        speed = self.images / max(now - self.started, 1e-9)
        text = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
        text += f"  {speed:.0f} images/s"
        self.bar.update(self.steps_bar, advance=self.waiting, description=text)
        self.bar.update(self.epochs_bar, advance=self.waiting / self.steps)
        self.shown, self.waiting = now, 0

    def end(self, record: dict[str, Any]) -> None:
        """Print the main figures of an epoch, and log all of them to TensorBoard."""
        if not self.quiet:
            self.bar.console.print("  ".join([self.name, *self._words(record)]).strip())
        if self.board is not None:
            for name, value in record.items():
                self.board.add_scalar(name, value, record["epoch"])

    def _words(self, record: dict[str, Any]) -> Iterator[str]:
        """Epoch, stage if there are several, the method's figures, and validation in percent."""
        yield f"epoch {record['epoch']}/{self.epochs}"
        if record["stage"] > 1:
            yield f"stage {record['stage']}"
        for name, value in record.items():
            if name in _SCORES and not math.isnan(value):
                yield f"{_SCORES[name]} {100 * value:.2f}"
            elif name not in _UNPRINTED | _SCORES.keys():
                yield f"{name} {value:.4g}"
        yield f"{record['images_per_second']:,.0f} images/s"

    def saved(self, history: list[dict[str, Any]]) -> None:
        """Write the log of all epochs up to the checkpoint."""
        self.run.write_log(history)

    def note(self, message: str) -> None:
        """Print a message."""
        if not self.quiet:
            self.bar.console.print(worded(message), markup=False)

    def member(self, run: Run) -> "Monitor":
        """The monitor of another member of an ensemble."""
        return Monitor(self.bar, run, None, name=f"member {run.folder.name}", quiet=self.quiet)

    def warn(self, message: str) -> None:
        """Issue a warning, once per ensemble."""
        if self.name:
            return  # the first member issues the same warning
        warnings.warn(message, PartlabelWarning, stacklevel=2)


def print_note(message: str, *, quiet: bool) -> None:
    """Print a message before there is a monitor."""
    if not quiet:
        console(stderr=True).print(worded(message), markup=False)


@contextmanager
def watch(run: Run) -> Iterator[Monitor]:
    """A monitor of a run, which shows its progress within the ``with`` block."""
    execution = run.execution
    board = need_tensorboard()(run.folder / "tensorboard") if execution.tensorboard else None
    try:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        ) as bar:
            yield Monitor(bar, run, board, quiet=execution.quiet)
    finally:
        if board is not None:
            board.close()


def need_tensorboard() -> Any:
    """The class of TensorBoard's writer; an error that says how to install it if it is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "--tensorboard needs a further package: pip install 'partlabel[track]'"
        ) from error
    return SummaryWriter
