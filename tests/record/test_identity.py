"""No call returns the chunk itself to a function of the user's, whatever NumPy does.

Lists that are compared take an item for equal to itself, without a look at what it holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusched.graph.functions import known  # noqa: F401  which imports all that fills HANDLERS
from gpusched.plan.expression import UnrecordableError
from gpusched.record.chunk import LazyChunk
from gpusched.record.handlers import HANDLERS, METHODS
from gpusched.record.record import Recorder

ARRAYS = [np.arange(6.0).reshape(2, 3), np.arange(3), np.ones(1), np.array(2.0), np.ones(2, "c16"),
          np.zeros((2, 1, 3), "f4")]  # fmt: skip

CALLS: dict[str, Callable[[Any], Any]] = {
    **{f.__name__: f for f in HANDLERS},
    **{f".{name}": operator.methodcaller(name) for name in METHODS},
    "several": lambda x: np.atleast_1d(x, x),
    "reshape to its shape": lambda x: np.reshape(x, x.shape),
    "broadcast to its shape": lambda x: np.broadcast_to(x, x.shape),
    "all of it": lambda x: x[...],
    "real": lambda x: x.real,
    "T": lambda x: x.T,
    "its dtype": lambda x: x.astype(x.dtype, copy=False),
    "positive": lambda x: +x,
    "no axes moved": lambda x: np.moveaxis(x, 0, 0),
    "no shift": lambda x: np.roll(x, 0),
    "one time": lambda x: np.tile(x, 1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_what_is_returned_is_another_object(name: str) -> None:
    for array in ARRAYS:
        recorder = Recorder()
        recorder.patient, recorder.closed = False, True
        lazy = LazyChunk(recorder, recorder.leaf(array))
        try:
            found = CALLS[name](lazy)
        except (UnrecordableError, TypeError, ValueError, IndexError):
            continue
        for each in found if type(found) in (tuple, list) else (found,):
            assert each is not lazy


def test_a_change_of_what_was_given_back_ends_the_recording() -> None:
    recorder = Recorder()
    recorder.closed = True
    chunk = LazyChunk(recorder, recorder.leaf(np.arange(3.0))) + 1
    same = np.real(chunk)
    assert same is not chunk
    for each in (same, chunk):
        with pytest.raises(UnrecordableError):
            each += 1
