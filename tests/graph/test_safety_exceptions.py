"""Functions that handle exceptions are recorded without their handlers, while nothing is raised."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask import delayed

import gpusched
from gpusched.graph import disable
from gpusched.graph.safety.exceptions import handlers, without_handlers
from tests.graph.examining import why_unsafe

pytestmark = pytest.mark.usefixtures("everything_fused", "no_compiler")


def adds_or_not(x: Any) -> Any:
    try:
        return np.exp(x) + 1
    except ValueError:
        return x


def ends_with(x: Any) -> Any:
    try:
        y = x * 2
    finally:
        x = x + 1
    return y - x


def within(x: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            y = np.log(x)
        except (TypeError, ValueError) as error:
            raise RuntimeError from error
        else:
            y = y + 1
    return y * 2


def calls_one(x: Any) -> Any:
    return adds_or_not(x) * 2


def has_one(x: Any) -> Any:
    def tried(u: Any) -> Any:
        try:
            return u + 1
        except ValueError:
            return u

    return tried(x) * 2


def parts_of(x: Any, size: Any = "auto") -> tuple[int, ...]:
    if size == "auto":
        try:
            chunks = x.chunks
            return chunks[0]
        except AttributeError:
            size = x.shape[0] // 2
    return (size, x.shape[0] - size)


def asks_for_chunks(x: Any) -> Any:
    def divided(y: Any, start: int, stop: int) -> Any:
        try:
            return y.blocks[start:stop]
        except AttributeError:
            return y[start:stop]

    first, second = parts_of(x)
    ends = [divided(np.exp(x), start, stop) for start, stop in ((0, first), (second, None))]
    return np.concatenate(ends) + 1


def calls_what_it_asks_for(x: Any) -> Any:
    try:
        function = x.blocks
    except AttributeError:
        return x * 2 + 1
    return function(x)


RECORDED = [adds_or_not, ends_with, within, calls_one, has_one, asks_for_chunks,
            calls_what_it_asks_for]  # fmt: skip


def computed(function: Callable[..., Any], *chunks: np.ndarray) -> list[Any]:
    """Return what a function makes of chunks of a kind, each of which it is given as its block."""
    x = da.concatenate([da.from_array(chunk, chunks=-1) for chunk in chunks])
    made = x.map_blocks(function, dtype=float).to_delayed().ravel()
    return [each.compute(scheduler="sync") for each in made]


@pytest.mark.parametrize("function", RECORDED)
def test_they_are_recorded(function: Any) -> None:
    chunks = [np.arange(6.0) + k for k in range(3)]
    with disable():
        expected = computed(function, *chunks)
    x = da.from_array(np.concatenate(chunks), chunks=6)
    gpusched.reset_statistics()
    found = x.map_blocks(function, dtype=float).compute(scheduler="sync")
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=4e-16)
    assert gpusched.statistics().fused_tasks == 3
    assert not gpusched.statistics().breaks


def divides(x: Any) -> Any:
    try:
        with np.errstate(divide="raise"):
            return 1 / x + 1
    except FloatingPointError:
        return x * 0


def takes(x: Any) -> Any:
    try:
        return np.take(x + 1, x.astype(int)) * 2
    except IndexError:
        return x - 1


def warns(x: Any) -> Any:
    try:
        return np.log(x) + 1
    except RuntimeWarning:
        return x - 1


def of_no_degrees(x: Any) -> Any:
    try:
        return x + np.var(x, ddof=9)
    except RuntimeWarning:
        return x - 1


def solves(x: Any) -> Any:
    try:
        return np.linalg.inv(x.reshape(2, 2)).reshape(4) + 1
    except np.linalg.LinAlgError:
        return x - 1


@pytest.mark.parametrize("function", [divides, takes, warns, of_no_degrees, solves])
@pytest.mark.parametrize("values", [(1, 2, 0, 3), (0, 1, 2, 3), (9, -9, 1, 1)])
def test_exceptions_that_values_cause_are_handled(function: Any, values: tuple[int, ...]) -> None:
    rest = np.array([2.0, 1.0, 1.0, 3.0]), np.array([3.0, 1.0, 1.0, 2.0])
    chunks = [rest[0], np.array(values, float), rest[1]]
    chunks = chunks[-1:] + chunks[:-1] if values[0] == 9 else chunks
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with disable():
            expected = [function(chunk) for chunk in chunks]
        x = da.from_array(np.concatenate(chunks), chunks=4)
        found = x.map_blocks(function, dtype=float).compute(scheduler="sync")
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=4e-16)


def test_a_handler_of_memory_errors_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.from_array(np.arange(12.0), chunks=4)

    def smaller(chunk: Any) -> Any:
        try:
            return chunk * 2 + 1
        except MemoryError:
            return chunk

    from gpusched.plan.plan import Plan

    def run(self: Plan, *args: Any, **options: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Plan, "run", run)
    found = x.map_blocks(smaller, dtype=float).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.arange(12.0) * 2 + 1)


def asks_for_what_arrays_have(x: Any) -> Any:
    try:
        return x.base
    except AttributeError:
        return x + 1


def handles_another(x: Any) -> Any:
    AttributeError = ValueError  # noqa: A001
    try:
        return x.blocks
    except AttributeError:
        return x + 1


@pytest.mark.parametrize(("function", "why"), [
    (asks_for_what_arrays_have, "uses .base of"),
    (handles_another, "uses .blocks of"),
])  # fmt: skip
def test_what_is_asked_for_is_not_known(function: Any, why: str) -> None:
    assert why in str(why_unsafe(function))


class Parted:
    """What has an attribute that no array has."""

    blocks = 3


def asks_another(x: Any, of: Any) -> Any:
    try:
        count = of.blocks
    except AttributeError:
        count = 1
    return x * 2 + count


class PartedArray(np.ndarray):
    """An array of another class than NumPy's, which has one, too."""

    blocks = 3


