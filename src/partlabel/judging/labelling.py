"""More labels from a run: those that it fills in, and those that people should give.

These are ``partlabel.complete``, ``partlabel.plan`` and ``partlabel.suggest``. A run can be given
as the folder that ``train`` wrote, or as the :class:`Run` that it returned.
"""

from pathlib import Path
from typing import Literal, overload

from partlabel.base import processes
from partlabel.base.errors import InputError, one_of, warn
from partlabel.judging.completion import Completion, check_precision, complete_run
from partlabel.judging.completion.more_images import holds_images_of
from partlabel.judging.completion.plan import Plan, make_plan
from partlabel.judging.suggestion.answered import AnsweredCompletion, complete_from_answers
from partlabel.judging.suggestion.choosing import Goal, Unit, suggest_run
from partlabel.judging.suggestion.questions import Suggestions
from partlabel.labels.formats import PathLike, ReadOptions
from partlabel.training.opening import Labels, open_run, table_of
from partlabel.training.run import Run


@overload
def complete(
    run: Run | PathLike,
    *,
    min_precision: float = 0.95,
    guarantee: Literal["class", "pooled", "exact", "cross"] | None = None,
    images: PathLike | None = None,
    only_labelled: bool = False,
    despite_shift: bool = False,
    all_scores: bool = False,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> Completion: ...


@overload
def complete(
    run: Run | PathLike,
    *,
    answers: Labels,
    min_precision: float = 0.95,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> AnsweredCompletion: ...


@processes.together()
def complete(
    run: Run | PathLike,
    *,
    answers: Labels | None = None,
    min_precision: float = 0.95,
    guarantee: Literal["class", "pooled", "exact", "cross"] | None = None,
    images: PathLike | None = None,
    only_labelled: bool = False,
    despite_shift: bool = False,
    all_scores: bool = False,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> Completion | AnsweredCompletion:
    """Fill in the unknown labels of a run's own label file; known labels are never changed.

    A label is filled in only where labels that were reserved in training show, with a confidence of
    95%, that this share of such labels is correct. All other labels stay unknown.

    With ``answers``, the answers to random questions are the test instead. Only present labels of
    training images are then filled in, and all classes are tested together.

    Args:
        run: a finished run.
        answers: answers to the questions of ``suggest(run, goal="promises")``, as a table or a
            label file. ``guarantee``, ``only_labelled``, ``despite_shift`` and ``all_scores`` have
            no effect with them, and are refused.
        min_precision: share of the labels filled in that must be correct.
        guarantee: the labels that it rests on: ``class`` for those of each class, ``pooled`` for
            those of all classes together; by default per class, and pooled for classes with too
            few labels. Or how it is tested: ``exact`` on labels that were reserved, ``cross`` on
            all known labels, with scores of models that were not trained on their images; by
            default exact if the run has reserved labels.
        images: the folder of the images; None for the run's own. Images of it that the label file
            does not mention are completed too. If it has none of the run's images, these are
            looked for where the run remembers them.
        only_labelled: leave out images that the label file does not mention.
        despite_shift: complete images even if they are unlike those that the guarantee was tested
            on: images of other origins, and images that the label file does not mention.
        all_scores: whether labels that stay unknown get a score too.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.

    Returns:
        The completed table and the evidence for it; ``save(path)`` writes both. With ``answers``,
        the table has the answers too, and ``save(path)`` writes the table only.
    """
    if guarantee is not None:
        one_of("guarantee", guarantee, ("class", "pooled", "exact", "cross"))
    if answers is not None:
        if guarantee is not None or only_labelled or despite_shift or all_scores:
            raise InputError(
                "--guarantee, --only-labelled, --despite-shift and --all-scores have no effect "
                "with --answers"
            )
        opened = open_run(run, images, cache, device, features, feature_ids)
        return complete_from_answers(opened, table_of(answers, ReadOptions()), min_precision)
    opened, more = open_run(run, None, cache, device, features, feature_ids), None
    if opened.record.features is not None:
        opened = open_run(opened, images)
    else:
        if images is not None and holds_images_of(opened, Path(images)):
            opened = open_run(opened, images)
        more = opened.images if images is None else Path(images)
    basis = guarantee if guarantee in ("class", "pooled") else None
    kind = guarantee if guarantee in ("exact", "cross") else None
    done = complete_run(
        opened,
        min_precision,
        basis,
        kind,
        None if only_labelled else more,
        despite_shift=despite_shift,
        all_scores=all_scores,
    )
    for note in done.notes:
        warn(note)
    return done


def plan(run: Run | PathLike, *, min_precision: float = 0.95) -> Plan:
    """Draw images to label, so that :func:`complete` can give a guarantee after a new training.

    Args:
        run: a finished run.
        min_precision: the precision that is to be guaranteed.

    Returns:
        The images; ``describe()`` says what to do, and ``save(path)`` writes the list.
    """
    check_precision(min_precision)
    return make_plan(open_run(run), min_precision)


def suggest(
    run: Run | PathLike,
    budget: int,
    *,
    per: Unit = "cell",
    goal: Goal = "map",
    strategy: str = "information",
    cost: float | None = None,
    image_cost: float | None = None,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> Suggestions:
    """Choose the labels that people should be asked for next.

    Only labels of training images are asked for. Merge the answers into the labels, and train
    again. Answers to questions drawn at random are not trained on: they test what the run that
    asked them would fill in.

    Args:
        run: a finished run.
        budget: number of questions: cells (an image and a class), or images; for ``best``, as much
            work as so many cells.
        per: ``cell``; ``image`` for all unknown labels of whole images; ``best`` for whichever of
            these tells more per second of work.
        goal: what the answers are for. ``map``: a better classifier, where all classes count the
            same. ``promises``: more present labels that can be filled in with a guarantee; some
            questions are then drawn at random. ``errors``: known labels that may be wrong.
        strategy: how questions are chosen: ``information``, ``random``, ``entropy``, ``margin`` or
            ``most-likely-present``.
        cost: seconds of work per cell; None for 2.
        image_cost: seconds of work per image, with all its unknown labels; None for 10.
        images: the folder of the images; None for the run's own.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.

    Returns:
        The questions; ``save(path)`` writes them.
    """
    opened = open_run(run, images, cache, device, features, feature_ids)
    result = suggest_run(
        opened,
        budget,
        per=per,
        goal=goal,
        strategy=strategy,
        cost=cost,
        image_cost=image_cost,
    )
    for note in result.notes:
        warn(note)
    return result
