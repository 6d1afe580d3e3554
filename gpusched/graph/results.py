"""The results of a recording: arrays of their own where the program makes such."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.plan.plan import Register
from gpusched.record.chunk import LazyChunk, references
from gpusched.record.record import Recorder


class ResultRegisters:
    """Turns lazy chunks into references to registers.

    Two calls that compute the same share a register, as does a copy with what it is a copy of. What
    the program makes twice is two arrays, so that a change of one is not a change of the other.

    Parameters
    ----------
    recorder
        Of the recording.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._taken = set(recorder.given)
        self._found: dict[int, Any] = {}

    def reference(self, value: Any) -> Any:
        """Return a result with references instead of lazy chunks."""
        if type(value) in (list, tuple):
            return type(value)(map(self.reference, value))
        if type(value) is dict:
            return {key: self.reference(each) for key, each in value.items()}
        if type(value) is np.ndarray and not self._recorder.escape:
            return self._copied(value)
        if not isinstance(value, LazyChunk):
            return references(self._recorder, value)
        if id(value) not in self._found:
            self._found[id(value)] = value, self._reference(value)
        return self._found[id(value)][1]

    def _copied(self, numbers: np.ndarray) -> Any:
        """Return a reference to a copy of an array of numbers: another one for each chunk."""
        recorder = self._recorder
        if not recorder.device.holds(numbers):
            recorder.escaped(GraphBreak.NOT_ARRAYS(f"an array of {numbers.dtype} is a result"))
            return numbers
        made = recorder.constant(numbers)
        return Register(recorder.made_leaf(made.register, np.copy, copies=True).register)

    def _reference(self, chunk: LazyChunk) -> Any:
        recorder = self._recorder
        register = recorder.register(chunk._node)
        if recorder.is_piece(register) and not chunk._scalar:
            register = recorder.register(recorder.own(register))
            self._taken.add(register)
            return Register(register)
        if chunk._owned and register in self._taken:
            made = recorder.made_leaf(register, np.copy, copies=True)
            chunk = LazyChunk(recorder, made, scalar=chunk._scalar)
        self._taken.add(register)
        return references(recorder, chunk)
