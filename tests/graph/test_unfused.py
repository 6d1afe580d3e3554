"""Elementwise calls on blocks give the bits of the same calls on whole chunks, and its warnings."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.special
from hypothesis import example, given
from hypothesis import strategies as st

import gpusched
from gpusched.backends import buffer_pool, cache
from gpusched.breaks import Reason
from gpusched.emit.operations import OPERATIONS, has
from gpusched.graph.functions.known import enforced
from gpusched.graph.running import blocks, division
from gpusched.graph.running.blocks import Blocks, parts
from gpusched.graph.running.calling import arranged
from gpusched.graph.running.division import ALIGNED, Division
from gpusched.graph.running.segment import Segment
from gpusched.plan.plan import Register
from gpusched.record.catalogue import NAMES
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import reset_statistics, statistics

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip
SMALL = 1 << 9
"""Elements of a tile in tests: eight times `ALIGNED`."""
LENGTHS = (4 * SMALL, 4 * SMALL + 1, 5 * SMALL - 1, 7 * SMALL + 63)


@pytest.fixture(autouse=True, scope="module")
def small_tiles() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "TILE", 8 * SMALL)
        yield


def ufuncs() -> dict[str, np.ufunc]:
    """Return the functions of the table of operations that have one result, by name."""
    found = {name: getattr(np, name, None) for name in OPERATIONS}
    found |= {
        f"scipy.{name}": getattr(scipy.special, name) for name in OPERATIONS if has(name, "special")
    }
    return {n: f for n, f in found.items() if isinstance(f, np.ufunc) and f.nout == 1}


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return numbers of all sizes, with some of the special ones among ordinary neighbours."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    with np.errstate(all="ignore"):
        found = (rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3, shape)).astype(dtype)
        some = rng.random(shape) < 0.02
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e5, 1e30, 1e-30, 71476.0625]
        return np.where(some, rng.choice(special, shape).astype(dtype), found)


Calls = list[tuple[Callable[..., Any], tuple[Any, ...]]]


def run(calls: Calls, inputs: list[np.ndarray], outputs: tuple[int, ...] | None = None) -> Any:
    """Return the results of some calls on tiles; arguments that are texts name registers."""
    first = len(inputs)
    steps = [
        (first + k, ProgramStep(f, tuple(Register(int(a)) if type(a) is str else a for a in args)))
        for k, (f, args) in enumerate(calls)
    ]
    outputs = outputs or (first + len(calls) - 1,)
    ((_, made),) = parts(steps, outputs)
    assert made is not None
    registers: list[Any] = [*inputs, *[None] * len(calls)]
    if not made.run(registers):
        return None
    return [registers[k] for k in outputs]


def whole(calls: Calls, inputs: list[np.ndarray]) -> list[Any]:
    registers: list[Any] = list(inputs)
    for function, args in calls:
        registers.append(function(*(registers[int(a)] if type(a) is str else a for a in args)))
    return registers


def bits(array: np.ndarray) -> bytes:
    return array.tobytes()


@pytest.mark.parametrize("name", ufuncs())
def test_every_function_that_can_be_recorded_gives_the_same_bits(name: str) -> None:
    function = ufuncs()[name]
    tested = 0
    for dtype, length in itertools.product(DTYPES, LENGTHS):
        inputs = [values(dtype, (length,), seed) for seed in range(function.nin)]
        calls: Calls = [(function, tuple(str(k) for k in range(function.nin)))]
        with np.errstate(all="ignore"):
            try:
                expected = whole(calls, inputs)[-1]
            except (TypeError, ValueError):
                continue  # Not for this dtype, or not for negative numbers.
            # One more call, since a single one gains nothing, and is not tried.
            found = run([*calls, (np.equal, (str(function.nin),) * 2)], inputs,
                        (function.nin, function.nin + 1))  # fmt: skip
        assert found is not None
        assert (found[0].dtype, found[0].shape) == (expected.dtype, expected.shape)
        assert bits(found[0]) == bits(expected)
        tested += 1
    assert tested >= 2 * len(LENGTHS)


OPERATORS = [getattr(operator, name) for name in NAMES["elementwise"]["operator"].split()]


def test_every_function_computes_into_memory_that_is_used_again() -> None:
    """New memory for each tile costs more than all the rest where freed memory is given back."""
    functions = [*ufuncs().values(), *OPERATORS, np.clip, np.where]
    assert not [each for each in functions if blocks.into(each) is None]


UNARY = (operator.abs, operator.inv, operator.invert, operator.neg, operator.pos)
EXPONENTS = (0, 1, 4, -1, -1.0, 2.0, 2.5, 2j, np.int8(2), np.int64(2), np.float32(2),
             np.float32(0.5), np.float64(0.5), np.float64(2), np.complex64(2))  # fmt: skip
"""Some of which `**` has functions of its own for."""


@pytest.mark.parametrize("function", OPERATORS, ids=lambda f: f.__name__)
def test_operators_give_the_same_bits_with_arrays_and_with_numbers(function: Any) -> None:
    tested = [check(function, dtype) for dtype in DTYPES]
    assert any(tested)


def check(function: Any, dtype: str) -> int:
    """Return how many calls with arrays and with numbers were compared."""
    second = [()] if function in UNARY else [("1",), (2,), (3,)] + [(0.5,)] * (dtype[0] == "f")
    if function is operator.pow:
        second += [(exponent,) for exponent in EXPONENTS] + [("2",), ("3",), ("4",)]
    tested = 0
    inputs = [values(dtype, (LENGTHS[-1],), seed) for seed in (0, 1)]
    if function is operator.pow and np.dtype(dtype).kind in "biu":
        inputs[1] = np.abs(inputs[1]) if dtype == "bool" else inputs[1] % 5
    inputs += [np.array(2), np.array(2.0), np.array(0.5, "f4")]
    for other in second:
        calls: Calls = [(function, ("0", *other)), (np.equal, ("5", "5"))]
        with np.errstate(all="ignore"):
            try:
                expected = whole(calls, inputs)[5]
            except (TypeError, ValueError, OverflowError):
                continue  # Not for this dtype.
            found = run(calls, inputs, (5, 6))
        assert bits(found[0]) == bits(expected)
        assert found[0].dtype == expected.dtype
        tested += 1
    return tested


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arguments", [("0", "1", "0"), ("1", 1, "0"), ("0", "0", 0.1),
                                       ("0", 2j, "1"), ("0", "1", np.float32(0.1)),
                                       ("0", np.int16(-3), 2)], ids=str)  # fmt: skip
def test_choices_give_the_same_bits(arguments: tuple[Any, ...], dtype: str) -> None:
    inputs = [values(dtype, (LENGTHS[-1],), seed) for seed in (0, 1)]
    calls: Calls = [(np.where, arguments), (np.equal, ("2", "2"))]
    expected = whole(calls, inputs)[2]
    found = run(calls, inputs, (2, 3))
    assert (bits(found[0]), found[0].dtype) == (bits(expected), expected.dtype)


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 9), max_size=2)), max_size=9))
def test_steps_are_arranged_after_what_they_read(drawn: list[tuple[bool, set[int]]]) -> None:
    steps = [
        (2 + k, ProgramStep(np.add if elementwise else np.flip,
                            tuple(Register(number % (2 + k)) for number in sorted(read))))
        for k, (elementwise, read) in enumerate(drawn)
    ]  # fmt: skip
    found = arranged(steps)
    assert sorted(register for register, _ in found) == [register for register, _ in steps]
    known = {0, 1}
    for register, step in found:
        assert step.registers <= known
        known.add(register)
    alone = [sum(where.stop - where.start for where, part in parts(each, ()) if part is None)
             for each in (found, steps)]  # fmt: skip
    assert alone[0] <= alone[1]


CHAIN: Calls = [
    (operator.add, ("0", "1")), (operator.mul, ("3", "2")), (operator.sub, ("4", "0")),
    (np.sin, ("5",)), (np.exp, ("6",)), (operator.truediv, ("7", 2)), (np.clip, ("8", 0, 1)),
    (np.where, ("9", "3", "0")), (operator.pow, ("10", 2)),
]  # fmt: skip


@given(
    shape=st.sampled_from([(2600,), (300, 17), (43, 64), (90, 100), (50, 7, 19), (1, 2800)]),
    dtypes=st.tuples(*[st.sampled_from(["float32", "float64", "int32"])] * 3),
    broadcast=st.tuples(*[st.sampled_from(["whole", "row", "column", "ends", "number"])] * 3),
    orders=st.tuples(*[st.sampled_from("CCF")] * 3),
    wanted=st.sets(st.integers(3, 10)),
    seed=st.integers(0, 9),
)
@example((300, 17), ("float32", "float64", "float32"), ("column", "row", "row"), "CCC", set(), 0)
@example((301, 17), ("float32", "float64", "float32"), ("row", "column", "row"), "CCC", set(), 0)
@example((50, 7, 19), ("float64",) * 3, ("ends", "row", "number"), "CCC", {9}, 0)
@example((50, 7, 19), ("float64",) * 3, ("ends", "row", "column"), "FCF", {9}, 0)
def test_chains_give_the_same_bits(
    shape: tuple[int, ...], dtypes: Any, broadcast: Any, orders: Any, wanted: set[int], seed: int
) -> None:
    first, ones = shape[:1], (1,) * (len(shape) - 1)
    shapes = {"whole": shape, "row": shape[1:], "column": first + ones,
              "ends": first + ones[1:] + shape[1:][-1:], "number": ()}  # fmt: skip
    inputs = [
        values(d, shapes[b], seed + k).copy(order)
        for k, (d, b, order) in enumerate(zip(dtypes, broadcast, orders, strict=True))
    ]
    with np.errstate(all="ignore"):
        expected = whole(CHAIN, inputs)
        outputs = (*sorted(wanted), 11)
        found = run(CHAIN, inputs, outputs)
    if found is None:
        return
    for register, array in zip(outputs, found, strict=True):
        assert (array.dtype, array.shape) == (expected[register].dtype, expected[register].shape)
        assert array.strides == expected[register].strides
        assert bits(array) == bits(expected[register])


def divided(arrays: list[Any]) -> Division | Reason:
    """Return how the sum of some arrays is divided."""
    first = len(arrays)
    steps = [
        (first + k, ProgramStep(np.add, (Register(first + k - 1 if k else 0), Register(k))))
        for k in range(first)
    ]
    return Division.of(steps, (2 * first - 1,), dict(enumerate(arrays)))


@pytest.mark.parametrize(("rows", "inner"), [*itertools.product((7, 64, 300), (1, 3, 48, 64, 100))])
def test_blocks_begin_at_multiples_of_every_vector(rows: int, inner: int) -> None:
    found = divided([np.zeros((rows, inner)), np.zeros(inner)])
    if isinstance(found, Reason):
        return
    assert found.rows < found.length == rows and found.rows * inner % ALIGNED == 0


@pytest.mark.parametrize("lengths", [(5 * SMALL, 5 * SMALL + 1), (8 * SMALL, 3)])
def test_calls_may_have_nothing_to_do_with_each_other(lengths: tuple[int, int]) -> None:
    inputs = [values("float64", (n,)) for n in lengths]
    calls: Calls = [(np.sin, ("0",)), (np.cos, ("1",))]
    with np.errstate(all="ignore"):
        found = run(calls, inputs, (2, 3))
        expected = whole(calls, inputs)[2:]
    assert [bits(each) for each in found] == [bits(each) for each in expected]


def test_what_is_computed_of_a_row_alone_is_whole() -> None:
    inputs = [values("float32", (8, 2 * SMALL)), values("float32", (1, 2 * SMALL), 1)]
    calls: Calls = [(operator.mul, ("1", 2)), (operator.add, ("0", "2"))]
    with np.errstate(all="ignore"):
        found = run(calls, inputs, (2, 3))
        expected = whole(calls, inputs)[2:]
    assert [bits(each) for each in found] == [bits(each) for each in expected]
    assert [each.shape for each in found] == [each.shape for each in expected]


def test_results_of_some_shapes_run_on_tiles() -> None:
    for other in ((100,), (90, 1), (), (90, 100)):
        assert isinstance(divided([np.zeros((90, 100)), np.zeros(other)]), Division)


def test_results_that_are_larger_than_all_operands_run_on_tiles() -> None:
    inputs = [values("float32", (199, 1, 8)), values("float32", (1, 12, 8), 1)]
    calls: Calls = [(operator.sub, ("0", "1")), (operator.pow, ("2", 2))]
    with np.errstate(all="ignore"):
        (found,) = run(calls, inputs)
        assert bits(found) == bits(whole(calls, inputs)[-1])


@pytest.mark.parametrize(
    "arrays",
    [
        [np.zeros(3 * SMALL)], [np.zeros((64, 65)).T], [np.zeros((2, 5000)), np.zeros(5000)],
        [np.zeros((2, 1)), np.zeros((1, 5000))], [np.ma.zeros(5 * SMALL)], [(np.zeros(999),)],
        [np.zeros(5 * SMALL, "datetime64[s]")], [np.zeros(5 * SMALL, ">f8")], [1.0, 2],
    ],
)  # fmt: skip
def test_what_cannot_be_divided_is_left_whole(arrays: list[Any]) -> None:
    assert isinstance(divided(arrays), Reason)


@pytest.mark.parametrize("step", [
    ProgramStep(np.add, (Register(0), np.ones(3))), ProgramStep(np.add, (Register(0), [1])),
    ProgramStep(np.add, (Register(0), 1), {"where": Register(1)}),
    ProgramStep(np.sum, (Register(0),)),
    ProgramStep(np.where, (Register(0),)), ProgramStep(np.modf, (Register(0),)),
    ProgramStep(np.frompyfunc(abs, 1, 1), (Register(0),)),
    ProgramStep(lambda x: x, (Register(0),)),
])  # fmt: skip
def test_other_calls_run_on_no_blocks(step: ProgramStep) -> None:
    assert not division.is_elementwise(step)


def test_what_is_between_two_parts_runs_whole() -> None:
    steps = [(k + 1, ProgramStep(f, (Register(k),))) for k, f in enumerate(
        [np.sin, np.cos, np.cumsum, np.exp, np.sort, np.abs, np.sqrt])]  # fmt: skip
    assert [(s.start, s.stop, part is not None) for s, part in parts(steps, (7,))] == [
        (0, 2, True), (2, 3, False), (3, 4, False), (4, 5, False), (5, 7, True)
    ]  # fmt: skip


def test_what_a_function_hands_through_is_not_written_to() -> None:
    def same(k: str) -> tuple[Any, tuple[Any, ...]]:
        return enforced, (k, np.dtype("f8"), operator.add)

    x = values("float64", (LENGTHS[-1],))
    calls: Calls = [(operator.add, ("0", 1)), same("1"), (operator.mul, ("1", 3)), same("3"),
                    (operator.sub, ("4", 5)), (operator.add, ("5", "2")), (np.sin, ("6",)),
                    (operator.add, ("7", "2"))]  # fmt: skip
    with np.errstate(all="ignore"):
        (found,) = run(calls, [x])
        assert bits(found) == bits(whole(calls, [x])[-1])


def test_inputs_stay_as_they_are_and_buffers_are_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(division, "TILE", buffer_pool.SMALLEST)
    x = np.linspace(0, 1, 20 * division.TILE // 8 + ALIGNED)
    before = x.copy()
    calls: Calls = [(operator.add, ("0", 1)), (operator.mul, ("1", 2)), (operator.sub, ("2", 3)),
                    (operator.mul, ("3", 4)), (operator.neg, ("4",))]  # fmt: skip
    buffer_pool.pool.clear()
    reset_statistics()
    (found,) = run(calls, [x])
    # The result, and what two calls that follow each other make of a block.
    assert statistics().buffers_made == 3
    assert bits(found) == bits(whole(calls, [x])[-1])
    assert bits(x) == bits(before)


def test_errors_are_reported_once_for_each_call_and_tiles_are_not_tried_again() -> None:
    x = np.zeros(9 * SMALL)
    steps = [
        (1, ProgramStep(np.log, (Register(0),))),
        (2, ProgramStep(np.negative, (Register(1),))),
    ]
    ((_, made),) = parts(steps, (2,))
    assert made is not None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert not made.run([x, None, None])
    assert not told and made.reported
    with np.errstate(all="ignore"):
        ((_, made),) = parts(steps, (2,))
        assert made is not None and made.run([x, None, None])


def test_tasks_without_kernels_run_on_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[bool] = []
    run = Blocks.run

    def noted(self: Blocks, registers: Any) -> bool:
        ran.append(run(self, registers))
        return ran[-1]

    monkeypatch.setattr(Blocks, "run", noted)
    values = np.random.default_rng(0).normal(size=(4, 3000))
    chunks = da.from_array(values, chunks=(1, 3000))
    settings = {"fusion.compile": "off", "fusion.cache-directory": str(tmp_path),
                "fusion.minimum-elements": 0}  # fmt: skip
    cache.kernels.clear()
    with dask.config.set({f"gpusched.{key}": value for key, value in settings.items()}):
        reset_statistics()
        with gpusched.enable():
            x = chunks * 3
            found = np.exp(-x / 2).cumsum(axis=1) * 2 + chunks - 1
            array = found.compute(scheduler="sync")
    assert statistics().unfused_tasks == 8, "what is before the sums, and what comes after them"
    assert ran and all(ran)
    x = values * 3
    assert bits(array) == bits(np.exp(-x / 2).cumsum(axis=1) * 2 + values - 1)


def told(call: Callable[[], Any]) -> list[Any]:
    """Return what a call warns of and what it raises, in order."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            call()
        except (TypeError, ValueError, FloatingPointError) as error:
            return [*(str(each.message) for each in found), repr(error)]
    return [str(each.message) for each in found]


