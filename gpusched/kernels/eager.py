"""Kernels called on arrays that exist: recorded alone, once for arrays of the same kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.backends.devices import HOST, Device, device_of
from gpusched.emit.dtypes import exact
from gpusched.kernels.array_arguments import taken
from gpusched.newest import Newest
from gpusched.plan.overrides import active
from gpusched.plan.plan import Plan
from gpusched.record.chunk import LazyChunk, lazies, references
from gpusched.record.record import PYTHON_SCALARS, Recorder
from gpusched.record.recorded import RecordedFunction, recorder_among
from gpusched.store.statistics import updating
from gpusched.store.tuned import generation

PLANS = 256
"""Plans remembered for all kernels; the oldest goes first."""

_plans: Newest[Any, Plan] = Newest(PLANS)


class FrozenKernel(RecordedFunction):
    """A user's kernel as tasks have it: with the values of what it reads from outside."""

    lasts = True

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Compute what the kernel does, or record it where an argument is a lazy chunk."""
        recorder = recorder_among(args)
        if recorder is not None:
            return self.record(recorder, *args, **options)
        return run(self, args, **options)


def run(function: RecordedFunction, args: tuple[Any, ...], **options: Any) -> Any:
    """Return what a function gives for arrays and numbers; `options` are given to it as they are.

    Examples
    --------
    >>> import gpusched, numpy as np
    >>> @gpusched.kernel
    ... def double(x):
    ...     return x + x
    >>> double(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    values = tuple(map(taken, args))
    key = (function, active(), generation(), *options.items(), *map(_kind, values))
    plan = _plans.get(key)
    if plan is None:
        return _record(function, values, options, key)
    result, seconds = plan.run(values)
    with updating() as counters:
        plan.count(counters, seconds)
    return result


def _kind(value: Any) -> Any:
    if isinstance(value, np.generic):
        return type(value), value.dtype, value.tobytes()
    if type(value) in PYTHON_SCALARS:
        return type(value), exact(value) if type(value) is float else value
    return type(value), value.dtype, value.shape, value.strides


@np.errstate(all="ignore")  # Nobody repeats the call, to report errors.
def _record(
    function: RecordedFunction, values: tuple[Any, ...], options: dict[str, Any], key: Any
) -> Any:
    recorder = Recorder(active().on(_device(function, values)))
    chunks: list[Any] = []
    arrays = []
    for number, value in enumerate(values):
        if type(value) in PYTHON_SCALARS or isinstance(value, np.generic):
            chunks.append(value)
            continue
        leaf = recorder.leaf(value)
        arrays.append((number, leaf.register))
        chunks.append(LazyChunk(recorder, leaf))
    result = function.record(recorder, *chunks, **options)
    recorder.flush(lazies(result))
    structure = references(recorder, result)
    plan = recorder.plan(tuple(arrays), structure)
    found, seconds = recorder.run(plan, values)
    _plans[key] = plan
    with updating() as counters:
        counters.breaks.update(recorder.breaks)
        counters.apart.update(recorder.apart)
        plan.count(counters, seconds)
    return found


def _device(function: RecordedFunction, values: tuple[Any, ...]) -> Device:
    """Return where the arrays are."""
    found = {d.name: d for d in map(device_of, values) if d is not None}
    if len(found) > 1:
        name = getattr(function, "__name__", "")
        raise TypeError(f"kernel {name} was given arrays on several devices: {sorted(found)}")
    return next(iter(found.values()), HOST)
