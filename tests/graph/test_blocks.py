"""Calls that end in reductions give on blocks what they give on whole chunks, in less memory."""

from __future__ import annotations

import operator
import tracemalloc
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array import chunk, reductions
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import gpusched
from gpusched.adapters.arrays import nanmax_skip
from gpusched.graph.functions import moments
from gpusched.graph.running import blocks, division
from gpusched.graph.running.blocks import Blocks, parts
from gpusched.graph.running.calling import Calling, call_each
from gpusched.plan.plan import Register, last_uses
from gpusched.record.steps import ProgramStep

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]

WINDOWS: list[Call] = [
    (sliding_window_view, ("0", 30, 0), {}), (np.subtract, ("1", "1"), {}),
    (np.multiply, ("2", "2"), {}), (chunk.sum, ("3",), {"axis": (2,), "keepdims": True}),
]  # fmt: skip
"""Of which nothing but the sums is as large as the array."""


@pytest.fixture(autouse=True, scope="module")
def small_tiles() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "TILE", 1 << 12)
        yield


def steps_of(calls: list[Call], inputs: int) -> list[tuple[int, ProgramStep]]:
    """Return some calls as steps; arguments that are texts are the numbers of registers."""
    return [
        (inputs + k, ProgramStep(f, tuple(Register(int(a)) if type(a) is str else a for a in args),
                                 kwargs))
        for k, (f, args, kwargs) in enumerate(calls)
    ]  # fmt: skip


def on_blocks(calls: list[Call], inputs: list[Any], outputs: tuple[int, ...] = ()) -> bool:
    """Return whether calls run on blocks, having checked their results."""
    steps = steps_of(calls, len(inputs))
    outputs = outputs or (steps[-1][0],)
    expected = [*inputs, *[None] * len(steps)]
    call_each(steps, last_uses([s.registers for _, s in steps], set(outputs)), expected)
    found = [*inputs, *[None] * len(steps)]
    made = parts(steps, outputs)
    done = len(made) == 1 and type(made[0][1]) is Blocks and made[0][1].run(found)
    for k in outputs if done else ():
        assert_same(found[k], expected[k])
    return done


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        for name in found.keys() - {"rest"}:  # What rounding has lost of a mean.
            assert_same(found[name], expected[name])
        return
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    for each in (found, expected):  # Counts are one number that is shown everywhere.
        assert each.flags.c_contiguous or not any(each.strides)
    bound = 1e-4 if found.dtype in ("f4", "c8") else 1e-10
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


VALUES = np.random.default_rng(0).normal(size=(300, 8, 4))

FIRST: list[tuple[Any, dict[str, Any]]] = [
    (chunk.sum, {"dtype": "f8"}), (chunk.nansum, {"dtype": "f8"}), (chunk.prod, {"dtype": "f8"}),
    (reductions.chunk_min, {}), (reductions.chunk_max, {}), (nanmax_skip, {}),
    (reductions.mean_chunk, {"dtype": "f8"}), (moments.moment_chunk, {"dtype": "f8"}),
    (reductions.mean_chunk, {"sum": chunk.nansum, "numel": reductions.nannumel, "dtype": "f8"}),
    (moments.moment_chunk, {"order": 3, "dtype": "f8"}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FIRST)))
@pytest.mark.parametrize("axis", [(0,), (1,), (0, 2), (0, 1, 2), (2,)])
def test_reductions_along_all_axes(number: int, axis: tuple[int, ...]) -> None:
    function, options = FIRST[number]
    calls: list[Call] = [
        (operator.mul, ("0", 0.5), {}), (np.add, ("1", "0"), {}),
        (function, ("2",), {"axis": axis, "keepdims": True, **options}),
    ]  # fmt: skip
    assert on_blocks(calls, [VALUES])
    # With what there are fewer positions of, and with the elements that are wanted, too.
    calls = [
        (operator.sub, ("0", "1"), {}), (operator.mul, ("2", "1"), {}),
        (function, ("3",), {"axis": axis, "keepdims": True, **options}),
    ]  # fmt: skip
    for shape in [(), (4,), (8, 1), (300, 1, 1), (300, 8, 4), (1, 8, 4)]:
        other = np.random.default_rng(1).normal(size=shape)
        assert on_blocks(calls, [VALUES, other])
        assert on_blocks(calls, [VALUES, other], (3, 4))


