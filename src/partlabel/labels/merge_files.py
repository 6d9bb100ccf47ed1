"""Label files, each read in its own way, and merged into one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from partlabel.base.errors import InputError, one_of
from partlabel.images.named_images import open_images
from partlabel.labels import formats
from partlabel.labels.corrections import Corrected, correct, empty_fields, read_verdicts
from partlabel.labels.formats import Reading, ReadOptions
from partlabel.labels.formats.cell_list import CellList
from partlabel.labels.formats.packing import unpacked_stem
from partlabel.labels.formats.reading_options import folded
from partlabel.labels.hierarchy import Implied, imply, read_hierarchy
from partlabel.labels.image_names import NamedLikeFiles, name_like_files
from partlabel.labels.label_space import chained, check_renamed, read_synonyms, rename
from partlabel.labels.merge import ClassConflict, Contribution, merge_and_count
from partlabel.labels.merge_plan import FileEntry, MergePlan
from partlabel.labels.table import ABSENT, PRESENT, LabelTable

OnRead = Callable[[FileEntry, Reading], None]


@dataclass(frozen=True)
class Part:
    """A file of a merge.

    Args:
        entry: the file, as stated.
        options: how it was read.
        format: its format.
        table: its labels, with the final names of classes and images.
        names: the new names of classes of the file.
        origin: the origin of its labels that have none.
        matched: the files of its images, if there is a folder of images.
    """

    entry: FileEntry
    options: ReadOptions
    format: str
    table: LabelTable
    names: dict[str, str]
    origin: str
    matched: NamedLikeFiles | None = None


@dataclass(frozen=True)
class MergedFiles:
    """The result of :func:`merge_files`.

    Args:
        table: the merged table.
        parts: the files, in order.
        contributions: what each file adds; empty if files are corrections.
        conflicts: the classes with contradictions between files.
        overruled: number of labels of models that a human contradicts.
        corrected: what each file of corrections changed.
        implied: what the hierarchy added, if there is one.
    """

    table: LabelTable
    parts: list[Part]
    contributions: list[Contribution] = field(default_factory=list)
    conflicts: list[ClassConflict] = field(default_factory=list)
    overruled: int = 0
    corrected: list[Corrected] = field(default_factory=list)
    implied: Implied | None = None

    @property
    def origins_of_presences(self) -> list[str]:
        """Files with present labels only, if others have labels of both kinds."""
        counts = [part.table.counts() for part in self.parts]
        present = [bool(one.present.any()) for one in counts]
        absent = [bool(one.absent.any()) for one in counts]
        if not any(a and b for a, b in zip(present, absent, strict=True)):
            return []
        kinds = zip(self.parts, present, absent, strict=True)
        return [part.origin for part, some, none in kinds if some and not none]

    @property
    def origins_stated(self) -> bool:
        """Whether somebody stated an origin, in a file or for a file."""
        return any(part.entry.origin is not None or len(part.table.origins) for part in self.parts)


def merge_files(
    plan: MergePlan, *, corrections: bool = False, on_read: OnRead | None = None
) -> MergedFiles:
    """Merge label files.

    Args:
        plan: the files, and what to do with their classes.
        corrections: the files after the first correct it, in order: labels of humans replace
            earlier ones, and a label that is listed without a value becomes unknown.
        on_read: called after each file is read.
    """
    hierarchy = read_hierarchy(plan.hierarchy) if plan.hierarchy is not None else None
    parts = _read_parts(plan, on_read)
    result = _correct(parts) if corrections else _merge(parts, plan)
    if hierarchy is None:
        return result
    implied = imply(result.table, hierarchy)
    implied.table.conflicts = result.table.conflicts
    implied.table.split_conflicts = result.table.split_conflicts
    return replace(result, table=implied.table, implied=implied)


def _merge(parts: list[Part], plan: MergePlan) -> MergedFiles:
    tables, origins = [part.table for part in parts], [part.origin for part in parts]
    merged = merge_and_count(tables, plan.conflict, origins)
    return MergedFiles(
        merged.table, parts, merged.contributions, merged.conflicts, merged.overruled
    )


def _correct(parts: list[Part]) -> MergedFiles:
    table = parts[0].table.with_origin(parts[0].origin)
    steps = []
    for part in parts[1:]:
        verdicts = None
        if part.format == CellList.name:  # other formats cannot list a label without a value
            images = part.matched.names if part.matched is not None else {}
            verdicts = read_verdicts(part.entry.path, table, part.names, images, part.options)
        try:
            step = correct(table, part.table.with_origin(part.origin), verdicts)
            if formats.FORMATS[part.format].lists_every_cell:
                step = replace(step, empty=empty_fields(table, part.table))
        except InputError as error:
            raise InputError(f"{part.entry.path}: {error}") from None
        table = step.table
        steps.append(step)
    return MergedFiles(table, parts, corrected=steps)


def _read_parts(plan: MergePlan, on_read: OnRead | None) -> list[Part]:
    """The files as tables with their final names of classes and images."""
    synonyms = read_synonyms(plan.synonyms) if plan.synonyms is not None else {}
    files = open_images(plan.images) if plan.images is not None else None
    _check_columns(plan)
    readings, all_options = [], []
    for entry in plan.files:
        options = options_of(entry, plan)
        steps = [entry.rename, plan.rename, synonyms]
        renames = chained(steps, ignore_case=options.ignore_case)
        all_options.append(replace(options, rename=renames))
        readings.append(formats.read_with(entry.path, all_options[-1], conflict=plan.conflict))
        if on_read is not None:
            on_read(entry, readings[-1])
    check_renamed(
        plan.rename,
        {name for reading in readings for name in reading.file_classes},
        ignore_case=any(options.ignore_case for options in all_options),
    )
    origins = _origins(plan.files, [reading.table for reading in readings])
    parts, spelling = [], dict[str, str]()
    for entry, options, reading, origin in zip(
        plan.files, all_options, readings, origins, strict=True
    ):
        try:
            check_renamed(entry.rename, reading.file_classes, ignore_case=options.ignore_case)
            table, names = _evidence(reading, entry), reading.notes.names
            if options.ignore_case:
                taken = {name: spelling.get(folded(name), name) for name in table.classes}
                table = rename(table, taken)
                names = {old: taken[new] for old, new in names.items() if new in taken}
            for name in table.classes:
                spelling.setdefault(folded(name), name)
            matched = name_like_files(table, files, plan.conflict) if files is not None else None
        except InputError as error:
            raise InputError(f"{entry.path}: {error}") from None
        table = table if matched is None else matched.table
        parts.append(Part(entry, options, reading.notes.format, table, names, origin, matched))
    return parts


def _check_columns(plan: MergePlan) -> None:
    """Raise an error if no file has a column that is to be ignored."""
    if not plan.ignore_columns:
        return
    columns = [name for entry in plan.files for name in formats.columns_of(entry.path)]
    for name in plan.ignore_columns:
        try:
            one_of("column", name, columns)
        except InputError as error:
            raise InputError(f"--ignore-columns: {error}") from None


def options_of(entry: FileEntry, plan: MergePlan) -> ReadOptions:
    """How to read a file of a plan."""
    options = ReadOptions(**{**plan.reading, **entry.reading})
    if plan.ignore_columns and not entry.ignore_columns:
        present = set(formats.columns_of(entry.path))
        options = replace(
            options, ignore_columns=[name for name in plan.ignore_columns if name in present]
        )
    only_common = entry.unlisted is None and options.unlisted is not None
    if only_common and not formats.needs_unlisted(entry.path, options):
        # such a file states absent labels itself, so its unlisted labels stay unknown
        return replace(options, unlisted=None)
    return options


def _evidence(reading: Reading, entry: FileEntry) -> LabelTable:
    """The labels that are evidence: no absent ones if only presences were noted, and so on."""
    table, notes = reading.table, entry.notes
    if notes is None:
        return table
    if isinstance(notes, str):
        notes = dict.fromkeys(table.classes, notes)
    else:
        for name in notes:
            one_of("class", name, reading.file_classes)
        notes = {reading.notes.names.get(name, name): kind for name, kind in notes.items()}
    doubtful = {"presences": ABSENT, "absences": PRESENT}
    values = [doubtful.get(notes.get(name, ""), 0) for name in table.classes]
    cells = table.cells
    is_evidence = (cells.values == 0) | (cells.values != np.array(values, np.int8)[cells.columns])
    return table.with_cells(cells.where(is_evidence))


def _stem(path: Path) -> str:
    """The name of a label file without its suffixes; of a sheet with the name of the sheet."""
    if path.is_dir():
        return path.name
    file, mark, sheet = path.name.rpartition("#")
    if mark and not path.exists():
        return f"{unpacked_stem(Path(file))}#{sheet}"
    return unpacked_stem(path)


def _origins(files: Sequence[FileEntry], tables: Sequence[LabelTable]) -> list[str]:
    """The origin of each file: as stated, else the stem of its name, made unique."""
    stated = [entry.origin for entry in files if entry.origin is not None]
    taken = {*stated, *(name for table in tables for name in table.origins)}
    stems = [_stem(entry.path.resolve()) for entry in files]
    origins = []
    for entry, stem in zip(files, stems, strict=True):
        if entry.origin is not None:
            origins.append(entry.origin)
            continue
        unique = stems.count(stem) == 1 and stem not in taken
        name = stem if unique else f"{entry.path.resolve().parent.name}/{stem}"
        candidates = [name, *(f"{name} {number}" for number in range(2, len(files) + 2))]
        origins.append(next(name for name in candidates if name not in taken))
        taken.add(origins[-1])
    return origins
