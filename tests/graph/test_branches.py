"""Users' functions that go one way or another by what a chunk holds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.graph import fusible
from gpusched.graph.running.segment import OTHER_WAYS, WAYS, Segment
from gpusched.plan.plan import Plan

from .examining import why_unsafe
from .mapping import compare, mapped

pytestmark = pytest.mark.usefixtures("everything_fused", "no_compiler")

SHAPE = 3, 4


def chunk(value: float = 0.5, *others: float) -> np.ndarray:
    found = np.full(SHAPE, value)
    found.flat[: len(others)] = others
    return found


def skips_nan(x: Any) -> Any:
    if np.isnan(x).any():
        x = x.copy()
        x[np.isnan(x)] = 0
    return x * 2 + 1


def both(x: Any) -> Any:
    return x + 1 if x.min() > 0 and x.max() < 1 else x * 3


def either(x: Any) -> Any:
    return x + 1 if np.isnan(x).any() or np.isinf(x).any() else x * 3


def not_all(x: Any) -> Any:
    return x + 1 if not (x > 0).all() else x * 3


def between(x: Any) -> Any:
    return x + 1 if 0 < x.max() < 1 else x * 3


def by_bool(x: Any) -> Any:
    positive = bool((x > 0).all())
    return (x + 1) * (3 if positive else 2)


def by_a_count(x: Any) -> Any:
    return x + 1 if (x > 0.25).sum() > 5 else x * 3


def by_an_element(x: Any) -> Any:
    return x + 1 if x[0, 0] > 0 else x * 3


def by_what_is_computed(x: Any) -> Any:
    y = (x - 0.25) * 2
    return y / 3 if (y.max() - y.min()) > 1 else -y


def made(text: str) -> Any:
    """Return the function of a text, whose assertions pytest does not write in another way."""
    names: dict[str, Any] = {"np": np, "__name__": __name__}
    exec(text, names)
    return names["f"]


asserts = made("""
def f(x):
    assert not np.isnan(x).any()
    return x * 2 + 1
