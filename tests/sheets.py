"""Excel files for tests, written part by part."""

import zipfile
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def cell(row: int, column: int, value: object) -> str:
    """The XML of a cell; a text that starts with = is a formula with the value 1."""
    place = f'r="{chr(65 + column)}{row + 1}"'
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c {place} t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f"<c {place}><v>{value}</v></c>"
    if str(value).startswith("="):
        return f"<c {place}><f>{escape(str(value)[1:])}</f><v>1</v></c>"
    return f'<c {place} t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'


def sheet_xml(rows: list[list[object]], merged: str = "") -> str:
    """The XML of a sheet; ``merged`` is a range such as A2:A3."""
    body = "".join(
        f'<row r="{i + 1}">{"".join(cell(i, j, value) for j, value in enumerate(row))}</row>'
        for i, row in enumerate(rows)
    )
    tail = f'<mergeCells count="1"><mergeCell ref="{merged}"/></mergeCells>' if merged else ""
    return f'<worksheet xmlns="{_MAIN}"><sheetData>{body}</sheetData>{tail}</worksheet>'


def write_xlsx(path: Path, sheets: dict[str, str], more: dict[str, bytes] | None = None) -> Path:
    """Write an Excel file with these sheets, by name, and further parts."""
    numbered = list(enumerate(sheets, start=1))
    listed = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{i}" r:id="rId{i}"/>' for i, name in numbered
    )
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{_LINKS}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i, _ in numbered
    )
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/'
        'content-types"><Default Extension="xml" ContentType="application/xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}"><Relationship Id="rId1" '
        f'Type="{_LINKS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_LINKS}">'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}">{links}</Relationships>',
        **{f"xl/worksheets/sheet{i}.xml": sheets[name] for i, name in numbered},
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
        for name, content in (more or {}).items():
            archive.writestr(name, content)
    return path