@pytest.mark.parametrize("of", [delayed(Parted)(), np.arange(2.0).view(PartedArray)])
def test_what_others_have_is_asked_of_them(of: Any) -> None:
    x = da.from_array(np.arange(6.0), chunks=3)
    found = x.map_blocks(asks_another, of=of, dtype=float).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.arange(6.0) * 2 + 3)


def test_scalars_have_other_attributes_than_arrays() -> None:
    def asks(x: Any) -> Any:
        try:
            return x.sum().blocks
        except AttributeError:
            return x + 1

    def has(x: Any) -> Any:
        try:
            return x + x.sum().is_integer()
        except AttributeError:
            return x + 7

    x = da.from_array(np.arange(6.0), chunks=3)
    for function, expected in ((asks, np.arange(6.0) + 1), (has, np.arange(6.0) + 1)):
        found = x.map_blocks(function, dtype=float).compute(scheduler="sync")
        np.testing.assert_array_equal(found, expected)


def test_lazy_chunks_have_no_attributes_of_their_own() -> None:
    """Before, what a name stands for that arrays do not have was read of the lazy chunk."""

    def asks(x: Any) -> Any:
        try:
            return x + x.waits + 1
        except AttributeError:
            x = x * 2
        try:
            return x + x._scalar + 1
        except AttributeError:
            return x * 3

    x = da.from_array(np.arange(6.0), chunks=3)
    gpusched.reset_statistics()
    found = x.map_blocks(asks, dtype=float).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.arange(6.0) * 6)
    assert gpusched.statistics().fused_tasks == 2


def test_attributes_that_other_values_have_end_a_recording() -> None:
    """What follows has not been looked at: here, it does something in each call."""
    seen = []

    def asks(x: Any) -> Any:
        try:
            bits = np.finfo(x.dtype).nmant
            seen.append(bits)
            return x * 2 + bits
        except AttributeError:
            return x * 2

    x = da.from_array(np.arange(6.0), chunks=2)
    y = x.map_blocks(asks, dtype=float)
    seen.clear()
    np.testing.assert_array_equal(y.compute(scheduler="sync"), np.arange(6.0) * 2 + 52)
    assert seen == [52] * 3


def generates(x: Any) -> Any:
    def parts() -> Iterator[Any]:
        try:
            yield x
        finally:
            x.sum()

    return sum(parts())


def test_generators_with_handlers_are_refused() -> None:
    assert "handles exceptions in a generator" in str(why_unsafe(generates))


def nested(x: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            try:
                return max([a * 1 for a in (x, 2)]) + sum(b for b in (x, 1))
            finally:
                x = 1
    except (ValueError, TypeError) as error:
        with np.errstate(all="ignore"):
            return str(error)


def test_code_without_its_handlers_raises() -> None:
    assert handlers(nested.__code__)
    code = without_handlers(nested.__code__)
    assert not handlers(code)
    assert without_handlers(code) is code
    made = types.FunctionType(code, nested.__globals__)
    assert made(3) == nested(3) == 7
    assert isinstance(nested("three"), str)
    with np.errstate(), pytest.raises(TypeError):
        made("three")


def leaves_in_the_middle(x: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return x[7]
        except IndexError:
            return x * 2


def test_errstate_is_put_back() -> None:
    before = np.geterr()
    x = da.from_array(np.arange(6.0), chunks=3)
    found = x.map_blocks(leaves_in_the_middle, dtype=float).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.arange(6.0) * 2)
    assert np.geterr() == before


def test_code_without_handlers_stays_as_it_is() -> None:
    for function in (computed, why_unsafe, lambda x: x + 1):
        code = function.__code__
        assert (without_handlers(code) is code) == (not handlers(code))
