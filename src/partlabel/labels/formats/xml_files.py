"""Parsing XML label files from anyone: no entities, no other encodings than UTF-8."""

import codecs
from pathlib import Path
from xml.etree import ElementTree

from partlabel.base.errors import FileError


def parse_xml(content: bytes, path: Path, kind: str, root: str) -> ElementTree.Element:
    """The root element of an XML file.

    Args:
        content: the file.
        path: its path in messages.
        kind: what it is, such as "VOC file", in messages.
        root: the tag that the root must have.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"\x00<", b"<\x00")):
        raise FileError(path, f"is in UTF-16; a {kind} is in UTF-8")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise FileError(path, f"declares entities or a document type, which a {kind} must not")
    try:
        element = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise FileError(path, f"not a readable XML file ({error})") from error
    if element.tag != root:
        raise FileError(path, f"the root is <{element.tag}>; the root of a {kind} is <{root}>")
    return element
