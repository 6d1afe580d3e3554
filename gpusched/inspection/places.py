"""Call sites -> lines of the user's source, and the variables that results go to."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from gpusched.backends.complaints import source_line
from gpusched.graph.callsites import is_last, site_of
from gpusched.record.bytecode import instructions
from gpusched.record.callers import INSTALLED, Site
from gpusched.rendering.text import printable

_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


@dataclass(frozen=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int
    text: str
    """The line itself, or the expression in it; empty where the file is not there."""
    function: str
    """The function it is in, ``<module>`` outside of any."""

    def __str__(self) -> str:
        return f"{short(self.file)}:{self.line}"


def short(file: str) -> str:
    """Return a file's name as it is shown: relative to the folder one is in, where it is below.

    One of an installed package is shown with the package's name.

    What was written in a cell is shown as IPython shows it: ``In[3]``. Sources of kernels and pages
    have it, so that what cannot be printed is escaped.

    Examples
    --------
    >>> from gpusched.inspection.places import short
    >>> short("/somewhere/else/model.py")
    'model.py'
    >>> short("/usr/lib/python3/dist-packages/flox/dask.py")
    'flox/dask.py'
    """
    return printable(_short(file))


def _short(file: str) -> str:
    if cell := _cell(file):
        return cell
    if file.startswith("<") or not os.path.isabs(file):
        return file
    if installed := INSTALLED.match(file):
        return file[installed.end() :]
    try:
        relative = os.path.relpath(file)
    except FileNotFoundError:
        return os.path.basename(file)  # The folder one is in was removed.
    return os.path.basename(file) if relative.startswith("..") else relative


def _cell(file: str) -> str:
    """Return the cell whose code IPython keeps under that name; empty if there is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    told = shell.compile.format_code_name(file) if shell is not None else None
    return told[1] if told else ""


@lru_cache(maxsize=4096)
def place_at(code: CodeType, offset: int) -> Place:
    """Return the line of an instruction."""
    positions = list(code.co_positions())
    line = positions[offset // 2][0] if 0 <= offset // 2 < len(positions) else None
    return _place(code, line or code.co_firstlineno)


def _place(code: CodeType, line: int) -> Place:
    return Place(code.co_filename, line, source_line(code.co_filename, line), code.co_qualname)


def place_of_function(function: Any) -> Place | None:
    """Return where a function is defined, or None for one that is not Python's."""
    code = getattr(function, "__code__", None)
    return _place(code, code.co_firstlineno) if isinstance(code, CodeType) else None


def place_of_layer(layer: str) -> Place | None:
    """Return where an array of that name was made, if that was noted."""
    site = site_of(layer)
    return place_at(*site) if site else None


def variable_of_layer(layer: str) -> str | None:
    """Return the variable that an array of that name was put into, if any."""
    site = site_of(layer)
    return variable_at(*site) if site and is_last(layer) else None


@lru_cache(maxsize=4096)
def variable_at(code: CodeType, offset: int) -> str | None:
    """Return the variable that the result of an instruction goes to directly, if any.

    Examples
    --------
    >>> import sys
    >>> from gpusched.inspection.places import variable_at
    >>> def here():
    ...     frame = sys._getframe(1)
    ...     return frame.f_code, frame.f_lasti
    >>> def f():
    ...     site = here()
    ...     return site
    >>> variable_at(*f())
    'site'
    """
    found = next((each for each in instructions(code) if each.offset > offset), None)
    name = str(found.argval) if found is not None and found.opname in _STORES else ""
    # pytest has variables of its own, which no program could have.
    return name if name.isidentifier() else None


def place_of_site(site: Site | None) -> Place | None:
    """Return the line of a noted site; None for None."""
    return place_at(*site) if site else None
