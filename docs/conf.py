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
    "notebooks",
    "settings",
]
exclude_patterns = ["_build", "_templates", "changes", "examples"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"gpusched {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]

autodoc_typehints = "none"
autosummary_generate = True
# Docstrings have names of things in single backticks, which would be set in italics.
default_role = "code"
numpydoc_show_class_members = False
# Lines of numpydoc sections such as "array" are prose here, not names of classes.
numpydoc_xref_param_type = False
# `make docs` fails where parameters of a public function are missing (PR01), unknown (PR02), in
# another order (PR03), without a type (PR04) or a description (PR07), and where results have no
# description (RT03).
numpydoc_validation_checks = {"PR01", "PR02", "PR03", "PR04", "PR07", "RT03"}
# Dataclasses document each field beside it, distributed its own methods of `Cluster`; `kernel` is
# an instance whose names are those of its overloads.
numpydoc_validation_exclude = {
    r"\.Statistics",
    r"\.Counts",
    r"\.Policy",
    r"\.Protection",
    r"\.Lock$",
    r"\.OneThread$",
    r"\.Limit$",
    r"\.Per\w+$",
    r"\.(Explanation|ExplainedKernel|Trace|Nonfinite)$",
    r"\.Process$",
    r"\.Cluster\.",
    r"gpusched\.kernel$",
}

# So that links to headings work as they do on a page of the repository.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# Pages are read in the repository, too: what they link to outside of docs/ is not part of the site.
suppress_warnings = ["myst.xref_missing"]


def setup(app: Any) -> None:
    """Show what is typed into the debugger, too."""
    app.add_lexer("pdb", PythonLexer)
