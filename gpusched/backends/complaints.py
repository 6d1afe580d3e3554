"""What numba says of a function that it cannot compile, with the user's line."""

from __future__ import annotations

import linecache
import os
import re


def source_line(filename: str, line: int) -> str:
    """Return a line of a file without its indentation; empty if the file cannot be found."""
    return linecache.getline(filename, line).strip()


def complaint(what: str, error: Exception, filename: str = "") -> str:
    """Return a message that starts with the line that numba complains of, where it names one.

    Parameters
    ----------
    what
        What cannot be compiled, such as ``kernel f``.
    error
        numba's error.
    filename
        Where to look for the line first: where a function of that file calls another, numba's own
        answer is the call.
    """
    message = _message(str(error))
    place = _innermost(str(error), filename) or _stated(error)
    if place is None:
        return f"{what} cannot be compiled: {message}"
    line = source_line(*place)
    quoted = f"\n    {line}" if line else ""
    return f"{place[0]}:{place[1]}: {what} cannot be compiled: {message}{quoted}"


def _stated(error: Exception) -> tuple[str, int] | None:
    place = getattr(error, "loc", None)
    if place is not None:
        return place.filename, place.line
    found = re.search(r'^File "(.*)", line (\d+)', str(error), re.MULTILINE)
    return (os.path.abspath(found[1]), int(found[2])) if found else None


def _innermost(text: str, filename: str) -> tuple[str, int] | None:
    found = re.search(rf"{re.escape(filename)} \((\d+)\)", text) if filename else None
    return (filename, int(found[1])) if found else None


def _message(text: str) -> str:
    """Return the first lines of numba's message that say what is wrong."""
    lines = [line.strip() for line in text.splitlines()]
    places = ("Failed in", "File ", "During")
    said = [line for line in lines if line and not line.startswith(places)]
    found = "; ".join(said[:2]) or text
    for pattern, words in _WORDS:
        found = pattern.sub(words, found)
    return found


_WORDS = [
    (re.compile(pattern), words)
    for pattern, words in [
        (r"Literal\[str\]\((.*?)\)", r"the string '\1'"),
        (r"Literal\[\w+\]\((.*?)\)", r"\1"),
        (r"unicode_type", r"a string"),
        (r"OptionalType\((.*?)\)", r"\1 or nothing"),
        (r"Cannot unify (.*?) and (.*?) for '\$?[\w.]+', defined at .*? \(\d+\)(; .*)?",
         r"it is \1 on one path and \2 on another"),
        # Python 3.12 leaves a function at each of its returns.
        (r"Can't unify return type from the following types: ([^;]*?), ([^,;]*?)(; .*)?$",
         r"it is \1 on one path and \2 on another"),
        (r"No implementation of function Function\(<function (\w+) at 0x\w+>\) found for "
         r"signature:; >>> \w+\((.*?)\)", r"\1 cannot be called with \2 in a kernel"),
        (r"Unknown attribute '(\w+)' of type (\w+)(; .*)?", r"a \2 has no attribute '\1'"),
    ]
]  # fmt: skip
"""numba's own words, and those that authors of kernels know."""
