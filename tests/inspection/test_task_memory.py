"""The memory that an explanation says a task needs is what is then allocated, within a tenth."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched import explain
from gpusched.inspection.units import bytes_

from .allocation import Allocated, allocated, kernels_that_do_nothing
from .programs import numbers, ranked, slope, sorted_rows

MIB = 1 << 20
ROWS = 256


def wide(seed: int = 0, dtype: str = "float64", chunks: Any = 512) -> da.Array:
    """Return two chunks of a MiB of float64."""
    return numbers((ROWS, 1024), chunks, dtype, seed)


def softmax(block: Any) -> Any:
    exponents = np.exp(block - block.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


@gpusched.kernel
def escapes(x: float, y: float) -> float:
    count = 0.0
    while x * x + y * y < 4 and count < 5:
        x, y = x * x - y * y, 2 * x * y
        count += 1
    return count


@gpusched.kernel
def polar(x: float, y: float) -> tuple[float, float]:
    return np.sqrt(x * x + y * y), np.arctan2(y, x)


def _black_scholes() -> Any:
    spot, strike = wide(), wide(1)
    first = (da.log(spot / strike) + 0.5) / 0.3
    second = first - 0.3
    return spot * da.tanh(first) - strike * da.tanh(second)


def _gelu() -> Any:
    y = wide() @ numbers((1024, 512), 512, seed=1) + 1.5
    return (y * 0.5 * (1 + da.tanh(y * 0.79))).sum(axis=1)


def _standardised() -> Any:
    x = numbers((1024, 512), (512, 512))
    return (x - x.mean(axis=0)) / x.std(axis=0)


def _two_sorts() -> Any:
    x = wide()
    first = (x * 2 + 1).map_blocks(np.sort, axis=1)
    return (first + (x * 3 - 1).map_blocks(np.sort, axis=1)) * 2


def _sorted_again_and_again() -> Any:
    x = wide()
    for _ in range(4):
        x = (x * 2 + 1).map_blocks(np.sort, axis=1) * 3 - 1
    return x


def _several() -> Any:
    x = wide()
    shared = (x * 2 + 1) ** 2
    return [shared.sum(), shared.max(axis=0), shared - 1.5]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "chain": lambda: da.clip(((wide() + wide(1)) * wide() - wide()) / 2, 0.1, 0.7),
    "ten-operations": lambda: ((((wide() * 2 + 1) ** 2 - 3) / 7 + 2) * 3 - 1) * 2 + 1,
    "float32": lambda: da.exp(wide(dtype="float32")) * 2 - 7.5,
    "mixed-dtypes": lambda: ((wide() * 100).astype("int32") // 3 + 1).astype("float32"),
    "booleans": lambda: (wide() > 0.5) & (wide() < 0.7),
    "several-results": _several,
    "black-scholes": _black_scholes,
    "sum": lambda: (((wide() - 2) * 2) ** 2).sum(),
    "sum-axis-0": lambda: (((wide() - 2) * 2) ** 2).sum(axis=0),
    "sum-float32": lambda: (wide(dtype="float32") * 2 - 1).sum(axis=1),
    "variance": lambda: (wide() * 2 - 1).var(),
    "nanmax": lambda: da.nanmax(wide() * 2 - 1),
    "standardised": _standardised,
    "softmax": lambda: numbers((1024, 512), (512, 512)).map_blocks(softmax),
    "broadcast": lambda: (wide() - numbers((1024,), 512)) / 3,
    "outer": lambda: (numbers((1024, 1), (512, 1)) - numbers((1024,), 512)) ** 2,
    "transposed": lambda: (lambda x: x + x.T * 2)(numbers((1024, 1024), 512)),
    "sliced": lambda: (wide(chunks=(ROWS, 1024))[3:, ::2] + 1) * 2,
    "stacked": lambda: da.stack([wide(), wide(1)]) * 2 - 1,
    "rechunked": lambda: wide(chunks=(ROWS, 256)).rechunk((128, 1024)) * 2 + 1,
    "stencil": lambda: wide().map_overlap(slope, 1, boundary="reflect", trim=False) * 2,
    "random": lambda: da.random.default_rng(0).random((512, 1024), chunks=512) * 2 - 1,
    "created": lambda: (da.ones((512, 1024), chunks=512) + da.arange(1024, chunks=512)) * 2.5,
    "matmul": _gelu,
    "user-kernel": lambda: escapes(wide() * 3 - 2, wide(1) * 2 - 1) + 1,
    "user-kernel-of-two": lambda: (lambda r, phi: r * 2 + phi)(*polar(wide(), wide(1))),
    "numpy-between": lambda: (wide() * 2 + 1).map_blocks(np.sort, axis=1) * 2 - 1,
    "two-sorts": _two_sorts,
    "sorted-again-and-again": _sorted_again_and_again,
    "asked-for": lambda: (wide() * 2 + 1).map_blocks(ranked),
    "complex": lambda: (wide() * 2 + 1).astype("complex128") * 2,
    "longdouble": lambda: (wide() * 2 + 1).astype(np.longdouble) * 2,
}


def large(found: list[Allocated]) -> list[Allocated]:
    """Return the kinds of tasks whose memory is not that of Python's own objects."""
    return [each for each in found if max(each.fused, each.plain) >= MIB]


