"""The user's line behind what is running: all who look for it ask this."""

from __future__ import annotations

import re
import sys
from types import CodeType, FrameType

LIBRARIES = frozenset(
    ("contextlib", "cytoolz", "dask", "distributed", "functools", "gpusched", "numpy", "toolz",
     "xarray")
)  # fmt: skip
"""Packages whose frames are between the user's line and what it calls."""

ENDS = "__gpusched_calls_programs__"
"""Set in modules that call a program's functions: who calls these has not written them."""

INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
"""How the files of installed packages are named, up to the folder that they are installed in."""

Site = tuple[CodeType, int]
"""A code object, and the offset of an instruction in it."""


def outside(depth: int) -> Site | None:
    """Return where the nearest frame outside the libraries is.

    Parameters
    ----------
    depth
        Frames to leave out, this function's own not counted.
    """
    return _site(frame_outside(depth + 1))


def of_program(depth: int) -> Site | None:
    """Return where the nearest frame is whose code is not an installed package's.

    That is the user's line also where another package makes arrays for it, such as flox for xarray.
    Of a program that is an installed package, as `outside`.

    Parameters
    ----------
    depth
        As of `outside`.
    """
    nearest = frame = frame_outside(depth + 1)
    while frame is not None and ENDS not in frame.f_globals:
        library = frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES
        if not library and INSTALLED.match(frame.f_code.co_filename) is None:
            return _site(frame)
        frame = frame.f_back
    return _site(nearest)


def _site(frame: FrameType | None) -> Site | None:
    return None if frame is None else (frame.f_code, frame.f_lasti)


def frame_outside(depth: int) -> FrameType | None:
    """Return the nearest frame outside the libraries; None where a program is called before.

    Parameters
    ----------
    depth
        As of `outside`.

    Examples
    --------
    >>> from gpusched.record.callers import frame_outside
    >>> frame_outside(0).f_globals["__name__"].startswith("gpusched")
    False
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and ENDS not in frame.f_globals:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in LIBRARIES:
            return frame
        frame = frame.f_back
    return None