def test_comparisons_and_several_reductions() -> None:
    along: dict[str, Any] = {"axis": (0,), "keepdims": True}
    calls: list[Call] = [
        (operator.sub, ("0", 3), {}), (operator.truediv, ("1", 4.0), {}),
        (chunk.sum, ("2",), {**along, "dtype": "f8"}), (operator.gt, ("0", 0.1), {}),
        (chunk.any, ("4",), along), (np.where, ("4", "0", "2"), {}),
        (reductions.chunk_max, ("6",), along),
    ]  # fmt: skip
    assert on_blocks(calls, [VALUES], (3, 5, 7))
    # Where one takes what another one leaves, blocks are along another axis.
    calls += [(operator.sub, ("0", "3"), {}), (chunk.sum, ("8",), along)]
    assert on_blocks(calls, [VALUES], (3, 5, 7, 9))
    assert not on_blocks(calls, [VALUES[:, 0, 0].repeat(10)], (3, 5, 7, 9))


def test_windows_along_another_axis() -> None:
    mean: dict[str, Any] = {"axis": (3,), "keepdims": True, "dtype": "f8"}
    calls: list[Call] = [
        (sliding_window_view, ("0",), {"window_shape": 30, "axis": 0}),
        (operator.mul, ("2", "1"), {}), (reductions.mean_chunk, ("3",), mean),
    ]  # fmt: skip
    assert on_blocks(calls, [VALUES, np.linspace(0.1, 1, 30)])
    calls[0] = (sliding_window_view, ("0",), {"window_shape": (3, 3, 3)})
    assert not on_blocks(calls, [VALUES, np.ones(3)])


def test_operands_with_more_axes_than_the_largest() -> None:
    ends = {"axis": (0,), "keepdims": True, "dtype": "f8"}
    weights = np.array([[1.0], [2.0], [3.0]])
    for length in (1 << 12, (1 << 12) + 5):
        x = np.random.default_rng(0).random(length)
        calls: list[Call] = [(np.multiply, ("0", "1"), {}), (chunk.sum, ("2",), ends)]
        assert on_blocks(calls, [x, weights])
        on_blocks(calls, [x, weights], (2, 3))
        on_blocks([*calls, (np.add, ("0", 2.0), {})], [x, weights], (2, 3, 4))


def test_new_axes_of_operands() -> None:
    """Their stride is 0, of a length of 1; no element is at several places."""
    rows = VALUES.reshape(-1, 16)
    calls: list[Call] = [
        (operator.sub, ("0", "1"), {}), (operator.mul, ("2", "2"), {}),
        (chunk.sum, ("3",), {"axis": (1,), "keepdims": True}),
    ]  # fmt: skip
    assert on_blocks(calls, [rows[None], rows])
    assert on_blocks(calls, [rows[None], rows], (3, 4))
    assert on_blocks(calls[:2], [rows[None], rows[None]])


def test_runs_that_follow_each_other() -> None:
    """What is known of the results of one run is of no effect on others, nor is their memory."""
    calls: list[Call] = [
        (operator.mul, ("0", "1"), {}), (np.add, ("2", "0"), {}), (operator.truediv, ("3", 3), {}),
    ]  # fmt: skip
    steps, outputs = steps_of(calls, 2), (3, 4)
    ((_, made),) = parts(steps, outputs)
    assert made is not None
    inputs = [
        (x.astype(dtype), other) for dtype in ("f8", "f4", "i4", "f4")
        for other in (2, 2.0, np.float32(2), np.float64(2), np.arange(3.0))
        for x in (np.arange(3000).reshape(-1, 3), np.arange(3600).reshape(-1, 3),
                  np.arange(4200).reshape(-1, 7, 3))
    ]  # fmt: skip
    pairs = []
    for x, other in inputs + inputs[::-1]:
        for _ in range(2):
            expected, found = ([x, other, None, None, None] for _ in range(2))
            call_each(steps, last_uses([s.registers for _, s in steps], set(outputs)), expected)
            assert made.run(found)
            pairs += [(found[k], expected[k]) for k in outputs]
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_what_is_refused() -> None:
    ends: Call = (chunk.sum, ("1",), {"axis": (0,), "keepdims": True, "dtype": "f8"})
    chain: list[Call] = [(operator.mul, ("0", 0.5), {}), ends]
    assert on_blocks(chain, [VALUES])
    for values in [VALUES.T, VALUES[:8], VALUES.astype("f2"), VALUES.astype(object),
                   np.ma.masked_array(VALUES)]:  # fmt: skip
        assert not on_blocks(chain, [values])
    own = {"axis": (0,), "keepdims": True, "initial": 3.0}
    assert not on_blocks([chain[0], (chunk.sum, ("1",), own)], [VALUES])
    # Nothing is between.
    assert not on_blocks([(chunk.sum, ("0",), ends[2])], [VALUES])
    assert on_blocks([(moments.moment_chunk, ("0",), ends[2])], [VALUES])


