"""A review that runs: checks first, then loads in a thread while the page already answers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from partlabel.base.errors import FileError, InputError, PartlabelError
from partlabel.base.locks import locked
from partlabel.images.named_images import are_here
from partlabel.labels import LabelTable
from partlabel.output.review.background import Background
from partlabel.output.review.desk import Desk
from partlabel.output.review.learner import Head
from partlabel.output.review.opinions import (
    Opinions,
    file_digest,
    load_opinions,
    save_opinions,
    table_digest,
)
from partlabel.output.review.review_images import ReviewImages
from partlabel.output.review.verdict_journal import Journal

if TYPE_CHECKING:
    from partlabel.output.review.run_model import RunModel
    from partlabel.training.run import Run


class LoadingError(InputError):
    """The review is still loading, or could not be loaded; the message says which."""


@dataclass(frozen=True)
class ReviewOptions:
    """What to review.

    Args:
        run: the folder of a finished run.
        labels: the labels to review; None for those that the run was trained on.
        images: the folder of the images; None for the run's own.
        precision: the precision that guarantees must show.
        cache, device: as for other commands.
        learn: whether a head learns from verdicts.
    """

    run: Path
    labels: LabelTable | None = None
    images: Path | None = None
    precision: float = 0.95
    cache: Path | None = None
    device: str | None = None
    learn: bool = True


def review_folder(run: Path) -> Path:
    """The folder beside a run that has its journal.

    >>> review_folder(Path("runs/a")).name
    'a.review'
    """
    resolved = run.resolve()
    return resolved.with_name(f"{resolved.name}.review")


@contextmanager
def open_session(options: ReviewOptions) -> Iterator["Session"]:
    """Check the run and the journal, and hold the folder of the review.

    Nothing here needs torch. What the run says is loaded by :meth:`Session.load`.
    """
    record = options.run / "run.json"
    if not record.is_file():
        raise FileError(options.run, "there is no run here (run.json is missing)")
    folder = review_folder(options.run)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot write here ({error.strerror})") from error
    with locked(folder):
        about = _identity(options, record)
        journal = Journal(folder / "journal.sqlite", about)
        session = Session(options, folder, journal, about)
        try:
            yield session
        finally:
            session.close()


def _identity(options: ReviewOptions, record: Path) -> dict[str, str]:
    """Hashes of the run and of the labels, which a journal belongs to."""
    if options.labels is not None:
        return {"run": file_digest(record), "labels": table_digest(options.labels)}
    path = options.run / "labels.arrow"
    try:
        labels = str(json.loads(record.read_bytes())["labels_file"])
        intact = path.is_file() and file_digest(path) == labels
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise FileError(record, f"damaged ({error})") from error
    if not intact:
        raise FileError(path, "damaged: not the labels that the run was trained on")
    return {"run": file_digest(record), "labels": labels}


class Session:
    """A review, loading or ready.

    Attributes:
        step: what is being done while it loads.
        error: why it could not be loaded; empty otherwise.
    """

    def __init__(
        self, options: ReviewOptions, folder: Path, journal: Journal, about: dict[str, str]
    ) -> None:
        self.options, self.folder, self.journal, self.about = options, folder, journal, about
        self.step, self.error, self.exit_code = "starting", "", 0
        self._ready: tuple[Desk, ReviewImages] | None = None
        self.background: Background | None = None
        self._model: RunModel | None = None
        self._model_lock = threading.Lock()
        self.trouble = ""
        """Why nothing is learned any more, if the learning failed."""

    def load(self) -> None:
        """Load the opinions of the run, and all verdicts so far. Errors are kept for the page."""
        try:
            opinions = self._opinions()
            self.step = "reading the journal"
            self.use(opinions)
        except PartlabelError as error:
            self.error, self.exit_code = str(error), error.exit_code
        except OSError as error:
            self.error, self.exit_code = str(error), 1
        except Exception as error:
            self.error, self.exit_code = f"{type(error).__name__}: {error}", 1
            raise

    def use(self, opinions: Opinions) -> None:
        """Begin with these opinions."""
        desk = Desk(opinions, self.journal, self.folder)
        images = ReviewImages(opinions.images, desk.images, self.folder / "thumbnails")
        if self.options.learn and opinions.features is not None:
            self.background = Background(desk, self._learning_failed)
        self._ready = desk, images
        self.step = ""

    def _learning_failed(self, error: Exception) -> None:
        self.trouble = f"learning has stopped ({type(error).__name__}: {error}); verdicts are kept"

    def _opinions(self) -> Opinions:
        """From disk if they were made before, else from the run, which needs torch."""
        key = f"{self.about['run'][:12]}-{self.about['labels'][:12]}-{self.options.precision:g}"
        folder = self.folder / f"opinions-{key}"
        opinions = load_opinions(folder)
        if opinions is None:
            self.step = "loading the network"
            from partlabel.output.review.scored_by_run import ask

            run, labels = self._run(), self.options.labels
            made, vectors = ask(run, labels, self.options.precision, self._set_step)
            self.step = "keeping the scores"
            save_opinions(made, folder, vectors)
            opinions = load_opinions(folder)
            assert opinions is not None
        if self.options.images is not None:
            from dataclasses import replace

            opinions = replace(opinions, images=self.options.images)
        if not are_here(opinions.images):
            raise FileError(
                opinions.images,
                "the images of the run are not here any more; name them with --images",
            )
        return opinions

    def _set_step(self, what: str) -> None:
        self.step = what

    def _run(self) -> "Run":
        from partlabel.training.run import Run
        from partlabel.training.settings import Execution

        options = self.options
        execution = Execution(cache=options.cache, device=options.device or "auto")
        return Run(options.run, options.images, execution)

    @property
    def desk(self) -> Desk:
        """The state of the review; an error while it loads."""
        return self._parts[0]

    @property
    def images(self) -> ReviewImages:
        """The pictures; an error while the review loads."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[Desk, ReviewImages]:
        if self._ready is None:
            raise LoadingError(self.error or f"the review is loading: {self.step}")
        return self._ready

    @property
    def ready(self) -> bool:
        """Whether everything is loaded."""
        return self._ready is not None

    def model(self) -> "RunModel":
        """The model of the run, loaded when it is first needed."""
        with self._model_lock:
            if self._model is None:
                from partlabel.output.review.run_model import RunModel

                self._model = RunModel(self._run())
            return self._model

    def head(self, name: str) -> Head | None:
        """The head that was learned for a class."""
        return None if self.background is None else self.background.learner.heads.get(name)

    def notice(self) -> None:
        """Let the background look for new verdicts."""
        if self.background is not None:
            self.background.notice()

    def why_not_learning(self) -> str:
        """Why nothing is learned; empty if it is."""
        if self.trouble:
            return self.trouble
        if self._ready is not None and self.background is None:
            return self.desk.opinions.learns or "Learning is switched off."
        return ""

    def close(self) -> None:
        """Stop learning, and close the journal."""
        if self.background is not None:
            self.background.stop()
        self.journal.close()


def in_thread(session: Session, done: Callable[[], object]) -> threading.Thread:
    """Load a session in a thread; ``done`` is called at the end, also after an error."""

    def work() -> None:
        try:
            session.load()
        finally:
            done()

    thread = threading.Thread(target=work, name="loader", daemon=True)
    thread.start()
    return thread
