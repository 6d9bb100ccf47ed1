"""Damaged label files of every format: an error or a table, and never a wrong label."""

import codecs
import contextlib
import io
import json
import re
import warnings
import zipfile
from pathlib import Path
from random import Random

import pyarrow as pa

from attacks.harness import Failure
from attacks.oracles import ORACLES, Labels, Refused, Unclear, unpacked
from partlabel import LabelTable, write_labels
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.cli import main
from partlabel.labels.formats import FORMATS, read

COUNT = 50_000
ATTACKS = "label files"
LIMIT = 20
_COMMANDS = 0.1  # share of the trials that call a command

_TEXT = {
    "csv": "image,split,cat,dog\na.jpg,train,1,0\nb.jpg,val,,1\nc d.jpg,,yes,no\né.jpg,val,0,NaN\n",
    "csv-quoted": 'image;"the cat";dog\n"a;b.jpg";1.0;0\n"say ""hi""";;1\n"x";0;0.0\n',
    "cells": "image,class,value,score,source\na,cat,1,0.5,model\nb,dog,,0.1,\nb,cat,0,1,human\n",
    "tags": "image,split,tag\na.jpg,train,cat\na.jpg,train,dog \nb.jpg,val,cat\nc d.jpg,val,\n",
    "lists": "image,tags\na,cat;dog\nb,\nc, dog ;bird\n",
    "lists-quoted": 'image,labels,by\na,"cat, dog",x\nb,"[""cat"", ""d;g""]",y\n',
    "lists-json": 'image,tags\na,"[""cat"", ""dog""]"\nb,[]\nc,"[""d;g""]"\n',
    "lists-lines": '{"image": "a", "labels": ["cat", "dog"]}\n{"image": "b", "labels": "cat"}\n',
    "names": "a.jpg\nb c.png\n\na.jpg\n",
    "cvat": "<annotations><meta><labels><label><name>cat</name></label></labels></meta>\n"
    '<image id="0" name="a.jpg"><tag label="cat"/><box label="dog" xtl="1"/></image>\n'
    '<image id="1" name="b.jpg"></image></annotations>',
    "open-images": "ImageID,Source,LabelName,Confidence\n"
    "a,machine,/m/1,0.3\nb,v,/m/2,1\nb,v,/m/1,0\n",
    "hf": '{"file_name": "a", "cat": 1, "dog": null}\n{"file_name": "b", "cat": 0, "dog": true}\n',
    "chexpert": "Path,Sex,Edema,Cardio\na,F,1.0,-1.0\nb,M,,0.0\n",
    "label-studio": json.dumps(
        [
            {
                "data": {"image": name},
                "annotations": [
                    {
                        "result": [
                            {"from_name": "cat", "type": "choices", "value": {"choices": [choice]}}
                        ]
                    }
                ],
            }
            for name, choice in (("a", "present"), ("b", "absent"))
        ]
    ),
    "voc": "<annotation><filename>a.jpg</filename><object><name>cat</name><difficult>0</difficult>"
    "</object><object><name>dog</name><difficult>1</difficult></object></annotation>",
}
for _format, _more in (("coco", {}), ("lvis", {"neg_category_ids": [2]})):
    _TEXT[_format] = json.dumps(
        {
            "images": [{"id": 1, "file_name": "a", **_more}, {"id": 2, "file_name": "b"}],
            "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
            "annotations": [
                {"id": 1, "image_id": 1, "category_id": 1},
                {"id": 2, "image_id": 2, "category_id": 2, "iscrowd": 0},
            ],
        },
        indent=1,
    )
_DATASET_INFO = json.dumps(
    {
        "features": {
            "image": {"dtype": "string", "_type": "Value"},
            "labels": {
                "feature": {"names": ["cat", "dog"], "_type": "ClassLabel"},
                "_type": "Sequence",
            },
        }
    }
).encode()
_FORMAT_OF_SAMPLE = re.compile(r"-(quoted|parquet|json|lines|gzip|zstd|xlsx)$")
_SUFFIXES = {
    "names": ".txt",
    "cvat": ".xml",
    "lists-lines": ".jsonl",
    "hf": ".jsonl",
    "coco": ".json",
    "lvis": ".json",
    "label-studio": ".json",
}
_COMPARED = ("csv", "json", "jsonl", "txt", "xml", "gz", "xlsx")  # that oracles read
_FOLDERS = ("voc", "hf-disk-lists")  # which no oracle reads
_SPECIAL = (
    b"\0 \" ' , ; \t \n \r \r\n \xff \xc3 [ ] { } : \\ \\u0000 \\ud800 1 0 -1 2 1e999 1e-400 NaN "
    b"Infinity null true \xef\xbb\xbf \xff\xfe 0_1 1_0 \xd9\xa1 0x1 1.00 +1 .5 yes NO 99999999999 "
    b"\x1b[31m \xe2\x80\xae image split class file_name <!ENTITY &#0; &amp; %"
).split(b" ")