@pytest.mark.parametrize("state", ["warn", "raise"])
@pytest.mark.parametrize("calls", [
    [(np.log, ("0",)), (np.invert, ("0",))],  # raises after a warning
    [(np.log, ("0",)), (np.sum, ("1",)), (np.divide, ("2", "3"))],  # a sum that overflows
    [(np.log, ("0",)), (np.transpose, ("0", 1)), (np.add, ("2", "3"))],
    [(np.log, ("0",)), (operator.neg, ("0",)), (np.max, ("1",)), (operator.sub, ("3", "4")),
     (np.exp, ("5",))],  # one whose result nobody reads
])  # fmt: skip
def test_errors_are_reported_in_the_order_of_the_calls(calls: Calls, state: Any) -> None:
    inputs = [np.zeros(5 * SMALL), np.full(5 * SMALL, 1e308)]
    steps = [
        (2 + k, ProgramStep(f, tuple(Register(int(a)) if type(a) is str else a for a in args)))
        for k, (f, args) in enumerate(calls)
    ]
    segment = Segment(steps, (0, 1), (1 + len(calls),), True)
    with np.errstate(all=state):
        expected = told(lambda: segment.calling.one_by_one([*inputs, *[None] * len(calls)]))
        for _ in range(2):
            found = told(lambda: segment.calling.on_blocks([*inputs, *[None] * len(calls)]))
            assert found == expected != []
