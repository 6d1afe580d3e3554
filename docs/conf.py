"""How Sphinx makes the pages of docs/: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers import PythonLexer

import gpusched

sys.path.append(str(Path(__file__).parent))

project = "gpusched"
author = "gpusched developers"
copyright = "gpusched developers"
version = release = gpusched.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_click",
    "settings",
]
exclude_patterns = ["_build", "examples"]
html_theme = "furo"
html_title = f"gpusched {release}"
html_static_path: list[str] = []

autodoc_typehints = "none"
autosummary_generate = True
numpydoc_show_class_members = False
# Lines of numpydoc sections such as "array" are prose here, not names of classes.
numpydoc_xref_param_type = False

# So that links to headings work as they do on a page of the repository.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# Pages are read in the repository, too: what they link to outside of docs/ is not part of the site.
suppress_warnings = ["myst.xref_missing"]


def setup(app: Any) -> None:
    """Show what is typed into the debugger, too."""
    app.add_lexer("pdb", PythonLexer)