@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_is_predicted_and_never_more_than_plain_dask_needs(name: str) -> None:
    with kernels_that_do_nothing():
        found = large(allocated(PROGRAMS[name]()))
    assert found
    for each in found:
        assert each.predicted.peak_known
        assert each.predicted.peak == pytest.approx(each.fused, rel=0.1)
        assert each.predicted.unfused_peak <= each.plain * 1.02
        # A dtype without kernels in the midst of a chain has it recorded anew for each task.
        if name != "longdouble":
            assert each.fused <= each.plain * 1.01


@pytest.mark.parametrize("name", ["chain", "sum-axis-0", "stencil"])
def test_compiled_kernels_allocate_nothing_besides(name: str) -> None:
    for each in large(allocated(PROGRAMS[name]())):
        assert each.predicted.peak == pytest.approx(each.fused, rel=0.1)


def test_what_a_function_needs_besides_is_not_known() -> None:
    program = (wide() * 2 + 1).map_blocks(sorted_rows) * 3 - 1
    with kernels_that_do_nothing():
        (found,) = large(allocated(program))
    assert not found.predicted.peak_known
    assert found.predicted.peak <= found.fused * 1.01
    assert "of memory or more" in explain(program).text()


def test_ten_operations_need_input_and_result() -> None:
    found = explain(PROGRAMS["ten-operations"]())
    assert found.totals.peak == 2 * ROWS * 512 * 8
    assert found.totals.peak_unfused == 3 * ROWS * 512 * 8
    assert found.totals.peak_exact and found.totals.peak_unfused_exact
    told = f"{bytes_(found.totals.peak)} of memory at most"
    assert told in found.text() and "3.00 MiB in plain dask" in found.text()


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "scale": lambda x, y: x * 2 + 1,
    "exp": lambda x, y: da.exp(x) - y,
    "where": lambda x, y: da.where(x > y, x, y),
    "narrow": lambda x, y: (x * y).astype("float32"),
    "sort": lambda x, y: x.map_blocks(np.sort, axis=1),
    "sort-other": lambda x, y: y.map_blocks(np.sort, axis=1),
    "centre": lambda x, y: x - y[:1],
}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=9,
    ),
    chunks=st.sampled_from([(ROWS, 512), (ROWS, 1024)]),
)
def test_memory_of_any_chain_is_predicted(steps: list[Any], chunks: tuple[int, int]) -> None:
    arrays = [wide(chunks=chunks), wide(1, chunks=chunks)]
    for name, first, second in steps:
        x, y = arrays[first % len(arrays)], arrays[second % len(arrays)]
        arrays.append(OPERATIONS[name](x, y))
    with kernels_that_do_nothing():
        for each in large(allocated(arrays[-1])):
            assert each.predicted.peak == pytest.approx(each.fused, rel=0.1)
            assert each.fused <= each.plain * 1.01 + ROWS * 8


def test_lengths_that_depend_on_values_are_not_known() -> None:
    x = wide().ravel()
    found = explain(x[x > 0.5] * 2 + 1)
    assert not found.totals.peak_exact and not found.totals.peak_unfused_exact


