"""What a worker's admission takes of it: calls, and processor time."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from gpusched.workers.memory.admit import Admission
from gpusched.workers.worker import DeviceWorker

_ASKED = "enter", "loaded", "handled"
"""The methods of `Admission` that tasks without transfers call."""

_ADMISSION = Admission.enter.__code__.co_filename
_OVERRIDE = DeviceWorker.handle_stimulus.__code__
"""There for admission alone, in another file; what it calls of distributed is not."""


class _Calls:
    """Counts calls of Python's functions and those of C, and those of them within admission."""

    def __init__(self) -> None:
        self.all = self.within = self._depth = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call" and (self._depth or frame.f_code.co_filename == _ADMISSION):
            self._depth += 1
        elif event == "return" and self._depth:
            self._depth -= 1
        if event in ("call", "c_call"):
            self.all += 1
            self.within += self._depth > 0 or (event == "call" and frame.f_code is _OVERRIDE)


def begin_counting() -> None:
    """Count the calls of this thread."""
    sys.setprofile(_Calls())


def end_counting() -> tuple[int, int]:
    """Count no more; return the calls of this thread since it began, and those in admission."""
    found = sys.getprofile()
    sys.setprofile(None)
    assert isinstance(found, _Calls)
    return found.all, found.within


def begin_timing(dask_worker: Any) -> None:
    """Have the worker add up its processor time within admission."""
    dask_worker.admission.spent = 0
    for name in _ASKED:
        setattr(dask_worker.admission, name, _timed(dask_worker.admission, name))


def spent(dask_worker: Any) -> float:
    """Return the seconds that were added up, and forget them."""
    found, dask_worker.admission.spent = dask_worker.admission.spent, 0
    return float(found)


def _timed(admission: Any, name: str) -> Callable[..., Any]:
    method = getattr(Admission, name)

    @functools.wraps(method)
    def timed(*arguments: Any) -> Any:
        before = time.thread_time()
        try:
            return method(admission, *arguments)
        finally:
            admission.spent += time.thread_time() - before

    @functools.wraps(method)
    async def awaited(*arguments: Any) -> Any:
        # Nothing waits where memory is ample: no other task runs within this.
        before = time.thread_time()
        try:
            return await method(admission, *arguments)
        finally:
            admission.spent += time.thread_time() - before

    return awaited if name == "enter" else timed
