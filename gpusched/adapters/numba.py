"""Keeps numba from changing what the warnings of other threads go through.

While numba infers types it records warnings by `warnings.catch_warnings`, once per instruction.
That replaces the filters, and what shows warnings, for the whole process: where another thread
enters or leaves such a block meanwhile, either side puts back what the other has set, for good
(https://github.com/python/cpython/issues/128384). Functions are compiled in threads of tasks, and
NumPy's own warnings must not be lost by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

from numba.core import errors

_Catch = Callable[..., AbstractContextManager[None]]


def leave_filters_alone() -> None:
    """Have numba record warnings in the main thread only, whoever asks it to compile.

    In other threads its warnings are shown as they are raised, with the place in numba.
    """
    fixer: Any = errors.WarningsFixer  # type: ignore[attr-defined]
    if not hasattr(fixer.catch_warnings, _MARK):
        fixer.catch_warnings = _in_main_thread(fixer.catch_warnings)


_MARK = "__gpusched_main_thread__"


def _in_main_thread(catch: _Catch) -> _Catch:
    @wraps(catch)
    @contextmanager
    def catch_warnings(*args: Any, **kwargs: Any) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with catch(*args, **kwargs):
            yield

    setattr(catch_warnings, _MARK, True)
    return catch_warnings