CALLS = {
    "roll": "np.roll({a}, {k}, 0)",
    "roll-along": "np.roll({a}, {k}, 1)",
    "roll-axes": "np.roll({a}, ({k}, 1), (0, 1)) * {b}",
    "join": "np.concatenate([{a}, {b}], 1)[:, {k}:][:, : {a}.shape[1]]",
    "join-rows": "np.concatenate([{a}, {b}])[: {a}.shape[0]]",
    "repeat": "np.repeat({a}, 2, axis=1)[:, ::2] + {b}",
    "where": "np.where({a} > {b}, {a}, {b} * {k})",
    "add": "{a} + {b}",
    "scale": "{a} * {k} + 1",
    "compare": "({a} > {k}) * 1.0",
    "narrow": "{a}.astype('f4').astype('f8')",
    "turn": "{a}[::-1] + {b}",
    "turn-axes": "np.roll({a}.T, {k}, 0).T + {b}",
    "centre": "{a} - {b}.mean(axis=1, keepdims=True)",
    "share": "{a} / ({b}.sum(axis=0) + {k})",
    "total": "{a} + np.roll({b}, {k}, 1).sum()",
    "cumulate": "np.cumsum({a}, axis=1)",
}
"""Of values before, by name: calls that have no kernel, and what is computed beside them."""


def function_of(calls: list[tuple[str, int, bool, int]]) -> Callable[..., Any]:
    """Return a function whose variables are gone after their last use, as those of expressions."""
    named = ["x", "y"]
    made = []
    for name, back, swapped, k in calls:
        a, b = named[-1], named[-1 - back % min(3, len(named))]
        if swapped and "{b}" in CALLS[name]:
            a, b = b, a
        named.append(f"v{len(made)}")
        made.append(CALLS[name].format(a=a, b=b, k=k))
    lines = []
    for number, call in enumerate(made):
        later = " ".join(made[number + 1 :]).replace("(", " ").replace("[", " ")
        gone = [n for n in named[: number + 2] if not re.search(rf"\b{n}\b", later)]
        lines += [f"v{number} = {call}", *(f"{n} = None" for n in gone)]
    text = "\n    ".join(["def function(x, y):", *lines, f"return {named[-1]}"])
    names: dict[str, Any] = {"np": np}
    exec(text, names)
    function: Callable[..., Any] = names["function"]
    return function


CALLED = st.tuples(
    st.sampled_from(sorted(CALLS)), st.integers(0, 2), st.booleans(), st.integers(1, 40)
)


@given(calls=st.lists(CALLED, min_size=2, max_size=9), around=st.booleans())
def test_functions_hold_a_chunk_more_than_in_numpy_at_most(
    calls: list[tuple[str, int, bool, int]], around: bool
) -> None:
    program = da.map_blocks(function_of(calls), wide(), wide(1), dtype="f8")
    if around:
        program = (program * 2).map_blocks(np.roll, 3, axis=0) - program
    # Where errors are reported, what is not needed is computed as well.
    with kernels_that_do_nothing(), np.errstate(all="ignore"):
        for each in large(allocated(program)):
            assert each.fused <= each.plain + 1.02 * MIB
            if each.predicted.peak_known:
                assert each.predicted.peak == pytest.approx(each.fused, rel=0.1)


def life(x: Any) -> Any:
    moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    return sum(np.roll(x, move, (0, 1)) for move in moves)


def test_eight_rolls_are_read_where_they_are() -> None:
    with kernels_that_do_nothing():
        (found,) = large(allocated(wide().map_blocks(life, dtype="f8")))
    assert found.fused == pytest.approx(2 * MIB, rel=0.01)
    assert found.predicted.peak == 2 * MIB


def test_eight_copies_are_added_up_one_by_one() -> None:
    def copies(x: Any) -> Any:
        return sum(np.tile(x, (1, 1)) for _ in range(8))

    with kernels_that_do_nothing():
        (found,) = large(allocated(wide().map_blocks(copies, dtype="f8")))
    assert found.fused == pytest.approx(4 * MIB, rel=0.01)
    assert found.predicted.peak == 4 * MIB


def in_vain(x: Any) -> Any:
    np.roll(x, 1, 0)
    np.roll(x, 2, 0)
    return x * 2 + 1


def test_results_that_nobody_reads_are_gone_at_once() -> None:
    with kernels_that_do_nothing():
        (found,) = large(allocated(wide().map_blocks(in_vain, dtype="f8")))
    assert found.predicted.peak == 2 * MIB
    assert found.fused == pytest.approx(2 * MIB, rel=0.01)