def prepare(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Samples by name: the name of the file, and its content."""
    samples = {
        name: ("t" + _SUFFIXES.get(name, ".csv"), text.encode()) for name, text in _TEXT.items()
    }
    table = LabelTable(["a", "b", "c"], ["x", "y"], [[1, -1], [1, 0], [0, 1]])
    for name, file, format in (
        ("arrow", "t.arrow", "arrow"),
        ("cells-parquet", "t.parquet", "cells"),
        ("hf-parquet", "metadata.parquet", "hf"),
    ):
        write_labels(table, folder / file, format)
        samples[name] = (file, (folder / file).read_bytes())
    for name, file in (("tags-gzip", "t.csv.gz"), ("tags-zstd", "t.tsv.zst")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartlabelWarning)
            write_labels(table, folder / file, "tags")
        samples[name] = (file, (folder / file).read_bytes())
    samples["hf-disk-lists"] = ("dataset_info.json", _DATASET_INFO)
    samples["csv-xlsx"] = ("t.xlsx", _workbook())
    return samples


def _workbook() -> bytes:
    """An Excel file with one sheet, whose parts are not compressed."""
    cells = "".join(
        f'<row r="{i + 1}">{"".join(_cell(i, j, text) for j, text in enumerate(row))}</row>'
        for i, row in enumerate((("image", "cat", "dog"), ("a", "1", ""), ("b", "0", "1")))
    )
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    links = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{package}"><Relationship Id="rId1" '
        f'Type="{links}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{links}"><sheets>'
        '<sheet name="s" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}"><Relationship Id="rId1" '
        f'Type="{links}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData>'
        "</worksheet>",
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for part, text in parts.items():
            target.writestr(part, text)
    return archive.getvalue()


def _cell(row: int, column: int, text: str) -> str:
    return f'<c r="{"ABC"[column]}{row + 1}" t="inlineStr"><is><t>{text}</t></is></c>'


def _mutate_workbook(content: bytes, rng: Random) -> bytes:
    """Mutate one part and store it with the right checksum, or mutate the archive itself."""
    if rng.random() < 0.3:
        return mutate(content, rng)
    archive = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(archive, "w") as new:
        chosen = rng.choice([*old.namelist(), *["xl/worksheets/sheet1.xml"] * 8])
        for part in old.namelist():
            new.writestr(part, mutate(old.read(part), rng) if part == chosen else old.read(part))
    return archive.getvalue()


def mutate(content: bytes, rng: Random) -> bytes:
    """The content with one to four random changes, or none."""
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3, 4))):
        start = rng.randint(0, len(content))
        end = min(len(content), start + rng.randint(0, 12))
        before, part, after = content[:start], content[start:end], content[end:]
        match rng.randrange(12):
            case 0 if after:
                content = before + part + bytes([after[0] ^ 1 << rng.randrange(8)]) + after[1:]
            case 1:
                content = before + after
            case 2:
                content = before + part + part + after
            case 3:
                content = before + rng.choice(_SPECIAL) + part + after
            case 4:
                content = before + rng.choice(_SPECIAL) + after
            case 5:
                content = content[:start] if rng.random() < 0.3 else content
            case 6 | 7:
                lines = content.split(b"\n")
                i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
                if rng.random() < 0.5:
                    lines[i], lines[j] = lines[j], lines[i]
                else:
                    lines.insert(i, lines[j])
                content = b"\n".join(lines)
            case 8 | 9:
                numbers = list(re.finditer(rb"[\d.]+", content))
                if numbers:
                    at = rng.choice(numbers)
                    content = content[: at.start()] + rng.choice(_SPECIAL) + content[at.end() :]
            case 10:
                content = bytes(rng.randrange(256) for _ in range(rng.randrange(4))).join(
                    (before, part + after)
                )
            case _:
                content = _recode(content, rng)
    return content


def _recode(content: bytes, rng: Random) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    match rng.randrange(5):
        case 0:
            return codecs.BOM_UTF8 + content
        case 1:
            return text.encode("utf-16")
        case 2:
            return text.encode("latin-1", errors="replace")
        case 3:
            return text.replace("\n", rng.choice(("\r", "\r\n"))).encode()
        case _:
            return text.replace(",", rng.choice(("\t", ";", " ,"))).encode()


def attack(samples: dict[str, tuple[str, bytes]], folder: Path, rng: Random) -> None:
    """Read one mutated file, through the function or through a command."""
    sample = rng.choice(sorted(samples))
    file, content = samples[sample]
    content = (_mutate_workbook if sample == "csv-xlsx" else mutate)(content, rng)
    path = folder / file
    if sample == "voc":
        path = folder / "voc"
        path.mkdir()
        (path / "a.xml").write_bytes(content)
    elif sample == "hf-disk-lists":
        path = folder / "dataset"
        _write_dataset(path, content, rng)
    else:
        path.write_bytes(content)
    format = rng.choice((None, None, _FORMAT_OF_SAMPLE.sub("", sample)))
    if rng.random() < 0.03:
        format = rng.choice(list(FORMATS))
    if rng.random() < _COMMANDS:
        _call(path, format, folder, rng)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            reading = read(path, format, "unknown")
        except InputError as error:
            reading = None
            if str(path) not in str(error):
                raise Failure(f"the message does not name the file: {error}") from None
    for warning in caught:
        if not issubclass(warning.category, PartlabelWarning):
            raise Failure(f"{warning.category.__name__}: {warning.message}")
    if reading is not None and file.endswith(_COMPARED) and sample not in _FOLDERS:
        compare(reading.notes.format, content, known(reading.table))


def _write_dataset(folder: Path, info: bytes, rng: Random) -> None:
    """A dataset on disk with this information about its columns; its rows may be damaged too."""
    folder.mkdir()
    (folder / "dataset_info.json").write_bytes(info)
    sink = io.BytesIO()
    table = pa.table({"image": ["a", "b"], "labels": [[0, 1], [1]]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    rows = sink.getvalue()
    damaged = mutate(rows, rng) if rng.random() < 0.5 else rows
    (folder / "data-00000-of-00001.arrow").write_bytes(damaged)


def known(table: LabelTable) -> Labels:
    """The known labels of a table, by image and class."""
    ids, classes = list(table.ids), list(table.classes)
    values = table.dense()
    if values.shape != (len(ids), len(classes)):
        raise Failure("the shape of the table does not fit its names")
    return {
        (ids[i], classes[j]): int(values[i, j])
        for i, j in zip(*(axis.tolist() for axis in values.nonzero()), strict=True)
    }


def compare(format: str, content: bytes, labels: Labels) -> None:
    """Raise if the oracle of the format reads other labels, or refuses the file."""
    try:
        content = unpacked(content)
        if format not in ORACLES or (format == "hf" and not _is_json(content)):
            return
        expected = ORACLES[format](content)
    except Unclear:
        return
    except Refused:
        raise Failure(f"{format} was read, but is an error: {content!r} gave {labels}") from None
    if labels != expected:
        raise Failure(f"{format}: {content!r} gave {labels}, expected {expected}")


def _is_json(content: bytes) -> bool:
    return content.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"["))


def _call(path: Path, format: str | None, folder: Path, rng: Random) -> None:
    """A command: exit code 0 or 2, a message without control characters, no labels changed."""
    words = [str(path), *(["--format", format] if format else []), "--unlisted", "unknown"]
    to = rng.choice(
        (
            "csv",
            "cells",
            "arrow",
            "coco",
            "lvis",
            "label-studio",
            "chexpert",
            "tags",
            "lists",
            "cvat",
        )
    )
    out = folder / f"out.{to}"
    other = folder / "other.csv"
    other.write_text("image,cat,new\na.jpg,1,0\nz.jpg,,1\n")
    match rng.randrange(4):
        case 0:
            words = ["inspect", *words, *rng.choice(([], ["--json"], ["--all"]))]
        case 1:
            words = ["merge", str(path), str(other), "-o", str(out), "--to", to, *words[-2:]]
        case _:
            words = ["convert", words[0], str(out), *words[1:], "--to", to]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main(words)
    text = output.getvalue()
    if code not in (0, 2):
        raise Failure(f"partlabel {' '.join(words)}: exit code {code}: {text[-300:]!r}")
    if re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text):
        raise Failure(f"partlabel {' '.join(words)}: raw control characters: {text!r}")
    if code == 2 and str(path) not in text and str(out) not in text and "format" not in text:
        raise Failure(f"partlabel {' '.join(words)}: no file in the message: {text!r}")
    lists_presences = to in ("coco", "tags", "lists", "cvat")
    if (
        code == 0
        and words[0] == "convert"
        and (lists_presences or to in ("csv", "cells", "arrow", "lvis"))
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartlabelWarning)
            before = known(read(path, format, "unknown").table)
            after = known(read(out, to, "unknown").table)
        if lists_presences:
            before = {cell: value for cell, value in before.items() if value > 0}
        if before != after:
            raise Failure(f"partlabel {' '.join(words)}: {before} became {after}")
    if code and out.exists():
        raise Failure(f"partlabel {' '.join(words)}: exit code {code}, but the file was written")