""")


def complains(x: Any) -> Any:
    if (x < 0).any():
        raise ValueError("negative")
    return np.sqrt(x) + 1


def by_a_copy(x: Any) -> Any:
    y = x.copy()
    y -= 1
    return y * 2 if (y > 0).all() else y + 3


def by_numpys_copy(x: Any) -> Any:
    return x + 1 if (np.copy(x) > 0).all() else x * 3


FUNCTIONS = [skips_nan, both, either, not_all, between, by_bool, by_a_count, by_an_element,
             by_what_is_computed, by_a_copy, by_numpys_copy, asserts, complains]  # fmt: skip

CHUNKS = {
    "alike": [chunk()] * 3,
    "nan": [chunk(), chunk(0.5, np.nan), chunk(), chunk(0.5, 0.25, np.nan)],
    "infinite": [chunk(np.inf), chunk(0.5, -np.inf), chunk(2.0)],
    "zeros": [chunk(-0.0), chunk(0.0), chunk(0.5, -0.0)],
    "negative": [chunk(), chunk(-1.0), chunk(2.0), chunk(-3.0, 1.0)],
    "empty": [np.empty((0, 4))],
    "one": [np.full((1, 1), 0.5), np.full((1, 1), -0.5), np.full((1, 1), np.nan)],
    "float32": [chunk().astype("f4"), chunk(-1.0).astype("f4")],
    "big-endian": [chunk().astype(">f8"), chunk(-1.0).astype(">f8")],
    "integers": [np.arange(12).reshape(SHAPE), np.arange(12).reshape(SHAPE) - 5],
    "bool": [np.eye(3, 4, dtype=bool), np.ones(SHAPE, bool)],
    "complex": [chunk() + 0j, chunk() - 1j],
    "object": [chunk().astype(object), chunk(-1.0).astype(object)],
}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_chunk_goes_its_own_way(function: Any, chunks: list[np.ndarray]) -> None:
    assert why_unsafe(function) is None
    compare(function, *chunks)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_they_are_fused(function: Any) -> None:
    counts = compare(function, chunk(), chunk(0.75), chunk(0.625))
    assert not counts.breaks
    assert counts.fused_tasks == 3
    assert sum(counts.recorded.values()) <= 1, "none where an earlier test has recorded it"


def test_there_is_a_plan_for_each_way() -> None:
    def new(x: Any) -> Any:  # No earlier test has recorded it.
        return skips_nan(x)

    chunks = [chunk(), chunk(0.5, np.nan)] * 5
    counts = compare(new, *chunks)
    assert counts.fused_tasks == len(chunks)
    assert sum(counts.recorded.values()) == 2


def test_plans_that_were_given_up_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = 2.0
    failed = False
    given_up: list[Any] = []
    segments: list[Segment] = []
    replayed, run = Segment._replayed, Plan.run

    def function(x: Any) -> Any:
        return x * factor + (1 if (x > 0).all() else 2)

    def noted(segment: Segment, *args: Any) -> bool:
        segments.append(segment)
        return replayed(segment, *args)

    def ran(plan: Plan, *args: Any) -> Any:
        nonlocal factor, failed
        assert not any(plan is each for each in given_up)
        failed, before = True, failed
        result = run(plan, *args)
        failed = False
        if before and not given_up:  # As another thread's next task does while this one runs.
            found: list[Any] = segments[-1].remembered.values()
            given_up.extend(plan for plans in found for plan in plans.plans)
            factor = 3.0
            segments[-1].examined()
        return result

    monkeypatch.setattr(Segment, "_replayed", noted)
    monkeypatch.setattr(Plan, "run", ran)
    found = mapped(function, *[chunk(v) for v in (1.0, -1.0) * 4])
    assert isinstance(found, np.ndarray)
    assert len(given_up) == 2


def many_ways(x: Any) -> Any:
    y = x
    for k in range(WAYS + 2):
        if (x == k).any():
            y = y + k
    return y * 2


def test_there_are_few_plans() -> None:
    counts = compare(many_ways, *[chunk(float(k)) for k in range(WAYS + 2)])
    assert sum(counts.recorded.values()) == WAYS
    assert set(counts.breaks) == {("many_ways", OTHER_WAYS)}


def halves(x: Any) -> Any:
    while (x > 1).any():
        x = x / 2
    return x + 1


def test_loops_that_chunks_end_are_short() -> None:
    counts = compare(halves, chunk(0.5), chunk(4.0), chunk(6.0))
    assert counts.fused_tasks == 3
    counts = compare(halves, chunk(1e30), chunk(1e30))
    assert not counts.fused_tasks
    line = halves.__code__.co_firstlineno + 1
    told = f"your function decides by chunks more than 16 times (branch, line {line})"
    assert [reason for _, reason in counts.breaks] == [told]


@pytest.mark.parametrize("ask", [
    lambda x: x.sum() > 6,
    lambda x: x.mean() == 0.5,
    lambda x: np.exp(x).max() > 2,
    lambda x: x.std(axis=0)[0] == 0,
    lambda x: (x @ x.T)[0, 0] > 1,
    lambda x: (x.astype("c16") * 1j).imag.any(),
    lambda x: np.signbit(np.fmax(x, -x)).any(),
    lambda x: 1 / x.max() > 0,
])  # fmt: skip
def test_what_kernels_may_round_in_another_way_decides_nothing(ask: Any) -> None:
    def function(x: Any) -> Any:
        return x + 1 if ask(x) else x * 3

    counts = compare(function, chunk(), chunk(0.25))
    assert not counts.fused_tasks
    line = function.__code__.co_firstlineno + 1
    told = f"decides by a number that kernels may round in another way (branch, line {line})"
    assert told in str(counts.breaks)


@pytest.mark.parametrize("ask", [
    lambda x: np.sign(x - 0.25).sum() > 0,
    lambda x: np.sign(x).sum(axis=0)[1] - np.sign(x[1:] - x[:-1]).sum() > 1,
    lambda x: np.where(x > 0.25, 1.0, -2.0).sum() > 3,
    lambda x: (x > 0.25).astype(x.dtype).sum() == 12,
    lambda x: np.abs(-np.sign(x)).sum() > 11,
    lambda x: (x * 3).astype("i2").astype(float).sum() > 2,
])  # fmt: skip
def test_sums_of_integers_decide(ask: Any) -> None:
    def function(x: Any) -> Any:
        return x + 1 if ask(x) else x * 3

    chunks = chunk(), chunk(0.125, -0.5, np.nan), chunk(-0.0, 0.0), chunk(0.75, -1), chunk(np.inf)
    for dtype in ("f8", "f4"):
        counts = compare(function, *(each.astype(dtype) for each in chunks))
        assert "may round in another way" not in str(counts.breaks)


@pytest.mark.parametrize("ask", [
    lambda x: np.where(x > 0.25, 1.5, -2.0).sum() > 3,
    lambda x: np.where(x > 0.25, 2.0**52, -2.0).sum() > 3,
    lambda x: (x * 3).astype("i8").astype(float).sum() > 2,
    lambda x: np.signbit(np.sign(x).sum()),
    lambda x: (np.sign(x) * x).sum() > 1,
])  # fmt: skip
def test_other_sums_do_not(ask: Any) -> None:
    def function(x: Any) -> Any:
        return x + 1 if ask(x) else x * 3

    counts = compare(function, chunk(), chunk(0.25))
    assert not counts.fused_tasks


def ignores(ask: Any) -> Any:
    """Return a question that is asked where errors are ignored."""

    def asked(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return ask(x)

    return asked


@pytest.mark.parametrize("ask", [
    lambda x: np.signbit(x.max()),
    lambda x: np.signbit(x.max(axis=0))[3],
    lambda x: ignores(lambda x: 1 / x.min())(x) > 0,
    lambda x: np.copysign(1.0, np.fmax.reduce(x, axis=1)).max() > 0,
    lambda x: np.signbit(np.clip(x, -0.0, 0.0)).any(),
    lambda x: np.signbit(x * x[::-1]).all(),
    lambda x: np.signbit(-np.where(x > 0, x.min(), 1.0)).any(),
    lambda x: ignores(lambda x: (x * 1e10).astype("u4"))(x).max() > 5,
])  # fmt: skip
def test_nor_does_what_shows_signs_and_numbers_beyond_a_dtype(ask: Any) -> None:
    def function(x: Any) -> Any:
        return x + 1 if ask(x) else x * 3

    rng = np.random.default_rng(7)
    for palette in ((-0.0, 0.0), (-np.nan, np.nan), (-9.0, 9.0)):
        chunks = [rng.choice(palette, (7, 37)) for _ in range(4)]
        with np.errstate(all="ignore"):
            assert not compare(function, *chunks).fused_tasks


def test_quotients_of_what_has_numpys_zeros_decide() -> None:
    def function(x: Any) -> Any:
        return x + 1 if (1 / (x * 2 + 1) > 0).all() else x * 3

    chunks = [chunk(-0.0), chunk(0.0), chunk(0.0, -0.0), chunk(np.nan), chunk(-np.nan), chunk(-1.0)]
    assert compare(function, *chunks).fused_tasks == len(chunks)


def test_nor_do_answers_of_fast_kernels() -> None:
    with gpusched.enable(mathematics="fast"):
        assert not compare(both, chunk(), chunk(0.25)).fused_tasks
    assert compare(both, chunk(), chunk(0.25)).fused_tasks == 2


def test_marked_functions_are_recorded_for_each_chunk() -> None:
    seen: list[Any] = []

    @fusible
    def function(x: Any) -> Any:
        seen.append(None)
        return x + 1 if x.sum() > 6 else x * 3

    counts = compare(function, chunk(), chunk(0.25))
    assert counts.fused_tasks == 2
    assert sum(counts.recorded.values()) == 2


def takes_if_it_can(x: Any) -> Any:
    indices = (x * 8).astype(np.int64)[0]
    if (indices < 12).all():
        return np.take(np.ravel(x), indices) + x
    return x * 3


def test_nothing_fails_that_another_way_does_without() -> None:
    assert compare(takes_if_it_can, chunk(0.5), chunk(0.25), chunk(9.0)).fused_tasks


def divides_if_it_can(x: Any) -> Any:
    y = 1 / x
    return y if (x != 0).all() else x + 1


@pytest.mark.parametrize("errors", ["warn", "raise"])
def test_errors_are_of_the_way_that_a_chunk_goes(errors: Any) -> None:
    with np.errstate(all=errors):
        compare(divides_if_it_can, chunk(0.5), chunk(0.0), chunk(2.0))


def test_others_warnings_are_not_seen() -> None:
    def function(x: Any) -> Any:
        return 1 / (x - 1) if (x > 1).all() else x + 1

    x = da.from_array(np.concatenate([chunk(2.0), chunk(1.0), chunk(3.0)]), chunks=SHAPE)
    with warnings.catch_warnings(action="error"):
        x.map_blocks(function, dtype=float).compute(scheduler="sync")


ASKS = (
    "np.isnan(x).any()", "(x > 0).all()", "not (x < 1).any()", "x.min() < -1 or x.max() > 2",
    "0 < x.max() < 3", "np.isinf(y).any() and np.isnan(x).any()", "bool((y == 0).any())",
    "(y > 0).sum() > 3", "y[0, 0] > 0", "(y * 2 - 1 > 0).all()", "np.signbit(y).any()",
    "x.size and y[-1, -1] < 0", "np.all(np.isfinite(y))", "(y[1:] == y[:-1]).any()",
)  # fmt: skip
STEPS = (
    "y = x + 1", "y = np.where(np.isnan(y), 0, y)", "y = y.copy(); y[y < 0] = 7", "y = x * 2 - y",
    "y = y / 3", "x = y", "y = np.abs(y)", "y = y - y.max() - 1", "return y * 2",
    "y = y.copy(); y[0] = 1", "y = np.maximum(x, y)",
)  # fmt: skip
"""Of the largest zero, NumPy's sign depends on where the array is in memory: one less has none."""
NUMBERS = -1.5, 0.0, -0.0, 0.25, 1.0, 2.0, np.nan, np.inf, -np.inf


def program(rng: np.random.Generator) -> Any:
    """Return a random function, with branches in branches."""

    def block(depth: int, indent: str) -> Iterator[str]:
        for _ in range(int(rng.integers(1, 4))):
            if depth and rng.random() < 0.5:
                yield f"{indent}if {ASKS[rng.integers(len(ASKS))]}:"
                yield from block(depth - 1, indent + "    ")
                if rng.random() < 0.5:
                    yield f"{indent}else:"
                    yield from block(depth - 1, indent + "    ")
            else:
                yield indent + STEPS[rng.integers(len(STEPS))]

    return made("\n".join(["def f(x):", "    y = x", *block(2, "    "), "    return x + y"]))


@pytest.mark.parametrize("seed", range(24))
def test_random_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(4):
        palettes = [rng.choice(NUMBERS, rng.integers(1, 4)) for _ in range(3)]
        chunks = [rng.choice(palettes[rng.integers(3)], SHAPE) for _ in range(6)]
        compare(program(rng), *[c.astype(rng.choice(["f4", "f8"])) for c in chunks])