def test_errors_are_those_of_whole_chunks() -> None:
    ends = {"axis": (0,), "keepdims": True, "dtype": "f8"}
    calls: list[Call] = [(operator.truediv, (1.0, "0"), {}), (chunk.sum, ("1",), ends)]
    steps = steps_of(calls, 1)
    ((_, made),) = parts(steps, (2,))
    assert not made.run([np.zeros_like(VALUES), None, None])
    assert made.reported


def test_the_first_error_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    block = blocks._Run._block
    monkeypatch.setattr(blocks._Run, "_block", lambda *args: (begun.append(1), block(*args))[1])
    steps = steps_of([(operator.truediv, (1.0, "0"), {}), (operator.neg, ("1",), {})], 1)
    ((_, made),) = parts(steps, (2,))
    assert not made.run([np.zeros_like(VALUES), None, None])
    assert len(begun) == 1
    assert made.reported


@given(st.data())
def test_any_calls(drawn: st.DataObject) -> None:
    draw = drawn.draw
    shape = draw(st.sampled_from([(2200,), (300, 7), (7, 300), (40, 9, 6), (3, 40, 20)]))
    dtype = draw(st.sampled_from(["f8", "f4", "i4", "c16", "?"]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = rng.integers(-9, 9, shape).astype(dtype)
    inputs = [values]
    for _ in range(draw(st.integers(0, 2))):
        other = tuple(draw(st.sampled_from([1, n])) for n in shape)
        longer = *draw(st.sampled_from([(), (), (3,), (3, 1), shape[:1]])), *other
        other = longer[draw(st.integers(0, len(longer))) :]
        inputs.append(rng.integers(-9, 9, other).astype("f4"))
    calls: list[Call] = []
    values_of: dict[Any, Any] = {str(k): value for k, value in enumerate(inputs)}
    arrays = list(values_of)
    for _ in range(draw(st.integers(1, 5))):
        number = str(len(inputs) + len(calls))
        if calls and draw(st.booleans()):
            first = draw(st.sampled_from([chunk.sum, chunk.any, reductions.mean_chunk]))
            given = draw(st.sampled_from([k for k in arrays if np.ndim(values_of[k])]))
            last = np.ndim(values_of[given]) - 1
            axes = draw(st.sets(st.integers(0, last), min_size=1))
            options: dict[str, Any] = {"axis": tuple(sorted(axes)), "keepdims": True}
            if first is reductions.mean_chunk:
                options["dtype"] = "c16" if dtype == "c16" else "f8"
            calls.append((first, (given,), options))
        else:
            pair = draw(st.sampled_from(arrays)), draw(st.sampled_from([*arrays, 2]))
            calls.append((draw(st.sampled_from([operator.mul, np.add, np.maximum])), pair, {}))
            arrays.append(number)
            values_of[number] = np.broadcast(*(values_of.get(k, k) for k in pair))
    first, count = len(inputs), len(calls)
    outputs = draw(st.sets(st.integers(first, first + count - 1)))
    with np.errstate(all="ignore"):
        on_blocks(calls, inputs, tuple(sorted({*outputs, first + count - 1})))


@pytest.mark.parametrize(
    ("shape", "along"), [((40, 8, 160), 1), ((400, 8, 1), 0), ((40, 8, 40), 0), ((8, 40, 160), 1)]
)
def test_blocks_of_few_rows_are_along_an_axis_that_is_kept(
    shape: tuple[int, ...], along: int
) -> None:
    """What is left of a block of a few rows is to be joined with what is left of others."""
    x = np.random.default_rng(0).random(shape)
    calls: list[Call] = [(np.subtract, ("0", "0"), {}),
                         (chunk.sum, ("1",), {"axis": (0,), "keepdims": True})]  # fmt: skip
    found = division.Division.of(steps_of(calls, 1), (2,), {0: x})
    assert isinstance(found, division.Division)
    assert found.length == shape[along]
    assert (2 in found.ends) is (along == 0)
    assert on_blocks(calls, [x])


@pytest.mark.parametrize(
    ("ends", "length", "along"),
    [([chunk.max], 400, 0), ([chunk.max], 2000, 1), ([chunk.max, reductions.mean_chunk], 400, 0),
     ([chunk.max] * 3, 400, 1), ([reductions.moment_chunk], 400, 1)],
)  # fmt: skip
def test_rows_that_are_reduced_suffice_for_what_is_joined(
    ends: list[Any], length: int, along: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of eight rows: long runs of memory, but the more to join the more there is left."""
    monkeypatch.setattr(division, "TILE", 1 << 15)
    x = np.random.default_rng(0).random((length, 4, 128))
    calls: list[Call] = [(np.subtract, ("0", "0"), {})]
    calls += [(end, ("1",), {"axis": (0,), "keepdims": True}) for end in ends]
    outputs = tuple(range(2, 2 + len(ends)))
    found = division.Division.of(steps_of(calls, 1), outputs, {0: x})
    assert isinstance(found, division.Division)
    assert (found.length, found.rows) == ((length, 8), (4, 1))[along]
    assert on_blocks(calls, [x], outputs)


SELECTED = ["?", "i1", "u2", "f2", "i4", "f4", "i8", "u8", "f8", "g", "F", "D"]


@pytest.mark.parametrize("dtype", SELECTED)
@pytest.mark.parametrize("other", [*SELECTED, "number", "broadcast", "strided"])
def test_what_a_condition_selects_has_the_same_bits(dtype: str, other: str) -> None:
    """Any bits: also NaN of any payload, -0.0, and what arithmetic would change."""
    random = np.random.default_rng([SELECTED.index(dtype), len(other)])

    def drawn(dtype: str, shape: tuple[int, ...] = (20, 30)) -> np.ndarray:
        kind = np.dtype(dtype)
        if kind.kind == "b" or kind.itemsize > 8:
            return random.integers(-2, 2, shape).astype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        return np.frombuffer(random.bytes(size), dtype).reshape(shape)

    one = drawn(dtype)
    two: Any
    match other:
        case "number":
            two = 1
        case "broadcast":
            two = one[:, :1]
        case "strided":
            two = drawn(dtype, (30, 20)).T
        case _:
            two = drawn(other)
    places = random.random((20, 30))
    for condition in (places < 0.5, places[0] < 0.5, places, np.True_, False):
        for operands in ((one, two), (two, one)):
            with np.errstate(all="ignore"):
                expected = np.where(condition, *operands)
                found = np.empty_like(expected)
                assert blocks.into(np.where)(condition, *operands, out=found) is found
            # What is beside the ten bytes of a long double is nobody's.
            if expected.dtype.char in "gG":
                np.testing.assert_array_equal(found, expected)
            else:
                assert found.tobytes() == expected.tobytes()


def test_blocks_of_windows_are_along_an_axis_with_long_runs_of_memory() -> None:
    x = np.zeros((1125, 20, 240), "f4")
    calls: list[Call] = [(sliding_window_view, ("0",), {"window_shape": 30, "axis": 0}),
                         (chunk.sum, ("1",), {"axis": (3,), "keepdims": True})]  # fmt: skip
    found = division.Division.of(steps_of(calls, 1), (2,), {0: x})
    assert isinstance(found, division.Division)
    assert (found.axes[0], found.rows) == (1, 1)


def test_whole_chunks_need_no_more_memory_than_their_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(division, "TILE", 1 << 17)
    values = np.random.default_rng(0).random((20000, 50))
    pieces = da.from_array(values, chunks=(10000, 50)).rechunk({0: 500})
    found = ((pieces - 3) / (pieces + 1) + pieces * pieces).sum(axis=0)

    def peak() -> tuple[Any, int]:
        with dask.config.set({"scheduler": "sync", "gpusched.fusion.compile": "off"}):
            found.compute()
            tracemalloc.start()
            result = found.compute()
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return result, most

    with gpusched.enable():
        result, ours = peak()
    with gpusched.disable():
        expected, plain = peak()
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    assert ours < max(plain, values.nbytes // 4)


@pytest.mark.parametrize("call", ["one_by_one", "on_blocks"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "c16"])
def test_errors_of_windows_are_reported_in_little_memory(call: str, dtype: str) -> None:
    x = np.ones((400, 500), dtype)
    x[7, 7] = np.inf
    steps = steps_of(WINDOWS, 1)
    expected = [x, *[None] * len(steps)]
    with np.errstate(all="ignore"):
        call_each(steps, last_uses([s.registers for _, s in steps], {4}), expected)
    found = [x, *[None] * len(steps)]
    with np.errstate(all="ignore"):  # What is imported at the first call takes memory, too.
        getattr(Calling(steps, [], {0, 4}, (4,)), call)([*found])
    calling = Calling(steps, [], {0, 4}, (4,))
    tracemalloc.start()
    with pytest.warns(RuntimeWarning, match="invalid value encountered in subtract"):
        getattr(calling, call)(found)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_same(found[4], expected[4])
    assert most < 5 * x.nbytes


@pytest.mark.parametrize("call", ["one_by_one", "on_blocks"])
def test_what_windows_raise_is_raised(call: str) -> None:
    x = np.ones((400, 500))
    x[7, 7] = np.inf
    steps = steps_of(WINDOWS, 1)
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="subtract"):
        getattr(Calling(steps, [], {0, 4}, (4,)), call)([x, *[None] * len(steps)])


def test_axes_that_are_counted_from_the_end_are_no_first_step() -> None:
    calls = [(np.multiply, ("0", 2.0), {}), (np.sum, ("1",), {"axis": (-2,), "keepdims": True})]
    assert not on_blocks(calls, [VALUES.reshape(300, 32)])


def test_conversions_of_complex_numbers_warn_once() -> None:
    x = np.ones((3000, 8), complex)
    calls = [(np.multiply, ("0", 2.0), {}), (chunk.sum, ("1",), {"axis": (0,), "keepdims": True})]
    assert not on_blocks(calls, [x])
    calls = [(np.multiply, ("0", 2j), {}), (chunk.sum, ("1",), {"axis": (0,), "keepdims": True,
                                                               "dtype": "f8"})]  # fmt: skip
    with pytest.warns(np.exceptions.ComplexWarning) as found:
        assert not on_blocks(calls, [x.real])
    assert len(found) == 1


def test_windows_that_others_need_are_a_view() -> None:
    assert on_blocks(WINDOWS, [np.ones((400, 50))])
    assert not on_blocks(WINDOWS, [np.ones((400, 50))], (1, 4))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("axis", [1, 2])
def test_moments_of_blocks_some_of_which_are_not_finite(bad: float, axis: int) -> None:
    x = np.random.default_rng(3).normal(size=(400, 50, 8))
    x[300:, 7] = bad
    options = {"axis": (axis,), "keepdims": True, "dtype": "f8", "numel": reductions.numel}
    calls: list[Call] = [
        (np.multiply, ("0", 2.0), {}), (moments.moment_chunk, ("1",), {**options, "sum": chunk.sum})
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        assert on_blocks(calls, [x])


def test_blocks_without_numbers_beside_infinite_ones() -> None:
    x = np.random.default_rng(0).normal(size=(40, 300))
    options = {"axis": (0,), "keepdims": True, "dtype": "f8", "numel": reductions.nannumel}
    calls: list[Call] = [
        (np.multiply, ("0", 2.0), {}),
        (moments.moment_chunk, ("1",), {**options, "sum": chunk.nansum}),
    ]  # fmt: skip
    x = np.concatenate([np.full_like(x, np.nan), x])
    with np.errstate(all="ignore"):
        assert on_blocks(calls, [x[40:]])
        x[50, 9] = np.inf
        assert not on_blocks(calls, [x])


@pytest.mark.parametrize("x", [np.ones((40, 50)), np.asfortranarray(np.ones((400, 50)))])
def test_windows_of_small_arrays_and_in_any_order_run_on_blocks(x: np.ndarray) -> None:
    calls: list[Call] = [
        (sliding_window_view, ("0", 30, 0), {}), (np.multiply, ("1", 2.0), {}),
        (chunk.sum, ("2",), {"axis": (2,), "keepdims": True}),
    ]  # fmt: skip
    steps = steps_of(calls, 1)
    expected = [x, *[None] * len(steps)]
    call_each(steps, last_uses([s.registers for _, s in steps], {3}), expected)
    found = [x, *[None] * len(steps)]
    ((_, blocks),) = parts(steps, (3,))
    assert blocks.run(found)
    np.testing.assert_array_equal(found[3], expected[3])
