"""Segments that do not fit run in parts: the values stay, the memory between does not."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from dask.array.core import concatenate_shaped
from dask.utils import methodcaller
from hypothesis import given
from hypothesis import strategies as st

from gpusched.backends import cache, devices
from gpusched.graph.functions.known import together
from gpusched.graph.programs.program import Program
from gpusched.graph.running import inputs, pieces, traced
from gpusched.plan import shortage
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep

ROWS, COLUMNS = 300, 100


def program(*functions: Callable[..., Any], inputs: int = 2) -> Program:
    """Return a program that applies each function to what the one before gave and input 0."""
    steps = [ProgramStep(functions[0], tuple(Register(k) for k in range(inputs)), {}, True)]
    for number, function in enumerate(functions[1:]):
        steps.append(ProgramStep(function, (Register(inputs + number), Register(0)), {}, True))
    return Program(tuple(steps), inputs)


CHAIN = (operator.add, np.multiply, operator.sub, np.maximum)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).random((ROWS, COLUMNS))


@pytest.mark.parametrize("count", [2, 7, 1000])
def test_values_are_those_of_the_whole(x: np.ndarray, count: int) -> None:
    whole = program(*CHAIN)(x, x + 1)
    with shortage.in_pieces(count):
        np.testing.assert_array_equal(program(*CHAIN)(x, x + 1), whole)


@given(st.sampled_from([(), (1,), (COLUMNS,), (1, COLUMNS), (ROWS, 1), (1, 1), (ROWS, COLUMNS)]))
def test_operands_that_are_broadcast_are_not_divided(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random((ROWS, COLUMNS))
    y = np.random.default_rng(1).random(shape)
    whole = program(*CHAIN)(x, y)
    with shortage.in_pieces(4):
        np.testing.assert_array_equal(program(*CHAIN)(x, y), whole)


@pytest.mark.parametrize("dtype", [">f8", "O", "m8[s]", "longdouble"])
@pytest.mark.parametrize("shape", [(ROWS, COLUMNS), (ROWS, 1), (COLUMNS,)])
def test_arrays_that_no_kernel_takes_leave_calls_whole(
    x: np.ndarray, dtype: str, shape: tuple[int, ...]
) -> None:
    y = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    whole = program(np.multiply)(x, y)
    with shortage.in_pieces(2):
        np.testing.assert_array_equal(program(np.multiply)(x, y), whole)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (np.add, (Register(0), Register(0)), {"dtype": np.dtype("f4")}),
        (np.add, (Register(0), Register(0)), {"casting": "same_kind"}),
        (partial(np.add, 2), (Register(0),), {}),
        (partial(np.where, True), (Register(0), Register(0)), {}),
        (methodcaller("astype"), (Register(0), "f4"), {}),
        (methodcaller("astype"), (Register(0),), {"dtype": np.dtype("f4"), "copy": False}),
        (np.modf, (Register(0),), {}),
        (np.clip, (Register(0),), {"min": Register(0), "max": 0.5}),
    ],
)
def test_options_that_hold_for_all_elements_leave_calls_in_parts(
    x: np.ndarray, monkeypatch: pytest.MonkeyPatch, function: Any, args: Any, kwargs: Any
) -> None:
    ran = []
    monkeypatch.setattr(pieces, "run", lambda *a, run=pieces.run: ran.append(run(*a)) or ran[-1])
    called = Program((ProgramStep(function, args, kwargs, True),), 1)
    whole = called(x)
    with shortage.in_pieces(3):
        np.testing.assert_array_equal(called(x), whole)
    assert ran == [True]


@pytest.mark.parametrize("rows", [ROWS // 2, ROWS // 4, 3])
def test_calls_of_chunks_of_several_shapes_run_whole(x: np.ndarray, rows: int) -> None:
    steps = [
        ProgramStep(np.add, (Register(0), Register(2)), {}, True),
        ProgramStep(np.multiply, (Register(1), Register(2)), {}, True),
        ProgramStep(together, (Register(3), Register(4)), {}, True),
    ]
    called = Program(tuple(steps), 3)
    chunks = x, x[:rows] + 1, x[:1]
    with shortage.in_pieces(4):  # Parts of one chunk may be as long as the other one.
        found = called(*chunks)
    for one, other in zip(found, called(*chunks), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
def test_an_array_among_options_leaves_calls_whole(x: np.ndarray) -> None:
    where = np.arange(ROWS)[:, None] % 2 == 0
    called = Program((ProgramStep(np.sqrt, (Register(0),), {"where": where}, True),), 1)
    with shortage.in_pieces(3):
        found = called(x)
    np.testing.assert_array_equal(found[::2], np.sqrt(x[::2]))


def normalize(a: Any, b: Any) -> Any:
    return (a + b) / a.shape[0]


@pytest.mark.parametrize("function", [normalize, lambda a, b: (a + b).sum(axis=0), np.matmul])
def test_functions_that_see_more_than_one_place_run_whole(
    x: np.ndarray, function: Callable[..., Any]
) -> None:
    square = x[:COLUMNS]
    whole = program(function)(square, square)
    with shortage.in_pieces(4):
        np.testing.assert_array_equal(program(function)(square, square), whole)


class SmallDevice:
    """NumPy arrays on a device that has room for so many bytes in one array."""

    def __init__(self, largest: float) -> None:
        self.largest = largest
        self.asked: list[int] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        self.asked.append(nbytes)
        if nbytes > self.largest:
            raise MemoryError(f"{nbytes} bytes")
        return np.empty(shape, dtype)

    def device(self) -> devices.Device:
        return devices.Device(
            "small", cache.kernels.get, self.empty, np.full, np.array, lambda: None
        )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], SmallDevice]:
    def install(largest: float) -> SmallDevice:
        found = SmallDevice(largest)
        device = found.device()

        def device_of(value: Any) -> devices.Device | None:
            return device if type(value) is np.ndarray else None

        for module in (inputs, traced, pieces):
            monkeypatch.setattr(module, "device_of", device_of)
        return found

    return install


def test_result_that_does_not_fit_is_left_on_the_host(
    x: np.ndarray, small: Callable[[float], SmallDevice]
) -> None:
    expected = np.maximum((x + x) * x - x, x)
    found = small(x.nbytes / 2)
    tried = program(*CHAIN)
    with pytest.raises(MemoryError):
        tried(x, x)
    with shortage.in_pieces(4):
        result = tried(x, x)
    assert isinstance(result, shortage.HostResult)
    np.testing.assert_array_equal(result.array, expected)
    # One for each piece, and one that stood in for the first while it was recorded.
    assert found.asked.count(x.nbytes // 4) == 5


def test_running_out_of_memory_does_not_change_how_the_next_chunk_runs(
    x: np.ndarray, small: Callable[[float], SmallDevice]
) -> None:
    found = small(x.nbytes / 2)
    tried = program(*CHAIN)
    with pytest.raises(MemoryError):
        tried(x, x)
    found.largest = math.inf
    np.testing.assert_array_equal(tried(x, x), np.maximum((x + x) * x - x, x))
    assert tried.segments[0].remembered.values()


def test_arrays_are_joined_before_what_is_done_in_parts(
    x: np.ndarray, small: Callable[[float], SmallDevice]
) -> None:
    def joined(a: Any, b: Any) -> Any:
        return concatenate_shaped([a, b], (2, 1))

    parts = [Register(0), Register(1)]
    steps = [
        ProgramStep(concatenate_shaped, (parts, (2, 1)), {}, True),
        ProgramStep(operator.add, (Register(2), 1.0), {}, True),
        ProgramStep(operator.mul, (Register(3), Register(2)), {}, True),
    ]
    tried = Program(tuple(steps), 2)
    expected = (joined(x, x) + 1) * joined(x, x)
    np.testing.assert_array_equal(tried(x, x), expected)
    found = small(math.inf)
    with shortage.in_pieces(4):
        result = tried(x, x)
    np.testing.assert_array_equal(result.array, expected)
    # One for each piece, and one that stood in for the first while it was recorded.
    assert found.asked.count(expected.nbytes // 4) == 5


def test_parts_end_with_the_block() -> None:
    with pytest.raises(ZeroDivisionError), shortage.in_pieces(4):
        1 / 0  # noqa: B018
    assert shortage.wanted() == 1
