"""Runs a script or a module as ``__main__`` and says how it ended, as Python itself would."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import TracebackType

from gpusched import config
from gpusched.cli.errors import Unusable
from gpusched.cli.write_guard import STOPPED, Stopped

_PACKAGE = os.path.join(os.path.dirname(config.__file__), "")

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""


@dataclass(frozen=True)
class Ending:
    """How a script or a module ended."""

    code: int
    """Its exit code."""
    began: bool = True
    """Whether any of it ran: not where Python cannot compile it."""


def prepare(target: str, arguments: Sequence[str], module: bool) -> str:
    """Set ``sys.path`` and ``sys.argv`` as Python does before it runs a script or a module.

    Returns the folder that modules are looked for first. Raises `Unusable` if there is no such
    script or module.
    """
    if module:
        folder = os.getcwd()
        sys.path[0] = folder
        _check_module(target)
    else:
        _check_script(target)
        folder = str(Path(target).resolve().parent)
        sys.path[0] = folder
    sys.argv[:] = [target, *arguments]
    return folder


def execute(target: str, module: bool, folder: str, command: str = "run") -> Ending:
    """Run a script or a module as ``__main__`` and return how it ended.

    ``folder`` is what :func:`prepare` returned; modules are looked for there first. An exception
    is printed with the script's own frames, none of gpusched's before them. ``command`` is the one
    of gpusched's that runs it.
    """
    # Workers started in the meantime put their scratch folders first.
    sys.path.remove(folder)
    sys.path.insert(0, folder)
    try:
        if module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as stop:
        return Ending(_exit_code(stop.code))
    except KeyboardInterrupt as interrupt:
        print(f"gpusched {command}: interrupted{_place(interrupt)}", file=sys.stderr)
        return Ending(INTERRUPTED)
    except Stopped:
        return Ending(STOPPED)
    except BaseException as error:  # noqa: BLE001  as Python itself does with a script
        began = not all(map(_is_ours, _levels(error.__traceback__)))
        own = _own_frames(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(own), own)
        return Ending(1, began)
    finally:
        _flush()
    return Ending(0)


def _check_script(script: str) -> None:
    path = Path(script)
    if path.is_dir():
        raise Unusable(f"{script} is a directory: name the script in it, or use -m PACKAGE")
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise Unusable(f"there is no script {script}") from None
    except OSError as error:
        raise Unusable(f"cannot read {script}: {error.strerror}") from None


def _check_module(module: str) -> None:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise Unusable(f"cannot find the module {module}: {error}") from None
    if found is None:
        raise Unusable(f"there is no module {module}")
    inside = found.submodule_search_locations
    # Not by `importlib.util.find_spec`, which would run the package.
    if inside is not None and PathFinder.find_spec(f"{module}.__main__", inside) is None:
        raise Unusable(f"{module} is a package without a __main__ module: name a module in it")


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _own_frames(traceback: TracebackType | None) -> TracebackType | None:
    if config.get("run.full-tracebacks"):
        return traceback
    kept = [level for level in _levels(traceback) if not _is_ours(level)]
    own: TracebackType | None = None
    for level in reversed(kept):
        own = TracebackType(own, level.tb_frame, level.tb_lasti, level.tb_lineno)
    return own


def _levels(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_ours(traceback: TracebackType) -> bool:
    file = traceback.tb_frame.f_code.co_filename
    return file.startswith(_PACKAGE) or file in (runpy.__file__, "<frozen runpy>")


def _place(error: BaseException) -> str:
    traceback = _own_frames(error.__traceback__)
    if traceback is None:
        return ""
    return f" at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


def _flush() -> None:
    # Before the summary, so that the two do not mix where both streams are one file.
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        # The reader went away or the script closed it; Python reports that at exit.
        return
