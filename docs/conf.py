"""Settings of the documentation site. ``make docs`` builds it into ``docs/_build/html``."""

import os
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "src"))

from partlabel.version import VERSION  # noqa: E402

# Notebook pages run the command that belongs to this Python. IPython's own %%sh asks for colours,
# and cuts the output into pieces, even inside a character; this one prints it whole.
SHELL_CELLS = """
import os, subprocess

def sh(line, cell):
    plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    done = subprocess.run(
        ["sh", "-e", "-c", cell], env=plain | {"TERM": "dumb"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    print(done.stdout, end="")
    done.check_returncode()

get_ipython().register_magic_function(sh, "cell")
"""
BUILD = DOCS / "_build"
STARTUP = BUILD / "ipython" / "profile_default" / "startup"
STARTUP.mkdir(parents=True, exist_ok=True)
(STARTUP / "shell_cells.py").write_text(SHELL_CELLS)
os.environ |= {
    "COLUMNS": "100",
    "IPYTHONDIR": str(BUILD / "ipython"),
    "PARTLABEL_CACHE": str(BUILD / "cache"),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}

project, author = "partlabel", "the partlabel authors"
version = release = VERSION
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
highlight_language = "text"  # of indented blocks

myst_heading_anchors = 3
myst_enable_extensions = []  # no formulas: MathJax would be loaded from elsewhere

# a page with a notebook header runs in a temporary folder; an error in a cell fails the build
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"partlabel {VERSION}"
html_copy_source = False
html_show_sourcelink = False


SHORT = [  # how types are written in the code, in place of what Python makes of them
    (r"[\w.~]*_Buffer \| .*?_NestedSequence\[[\w.~]*complex \| bytes \| str\]", "ArrayLike"),
    (r"[\w.~]*ndarray\[tuple\[[\w.~]*Any, \.\.\.\], [\w.~]*dtype\[([\w.~]+)\]\]", r"NDArray[\1]"),
    (r"[\w.~]*Annotated\[(\w+), [\w.~]*FieldInfo\(.*?\]\)\]", r"\1"),
]


def _shorten(*event: Any) -> tuple[str | None, str | None]:
    """A signature and what it returns, with short types."""
    texts = list(event[-2:])
    for number, text in enumerate(texts):
        for long, short in SHORT if text else []:
            text = re.sub(long, short, text)
        texts[number] = text
    return texts[0], texts[1]


def _leave_out(*event: Any) -> None:
    """Which rooms a module uses is for those who change it."""
    lines = event[-1]
    lines[:] = [line for line in lines if not line.startswith("Uses ``")]


def _skip(*event: Any) -> bool | None:
    """Fields of a named tuple have no text of their own."""
    return (getattr(event[3], "__doc__", None) or "").startswith("Alias for field number") or None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", _shorten)
    app.connect("autodoc-process-docstring", _leave_out)
    app.connect("autodoc-skip-member", _skip)
