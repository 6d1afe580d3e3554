"""Users' functions run as what they call, with the bits, errors and layouts of the functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpusched
from gpusched.graph.running import calling, division
from gpusched.graph.running.calling import Unfused
from gpusched.store.statistics import reset_statistics, statistics

Function = Callable[..., Any]


@pytest.fixture(autouse=True, scope="module")
def without_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Never compile, and have tiles of so few elements that small chunks have several."""
    folder = tmp_path_factory.mktemp("kernels")
    settings = {"compile": "off", "cache-directory": str(folder), "minimum-elements": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "TILE", 1 << 12)
        with dask.config.set({f"gpusched.fusion.{k}": v for k, v in settings.items()}):
            yield


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Unfused, bool]]:
    """Return what segments have run in another order than that of the functions, and whether it
    went well."""
    found: list[tuple[Unfused, bool]] = []
    run = calling._tried

    def noted(order: Unfused, registers: Any) -> bool:
        found.append((order, run(order, registers)))
        return found[-1][1]

    monkeypatch.setattr(calling, "_tried", noted)
    return found


def inlined(tried: list[tuple[Unfused, bool]]) -> list[tuple[Unfused, bool]]:
    return [(order, well) for order, well in tried if order.more]


def values(dtype: str = "f8", shape: tuple[int, ...] = (64, 60)) -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, shape)
    return found.astype(dtype)


