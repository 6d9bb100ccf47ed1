"""Settings of the documentation site. ``make docs`` builds it into ``docs/_build/html``."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "src"))

from partlabel.version import VERSION  # noqa: E402

# notebook pages call the command that belongs to this Python, on plain text of a fixed width
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "PARTLABEL_CACHE": str(DOCS / "_build" / "cache")}

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
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"partlabel {VERSION}"
html_copy_source = False
html_show_sourcelink = False
