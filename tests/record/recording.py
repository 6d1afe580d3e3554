"""Run a function on lazy chunks, first recorded and then from its plan, and compare with NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from gpusched.backends import arraycalls
from gpusched.backends.cache import kernels, reference
from gpusched.backends.devices import HOST, Device
from gpusched.emit.kernel import Kernel
from gpusched.plan.plan import Launch, Plan
from gpusched.record import (  # noqa: F401
    assignments,
    changing,
    functions,
    gathers,
    gradients,
    products,
    scans,
    searches,
    segments,
    selection,
    written,
)
from gpusched.record.chunk import LazyChunk, lazies, references
from gpusched.record.record import Recorder
from gpusched.store.handles import CompiledKernel, Handle


def array_calls(kernel: Kernel) -> Handle:
    """Return the calls that stand in for a kernel, CuPy's or NumPy's as the chunks are."""

    def never() -> Any:
        raise AssertionError("it is not compiled")

    if place().device.can.host_memory:
        module = np
    else:
        import cupy as module
    found = arraycalls.in_place_of(Handle(kernel, lambda: None, never), module)
    if found is None:
        pytest.skip("array libraries have no call for one of the kernel's statements")
    return found


BACKENDS: dict[str, Callable[[Kernel], CompiledKernel | Handle]] = {
    "python": reference,
    "cpu": kernels.get,
    "arrays": array_calls,
}


@dataclass(frozen=True)
class Place:
    """Where the chunks of recordings are."""

    device: Device
    to_device: Callable[[np.ndarray], Any] = lambda array: array
    """Returns a chunk with the values and strides of an array."""
    to_host: Callable[[Any], Any] = lambda result: result
    """Returns results, and NumPy's own, with NumPy's arrays and scalars."""


PLACES = {"host": Place(HOST)}
"""The last is taken; `tests.placing.on_gpu` adds one."""


def place() -> Place:
    """Return where chunks are in this test run."""
    return list(PLACES.values())[-1]


def on_host() -> bool:
    """Return whether chunks are in host memory in this test run."""
    return len(PLACES) == 1


@dataclass
class Recording:
    """What came of recording a function."""

    result: Any
    plan: Plan
    recorder: Recorder

    @property
    def launches(self) -> list[Launch]:
        return self.plan.launches

    def run(self, *arrays: np.ndarray) -> Any:
        """Return what the plan makes of other arrays."""
        return place().to_host(self.plan.run(tuple(map(place().to_device, arrays)))[0])


def record(
    function: Callable[..., Any],
    *arrays: np.ndarray,
    backend: str = "cpu",
    device: Device | None = None,
) -> Recording:
    """Record `function` on lazy chunks that stand for `arrays`."""

    def compiled(kernel: Kernel) -> Handle:
        found = BACKENDS[backend](kernel)
        return found if isinstance(found, Handle) else Handle.of(found)

    recorder = Recorder(replace(device or place().device, compile=compiled))
    given = tuple(map(place().to_device, arrays))
    chunks = [LazyChunk(recorder, recorder.leaf(array)) for array in given]
    result = function(*chunks)
    recorder.flush(lazies(result))
    structure = references(recorder, result)
    plan = recorder.plan(tuple((k, k) for k in range(len(given))), structure)
    return Recording(place().to_host(recorder.run(plan, given)[0]), plan, recorder)


def outcome(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Return what a function gives, without its warnings, or the type of its error."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return function(*arrays)
        except (TypeError, ValueError) as error:
            return type(error)


def check_error(function: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Assert that recording a function raises an error of the type of NumPy's."""
    with pytest.raises(Exception) as expected:  # noqa: PT011  whatever NumPy raises
        function(*arrays)
    with pytest.raises(type(expected.value)):
        record(function, *arrays, backend="python")


def check(function: Callable[..., Any], *arrays: np.ndarray, backend: str = "cpu", ulp: int = 0,
          scale: float | None = None, errors: str = "ignore") -> Recording:  # fmt: skip
    """Assert that `function` fused, and run again from its plan, gives what NumPy gives.

    With `errors` of "warn", as users have it, the kernels look for floating-point errors, too.
    """
    with warnings.catch_warnings(action="ignore"), np.errstate(all=errors):
        expected = function(*arrays)
        found = record(function, *arrays, backend=backend)
        again = found.run(*arrays)
    for result in (found.result, again):
        assert_same(result, expected, ulp, scale)
    return found


def assert_same(found: Any, expected: Any, ulp: int = 0, scale: float | None = None) -> None:
    """Assert equal types, dtypes, shapes and values, floats within `ulp` units in the last place.

    `scale` widens the unit to that of numbers of that size, where the result is less: sums are as
    exact as their terms.
    """
    expected = place().to_host(expected)
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, ulp, scale)
        return
    assert type(found) is type(expected), (type(found), type(expected))
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    with np.errstate(all="ignore"):
        size = min(scale or 0, np.finfo(found.dtype).max)
        unit = np.spacing(np.maximum(np.abs(expected), found.dtype.type(size)))
        finite = np.isfinite(expected)
        distance = np.where(finite, np.abs(found - expected), 0)
        close = ~finite | (distance == 0) | (distance <= ulp * unit)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])
    assert np.all(close), f"{found} is further than {ulp} units from {expected}"
    if not ulp:
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))
