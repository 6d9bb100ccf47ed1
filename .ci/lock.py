"""Write constraints.txt and hashes.txt from pip's report of an installation (``make lock``).

Hashes are those of all files of a release for Linux and macOS that the package index lists, and of
the file that pip chose here. The two differ where a mirror has a build of its own, such as torch
for the CPU: both are then accepted.
"""

import html
import json
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

_INDEX = "https://pypi.org/simple"
_LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})"')
_PYTHON = 11  # of Python 3
_PLATFORMS = ("any", "linux", "manylinux", "musllinux", "macosx")
_NOTE = """\
# Made by `make lock`, with Python 3.11 on Linux. Do not edit.
"""
_HASHES_NOTE = """\
# The files that constraints.txt stands for. Use: make locked
# torch: builds with CUDA need further packages, which torch pins by version; they are not here.
"""


def _is_usable(file: str) -> bool:
    """Whether a file can be installed on a supported system; a source package always can."""
    if not file.endswith(".whl"):
        return file.endswith((".tar.gz", ".zip"))
    return any(_is_usable_tag(tag) for tag in parse_wheel_filename(file)[3])


def _is_usable_tag(tag: Tag) -> bool:
    name, number = re.fullmatch(r"([a-z]+)3?_?(\d*)", tag.interpreter).groups()  # type: ignore[union-attr]
    fits = name == "py" or (name == "cp" and number == str(_PYTHON))
    fits = fits or (tag.abi == "abi3" and name == "cp" and int(number) <= _PYTHON)
    return fits and tag.platform.startswith(_PLATFORMS)


def _listed_hashes(name: str, version: Version) -> Iterator[str]:
    """Hashes of the files of a release that the index lists."""
    with urllib.request.urlopen(f"{_INDEX}/{name}/", timeout=180) as page:
        text = page.read().decode()
    for url, digest in _LINK.findall(text):
        file = urllib.parse.unquote(html.unescape(url)).rsplit("/", 1)[-1]
        if _release_of(file, name) == version and _is_usable(file):
            yield digest


def _release_of(file: str, name: str) -> Version | None:
    """The version in the name of a file, None if it has none that is valid."""
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[1]
        stem = file.removesuffix(".tar.gz").removesuffix(".zip")
        project, _, version = stem.rpartition("-")
        return Version(version) if canonicalize_name(project) == name else None
    except ValueError:
        return None


def _entry(item: dict[str, Any]) -> tuple[str, str, list[str]]:
    """Name, version and hashes of a package that pip chose."""
    name = canonicalize_name(item["metadata"]["name"])
    version = Version(Version(item["metadata"]["version"]).public)  # without +cpu
    chosen = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return name, str(version), sorted({chosen, *_listed_hashes(name, version)})


def main() -> None:
    """Write both files to the current folder."""
    report = json.loads(Path(sys.argv[1]).read_text())
    items = [item for item in report["install"] if "archive_info" in item["download_info"]]
    with ThreadPoolExecutor(8) as pool:
        entries = sorted(pool.map(_entry, items))
    versions = "".join(f"{name}=={version}\n" for name, version, _ in entries)
    Path("constraints.txt").write_text(_NOTE + versions)
    lines = []
    for name, version, hashes in entries:
        options = [f"    --hash=sha256:{digest}" for digest in hashes]
        lines.append(" \\\n".join([f"{name}=={version}", *options]) + "\n")
    Path("hashes.txt").write_text(_NOTE + _HASHES_NOTE + "".join(lines))
    print(f"{len(entries)} packages, {sum(len(hashes) for *_, hashes in entries)} files")


main()
