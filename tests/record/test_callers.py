"""The user's line is looked for in one place, and not above who calls a program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gpusched
from gpusched.record import callers

PACKAGE = Path(gpusched.__file__).parent
CORE = ("graph", "record", "plan", "emit", "backends", "store", "inspection", "debugging")


def module(name: str, folder: str = "", **names: Any) -> Any:
    """Return a function of a module, in a folder, that calls what it is given."""
    scope: dict[str, Any] = {"__name__": name, **names}
    source = "def call(function, *args): return function(*args)"
    exec(compile(source, f"{folder}{name}.py", "exec"), scope)
    return scope["call"]


LIBRARY = module("dask.array.core")
PROGRAM = module("gpusched.graph.running.traced", **{callers.ENDS: True})
PACKAGED = module("flox", "/usr/lib/python3/dist-packages/")


def test_frames_of_libraries_are_passed_over() -> None:
    assert LIBRARY(callers.frame_outside, 0) is sys._getframe()


def test_who_calls_a_program_has_not_written_its_functions() -> None:
    assert PROGRAM(LIBRARY, callers.outside, 0) is None

    def function() -> Any:
        return LIBRARY(callers.outside, 0)

    code, _ = PROGRAM(function)
    assert code is function.__code__


def test_frames_of_installed_packages_are_passed_over_for_the_programs_line() -> None:
    assert PACKAGED(callers.outside, 0)[0] is PACKAGED.__code__
    assert PACKAGED(LIBRARY, callers.of_program, 0)[0] is sys._getframe().f_code


def test_a_program_that_is_an_installed_package_has_its_lines() -> None:
    assert PROGRAM(PACKAGED, callers.of_program, 0)[0] is PACKAGED.__code__


def test_nobody_else_climbs_the_stack() -> None:
    found = [
        path.relative_to(PACKAGE).as_posix()
        for folder in CORE
        for path in (PACKAGE / folder).rglob("*.py")
        if "f_back" in path.read_text()
    ]
    assert found == ["record/callers.py"]
