"""The progress of a training: bars in a terminal, one line per epoch elsewhere."""

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.base.terminal import console
from partlabel.training.run import Run


class Monitor:
    """Shows the progress of a training on standard error.

    Args:
        bar: the progress bars.
        run: the run, which keeps the log.
        board: TensorBoard's writer, if there is one.
        name: printed before each line.
    """

    def __init__(self, bar: Progress, run: Run, board: Any, name: str = "") -> None:
        self.bar, self.run, self.board, self.name = bar, run, board, name
        self.whole = bar.add_task(f"{name} epochs".strip(), total=None)
        self.part = bar.add_task("", total=None)
        self.steps, self.images, self.started = 1, 0, time.monotonic()

    def begin(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """An epoch begins."""
        self.steps, self.images, self.started = max(steps, 1), 0, time.monotonic()
        self.bar.update(self.whole, completed=epoch, total=epochs)
        self.bar.reset(self.part, total=steps, completed=done, description="")

    def step(self, figures: dict[str, float], images: int) -> None:
        """A step is done."""
        self.images += images
        speed = self.images / max(time.monotonic() - self.started, 1e-9)
        text = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
        text += f"  {speed:.0f} images/s"
        self.bar.update(self.part, advance=1, description=text)
        self.bar.update(self.whole, advance=1 / self.steps)

    def end(self, record: dict[str, Any]) -> None:
        """An epoch is done."""
        whole = {"epoch", "stage", "images_per_second"}
        words = [
            f"{name} {value:{'.0f' if name in whole else '.4g'}}" for name, value in record.items()
        ]
        self.bar.console.print("  ".join([self.name, *words] if self.name else words))
        if self.board is not None:
            for name, value in record.items():
                self.board.add_scalar(name, value, record["epoch"])

    def saved(self, history: list[dict[str, Any]]) -> None:
        """Write the log as far as the checkpoint."""
        self.run.write_log(history)

    def note(self, message: str) -> None:
        """Something worth knowing."""
        self.bar.console.print(message, markup=False)

    def member(self, run: Run) -> "Monitor":
        """The monitor of a further member of an ensemble."""
        return Monitor(self.bar, run, None, name=f"member {run.folder.name}")

    def warn(self, message: str) -> None:
        """Something the user should act on."""
        if self.name:
            return  # the first member warns of the same
        warnings.warn(message, PartlabelWarning, stacklevel=2)


@contextmanager
def watch(run: Run, *, tensorboard: bool = False) -> Iterator[Monitor]:
    """Show the training of a run while the block runs, and keep its log."""
    board = need_tensorboard()(run.folder / "tensorboard") if tensorboard else None
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
            yield Monitor(bar, run, board)
    finally:
        if board is not None:
            board.close()


def need_tensorboard() -> Any:
    """TensorBoard's writer, or an error that says how to get it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "--tensorboard needs another package: pip install 'partlabel[track]'"
        ) from error
    return SummaryWriter
