"""What is made of runs for people and other tools: reports, exports, comparisons of methods.

These are ``partlabel.report``, ``partlabel.export`` and ``partlabel.bench``. A run can be given as
the folder that ``train`` wrote, or as the :class:`Run` that it returned.
"""

from pathlib import Path
from typing import Unpack

from partlabel.base import launch, processes
from partlabel.base.errors import InputError
from partlabel.labels.formats import PathLike, ReadKeywords, ReadOptions, read_options
from partlabel.labels.formats.boxes import read_boxes
from partlabel.output.bench import Benchmark, read_spec, run_spec
from partlabel.output.bench.own_labels import spec_for
from partlabel.output.export import Exported, ExportOptions, export_run
from partlabel.output.report import build_report
from partlabel.training.opening import Labels, open_run, table_of
from partlabel.training.run import Run


def report(
    run: Run | PathLike,
    *,
    truth: Labels | None = None,
    baseline: Run | PathLike | None = None,
    boxes: PathLike | None = None,
    min_precision: float = 0.95,
    landscape: bool = False,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
    reading: ReadOptions | None = None,
    **keywords: Unpack[ReadKeywords],
) -> Path:
    """Write ``report.html`` into the folder of a run, one file to send around; returns its path.

    Args:
        run: a finished run.
        truth: more of the true labels, to show how unknown labels were predicted.
        baseline: another run on the same labels to compare with.
        boxes: a file of boxes, to show whether class maps are highest on objects.
        min_precision: the precision that ``complete`` is to guarantee, in the section about it.
        landscape: also draw the loss around the trained weights.
        images: the folder of the images; None for the run's own. The report of a run on features
            shows them too.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one.
        reading: how to read ``truth``, see :class:`ReadOptions`.
        keywords: the fields of ``reading``, in its place: ``unlisted="unknown"``.
    """
    options = read_options(reading, dict(keywords))
    if truth is None and options != ReadOptions():
        raise InputError("options for reading labels have no effect without --truth")
    others = (images, cache, device, features, feature_ids)
    return build_report(
        open_run(run, *others),
        truth=None if truth is None else table_of(truth, options),
        baseline=None if baseline is None else open_run(baseline, *others),
        boxes=None if boxes is None else read_boxes(Path(boxes)),
        landscape=landscape,
        precision=min_precision,
    )


def export(
    run: Run | PathLike,
    out: PathLike,
    to: str,
    *,
    min_precision: float = 0.95,
    tested: bool = True,
    resized: bool = False,
    overwrite: bool = False,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    device: str | None = None,
) -> Exported:
    """Write a run in the form of another tool: a model, tasks to label, a dataset.

    Args:
        run: a finished run.
        out: the file or the new folder to write.
        to: the form, one of ``partlabel.output.targets.TARGETS``, such as ``onnx``,
            ``torch-export``, ``hub``, ``label-studio``, ``hf``, ``cleanlab``, or a label format.
        min_precision: share of the decisions of a model, or of the labels filled in, that must be
            right.
        tested: whether decisions are tested on the reserved labels of the run. That needs its
            images or features. Without the test there is no guarantee.
        resized: for a model: images are given in the size of the run, and are not resized.
        overwrite: replace files that exist. A folder must be new or empty.
        images: the folder of the images; None for the run's own.
        features, feature_ids: for a run on features, as in :func:`train`; None for the run's own.
        cache: folder of cached features.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; None for the best one. It is used for the
            test; what is written does not depend on a device.

    Returns:
        The paths that were written, and notes about them.
    """
    opened = open_run(run, images, cache, device, features, feature_ids)
    options = ExportOptions(min_precision, tested, resized, overwrite)
    return export_run(opened, Path(out), to, options)


@processes.together()
def bench(
    spec: PathLike | None,
    out: PathLike,
    *,
    jobs: int = 1,
    resume: bool = False,
    labels: PathLike | None = None,
    images: PathLike | None = None,
    features: PathLike | None = None,
    feature_ids: PathLike | None = None,
    cache: PathLike | None = None,
    reading: ReadOptions | None = None,
    **keywords: Unpack[ReadKeywords],
) -> Benchmark:
    """Compare methods on the same labels, with the same tuning on validation labels.

    Args:
        spec: a YAML file that says what to compare; None for methods that suit the labels.
        out: the folder of runs and results.
        jobs: trainings at a time; they share the cores.
        resume: continue; finished trainings are kept.
        labels, images: a label file and a folder of images, instead of those of the spec.
        features, feature_ids: features instead of images, as in :func:`train`.
        cache: folder of cached features.
        reading: how to read the labels, see :class:`ReadOptions`; instead of what the spec states.
        keywords: the fields of ``reading``, in its place: ``unlisted="unknown"``.
    """
    folder = Path(out)
    options = read_options(reading, dict(keywords))
    if jobs > 1 and processes.size() > 1:
        raise InputError("--jobs has no effect with torchrun; start more processes")
    is_taken = processes.is_first() and folder.is_dir() and any(folder.iterdir())
    if is_taken and not (resume or launch.is_restarted()):
        raise InputError(f"{folder}: is not empty; add --resume to go on, or name another")
    processes.wait_for_all()
    if spec is None:
        compared = spec_for(labels, images, features, feature_ids, options)
    else:
        compared = read_spec(Path(spec), labels, images, features, feature_ids, options)
    return run_spec(compared, folder, jobs, cache)