def both(make: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what dask computes, and what gpusched does, of equal graphs."""
    with gpusched.disable():
        plain = dask.compute(make(), scheduler="sync")[0]
    reset_statistics()
    with gpusched.enable():
        ours = dask.compute(make(), scheduler="sync")[0]
    return plain, ours


def check(function: Function, *arrays: np.ndarray, chunks: tuple[int, ...] = (32, 60)) -> Any:
    """Compare a function of chunks with plain dask, bit by bit; return its result."""
    given = [da.from_array(x, chunks=chunks) for x in arrays]
    plain, ours = both(lambda: da.map_blocks(function, *given, meta=np.empty((0, 0))))
    assert plain.dtype == ours.dtype and plain.strides == ours.strides
    assert plain.tobytes() == ours.tobytes()
    return ours


def shaded(z: np.ndarray, light: float) -> Any:
    east, north = z[1:-1, 2:] - z[1:-1, :-2], z[2:, 1:-1] - z[:-2, 1:-1]
    steep = np.sqrt(1 + east * east + north * north)
    return np.where(steep > 3, np.maximum(light - east, 0) / steep, north.astype("f4") * 2)


def test_calls_of_a_function_run_on_tiles(tried: list[Any]) -> None:
    check(lambda z: shaded(z, 0.5), values(shape=(130, 66)), chunks=(130, 66))
    ((order, well),) = inlined(tried)
    assert well and any(
        stretch is not None and len(stretch.steps) > 8 for _, stretch in order.parts
    )
    assert statistics().unfused_tasks == 1


def test_functions_of_one_chunk_compute_once_what_they_share(tried: list[Any]) -> None:
    x = da.from_array(values(), chunks=(64, 60))

    def first(a: Any) -> Any:
        return np.sin(np.exp(a / 100)) + 1

    def second(a: Any) -> Any:
        return np.cos(np.exp(a / 100)) * 2

    def make() -> Any:
        return da.map_blocks(first, x) - da.map_blocks(second, x)

    plain, ours = both(make)
    assert plain.tobytes() == ours.tobytes()
    ((order, well),) = inlined(tried)
    called = [step.function for _, step in order.steps]
    assert well and called.count(np.exp) == called.count(np.divide) == 1
    assert called.count(np.sin) == called.count(np.cos) == 1


def test_equal_results_are_arrays_of_their_own() -> None:
    x = da.from_array(values(), chunks=(64, 60))

    def first(a: Any) -> Any:
        return np.exp(a / 100)

    def second(a: Any) -> Any:
        return np.exp(a / 100)

    with gpusched.enable():
        one, other = dask.compute(
            da.map_blocks(first, x), da.map_blocks(second, x), scheduler="sync"
        )
    assert not np.may_share_memory(one, other)


def test_numbers_that_are_equal_but_no_others_are_told_apart() -> None:
    def signs(a: Any) -> Any:
        return np.copysign(a, 0.0) - np.copysign(a, -0.0) + (a * 1) / (a * True + a * 1.0)

    check(signs, values() + 1e-3)
    check(signs, (values("i4") | 1))


def _returned(a: Any) -> Any:
    return a


def _view(a: Any) -> Any:
    np.exp(-abs(a))
    return a[::-1]


def _updated(a: Any) -> Any:
    found = np.tanh(a)
    found += a
    return found * 2


def _summed(a: Any) -> Any:
    return a / np.sqrt(1 + a * a).sum(axis=1, keepdims=True)


def _unused(a: Any) -> Any:
    np.log(np.abs(a) + 1)
    return a * 2 + 1


ROW = values("f4", (60,))


def _scaled(a: Any) -> Any:
    return a * ROW + 1


@pytest.mark.parametrize("function", [_returned, _view, _updated, _summed, _unused, _scaled])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "c16"])
def test_other_functions_are_called_or_give_the_same(function: Function, dtype: str) -> None:
    if dtype == "c16" and function is _updated:
        pytest.skip("overflows")
    with np.errstate(all="ignore"):
        check(function, values(dtype))


@pytest.mark.parametrize("shape", [(64, 60), (1, 3000), (3000, 1), (40, 7), (0, 5), (2, 3)])
@pytest.mark.parametrize("layout", [
    lambda x: x, np.asfortranarray, lambda x: x[::-1], lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    lambda x: np.broadcast_to(x[:1], x.shape),
])  # fmt: skip
def test_layouts_give_the_bits_and_layouts_of_numpys(
    shape: tuple[int, ...], layout: Callable[[Any], Any]
) -> None:
    def function(a: Any) -> Any:
        return np.hypot(np.sin(a) * 3, a[...] - 1) + (a > 0)

    x = layout(values(shape=shape))
    array = dask.delayed(lambda: x, pure=False)()
    plain, ours = both(
        lambda: (
            da.from_delayed(array, shape, "f8")
            .map_blocks(function, dtype="f8")
            .map_blocks(
                lambda a: np.array([[*a.strides, a.sum()]]), chunks=((1,), (3,)), dtype="f8"
            )
        )
    )
    assert plain.tobytes() == ours.tobytes()


def reported(function: Function, x: np.ndarray, enabled: bool) -> list[Any]:
    """Return what a function of chunks warns of, or raises."""
    array = da.map_blocks(function, da.from_array(x, chunks=x.shape), dtype=x.dtype)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with gpusched.enable() if enabled else gpusched.disable():
            try:
                array.compute(scheduler="sync")
            except (FloatingPointError, ZeroDivisionError) as error:
                return [repr(error)]
    return [(str(each.message), each.filename) for each in found]


def _raises_within(a: Any) -> Any:
    with np.errstate(all="raise"):
        return np.log(a) + 1


def _ignores_within(a: Any) -> Any:
    with np.errstate(all="ignore"):
        b = np.log(a)
    return b + a / a


def _warns(a: Any) -> Any:
    return np.log(a) + 1 / a


def _warns_unused(a: Any) -> Any:
    np.log(a)
    return a * 2 + 1


def _of_numbers(a: Any) -> Any:
    return a * (np.float64(1) / np.float64(0)) + 1


@pytest.mark.parametrize("state", ["warn", "raise", "ignore"])
@pytest.mark.parametrize("function", [
    _raises_within, _ignores_within, _warns, _warns_unused, _of_numbers,
])  # fmt: skip
def test_floating_point_errors_are_those_of_the_functions(function: Function, state: Any) -> None:
    x = np.abs(values())
    x[5, 5] = 0
    with np.errstate(all=state):
        expected = reported(function, x, enabled=False)
        for _ in range(2):
            assert reported(function, x, enabled=True) == expected


UNARY = (np.negative, np.sqrt, np.exp, np.sin, np.floor, np.isnan, np.square, np.tanh, np.abs,
         lambda a: a.astype("f4"), lambda a: a[::-1], lambda a: a[:, ::-1], np.transpose,
         lambda a: a ** 2, lambda a: a ** 0.5, np.ravel, lambda a: a.reshape(a.shape),
         lambda a: np.clip(a, -1, 1), lambda a: a.sum(axis=0), lambda a: a[0])  # fmt: skip
BINARY = (np.add, np.multiply, np.subtract, np.maximum, np.hypot, np.arctan2, np.greater,
          np.fmin, lambda a, b: np.where(a > b, a, b), np.divide, np.power)  # fmt: skip

calls = st.lists(
    st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)),
    min_size=2, max_size=12,
)  # fmt: skip


def written(drawn: list[tuple[bool, int, int, int]]) -> Function:
    """Return a function that makes such calls, of what was computed so far or a number."""

    def function(*given: Any) -> Any:
        found = list(given)
        for binary, which, first, second in drawn:
            a = found[first % len(found)]
            if not binary:
                found.append(UNARY[which % len(UNARY)](a))
                continue
            other = (2, -0.0, 0.5, *found)[second % (len(found) + 3)]
            found.append(BINARY[which % len(BINARY)](a, other))
        return found[-1]

    return function


@given(drawn=st.lists(calls, min_size=1, max_size=3), dtype=st.sampled_from(["f8", "f4", "i8"]),
       shape=st.sampled_from([(48, 48), (50, 50), (1, 1), (33, 65)]))  # fmt: skip
def test_random_functions_give_the_bits_of_numpys(
    drawn: list[Any], dtype: str, shape: tuple[int, int]
) -> None:
    """Chunks of one task, so that functions share what they compute."""
    x, y = (da.from_array(values(dtype, shape) + k, chunks=shape) for k in range(2))
    functions = [written(each) for each in drawn]

    def outcome(enabled: bool) -> Any:
        with np.errstate(all="ignore"), gpusched.enable() if enabled else gpusched.disable():
            try:
                made = [da.map_blocks(gpusched.fusible(f), x, y, meta=np.empty((0, 0)))
                        for f in functions]  # fmt: skip
                arrays = dask.compute(*made, scheduler="sync", optimize_graph=True)
            except (TypeError, ValueError, IndexError):
                return None  # Of several functions that raise, either may come first.
        return [(a.dtype, a.shape, np.asarray(a).tobytes()) for a in arrays]

    assert outcome(enabled=True) == outcome(enabled=False)


def test_a_function_that_reads_another_number_is_recorded_again(tmp_path: Path) -> None:
    x = da.from_array(values(), chunks=(64, 60))
    scale = {"by": 2.0}

    def function(a: Any) -> Any:
        return np.exp(a / 100) * scale["by"] + 1

    for by in (2.0, 3.0, 2.0):
        scale["by"] = by
        with gpusched.enable():
            found = x.map_blocks(function).compute(scheduler="sync")
        assert found.tobytes() == (np.exp(values() / 100) * by + 1).tobytes()


def _by_an_array(a: Any) -> Any:
    axes = np.array([1, 0])
    found = np.transpose(a, axes)
    axes[:] = [0, 1]
    return np.exp(found / 1000) * 2


def test_what_a_function_changes_after_a_call_is_as_it_was() -> None:
    check(gpusched.fusible(_by_an_array), values(shape=(60, 60)), chunks=(60, 60))


@pytest.mark.parametrize("exponent", [2, 2.0, -1, -1.0, 0.5, 1, 1.0, 0, 3, True, np.float64(2)])
@pytest.mark.parametrize("dtype", ["?", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_powers_have_the_bits_of_numpys(exponent: Any, dtype: str) -> None:
    if np.dtype(dtype).kind in "iub" and exponent == -1:
        pytest.skip("NumPy refuses it, or divides by zero")
    x = np.abs(values()) + 1
    given = (x + 0.25j * x[::-1] if dtype[0] == "c" else x).astype(dtype)
    with np.errstate(all="ignore"):
        check(lambda a: (a + a) ** exponent, given)


def test_results_of_what_is_broadcast_have_the_layout_of_numpys() -> None:
    def function(x: Any, a: Any, b: Any) -> Any:
        np.sqrt(x)
        return np.sqrt(np.abs(a * b))

    x, a, b = abs(values(shape=(16, 12, 20))), values(shape=(16, 1, 20)), values(shape=(1, 12, 1))
    given = [
        da.from_delayed(dask.delayed(lambda a=a: a, pure=False)(), a.shape, a.dtype)
        for a in (x, np.asfortranarray(a), b)
    ]
    plain, ours = both(
        lambda: da.map_blocks(function, *given, dtype="f8", chunks=given[0].chunks).map_blocks(
            lambda a: np.array([[a.strides]]), chunks=((1,), (1,), (3,)), dtype="f8"
        )
    )
    assert plain.tolist() == ours.tolist()


def _warns_at_once(a: Any) -> Any:
    with np.errstate(all="warn"):
        return np.log(a)


@pytest.mark.parametrize("state", ["warn", "ignore"])
def test_functions_that_warn_at_once_do_so_once(state: Any) -> None:
    x = da.from_array(np.arange(64 * 60.0).reshape(64, 60), chunks=(64, 60))
    with (
        np.errstate(over="warn", divide=state),
        warnings.catch_warnings(record=True) as found,
        gpusched.enable(),
    ):
        warnings.simplefilter("always")
        made = x.map_blocks(_warns_at_once, dtype="f8") + x.map_blocks(
            lambda a: np.exp(a) + np.sqrt(a), dtype="f8"
        )
        made.compute(scheduler="sync")
    assert sorted(str(each.message) for each in found) == [
        "divide by zero encountered in log", "overflow encountered in exp",
    ]  # fmt: skip


def _changes(a: Any) -> Any:
    a += 100
    return a * 1.0


def test_what_a_function_copies_was_changed_before() -> None:
    x = da.from_array(values(shape=(60, 60)), chunks=(60, 60))

    def make() -> Any:
        made = x.map_blocks(gpusched.fusible(lambda a: np.exp(a / 1000) + 1), dtype="f8")
        changed = made.map_blocks(gpusched.fusible(_changes), dtype="f8")
        return da.map_blocks(
            gpusched.fusible(lambda a, b: np.ravel(a.T).reshape(60, 60) * 2 + b),
            made, changed, dtype="f8",
        )  # fmt: skip

    plain, ours = both(make)
    assert plain.tobytes() == ours.tobytes()


def test_what_functions_share_is_computed_again_after_a_change() -> None:
    x = da.from_array(values(shape=(60, 60)), chunks=(60, 60))

    def changes(a: Any, b: Any) -> Any:
        a *= 2
        return a * 1 + b

    def make() -> Any:
        made = x.map_blocks(gpusched.fusible(lambda a: np.exp(a / 1000) + 1), dtype="f8")
        before = made.map_blocks(gpusched.fusible(lambda a: np.sqrt(a + 1) * 2), dtype="f8")
        after = da.map_blocks(gpusched.fusible(changes), made, before, dtype="f8")
        last = gpusched.fusible(lambda a, b: np.cos(np.sqrt(a + 1)) + b)
        return da.map_blocks(last, made, after, dtype="f8")

    plain, ours = both(make)
    assert plain.tobytes() == ours.tobytes()
