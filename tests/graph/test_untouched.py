"""What fusion leaves alone gives what plain dask gives, with a counted reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.tests.test_dispatch import EncapsulateNDArray

from gpusched.graph import disable, enable, fusible, optimize
from gpusched.store.statistics import reset_statistics, statistics


@pytest.fixture(autouse=True)
def fused() -> Iterator[None]:
    settings = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}
    with dask.config.set(settings), enable():
        reset_statistics()
        yield


def compare(x: da.Array) -> None:
    with disable():
        expected = x.compute(scheduler="sync")
    found = x.compute(scheduler="sync")
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


ARRAYS = {
    "longdouble": np.arange(6, dtype=np.longdouble),
    "object": np.array([1, 2.5, 3, 4, 5, 6], dtype=object),
    "big-endian": np.arange(6, dtype=">f8"),
    "datetime": np.arange(6).astype("datetime64[s]").view("int64").astype("timedelta64[s]"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_unsupported_dtypes(name: str) -> None:
    x = da.from_array(ARRAYS[name], chunks=3)
    compare((x + x) * 2)
    counts = statistics()
    assert counts.launches == 0
    assert any("dtype" in reason for _, reason in counts.breaks)


@pytest.mark.parametrize("scalar", [np.longdouble(2), np.clongdouble(2j)])
def test_scalars_of_unsupported_dtypes(scalar: Any) -> None:
    x = da.arange(12.0, chunks=4)
    compare((x > 3).map_blocks(lambda m: np.where(m, scalar, 1), dtype=np.asarray(scalar).dtype))
    compare((x > 3).map_blocks(lambda m: (m * scalar) + 1, dtype=np.asarray(scalar).dtype))


def test_masked_arrays() -> None:
    x = da.ma.masked_greater(da.arange(12, chunks=4), 7)
    compare((x + 1) * 2)
    assert any("MaskedArray" in reason for _, reason in statistics().breaks)


class Tagged(np.ndarray):
    """A subclass with a meaning of its own."""


def test_subclasses() -> None:
    x = da.from_array(np.arange(8.0).view(Tagged), chunks=4, asarray=False)
    result = ((x + 1) * 2).compute(scheduler="sync")
    np.testing.assert_array_equal(np.asarray(result), (np.arange(8.0) + 1) * 2)
    assert any("Tagged" in reason for _, reason in statistics().breaks)


@pytest.mark.parametrize("reduced", [
    pytest.param(lambda x: x.max(), id="max"),
    pytest.param(lambda x: x.sum(axis=0), id="sum of columns"),
    pytest.param(lambda x: da.reduction(
        x * 2, chunk=lambda s, axis, keepdims: s.max(axis=axis, keepdims=True) * 2,
        aggregate=lambda s, axis, keepdims: s.max(axis=axis, keepdims=keepdims), dtype="f8"),
        id="own functions"),
])  # fmt: skip
def test_subclass_in_one_chunk_is_joined_as_dask_joins_it(
    reduced: Callable[[da.Array], da.Array],
) -> None:
    x = da.from_array(np.arange(8.0).reshape(2, 4).view(Tagged), chunks=8, asarray=False)
    compare(reduced(x))


def test_one_part_without_the_axes_is_an_error() -> None:
    x = da.ones((4, 4), chunks=4) * 2
    total = da.reduction(x, chunk=lambda s, axis, keepdims: s.sum(), aggregate=np.sum, dtype="f8")
    with pytest.raises(ValueError, match="zero-dimensional"):
        total.compute(scheduler="sync")


def test_variances_of_arrays_of_another_kind() -> None:
    values = np.random.default_rng(0).normal(size=(20, 30))
    x = da.from_array(EncapsulateNDArray(values), chunks=10)
    found = x.var(axis=0).compute(scheduler="sync")
    assert isinstance(found, EncapsulateNDArray)
    np.testing.assert_allclose(found.arr, values.var(axis=0))


def test_structured_arrays() -> None:
    values = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])
    x = da.from_array(values, chunks=1)
    compare(x["b"] * 2 + 1)


def test_a_function_that_writes_to_its_input_sees_real_arrays() -> None:
    seen: list[type] = []

    def in_place(block: Any) -> Any:
        seen.append(type(block))
        block = block.copy()
        block[0] = 7
        block += 1
        return block

    compare((da.ones(6, chunks=3) + 1).map_blocks(in_place, dtype=float))
    assert set(seen) == {np.ndarray}


@pytest.mark.parametrize("through", ["input", "view", "alias"])
def test_changing_a_chunk_in_place_means_what_it_means_in_numpy(through: str) -> None:
    def changes_input(block: Any) -> Any:
        block += 1
        return block * 0

    def changes_parent_of_view(block: Any) -> Any:
        total = block * 2
        part = total[1:]
        total += 5
        return total * part.sum()

    def changes_alias(block: Any) -> Any:
        total = block * 2
        other = total
        total += block
        total *= 3
        return other + 1

    function = {"input": changes_input, "view": changes_parent_of_view, "alias": changes_alias}
    x = da.from_array(np.arange(6.0), chunks=3).persist(scheduler="sync")
    compare(x.map_blocks(function[through], dtype=float))
    assert (statistics().launches > 0) is (through != "input")


def test_a_function_that_writes_through_out_sees_real_arrays() -> None:
    def through_out(block: Any) -> Any:
        return np.add(block, 1, out=block)

    compare((da.arange(6.0, chunks=3) + 1).map_blocks(through_out, dtype=float))
    reasons = [reason for name, reason in statistics().breaks if name == "through_out"]
    assert len(reasons) == 1
    assert "calls add with out= (call" in reasons[0]


def test_a_decision_on_values_is_not_replayed() -> None:
    def half_if_large(block: Any) -> Any:
        if block.sum() > 10:
            return block / 2
        return block * 3

    x = da.from_array(np.arange(12.0), chunks=4)
    compare((x + 1).map_blocks(half_if_large, dtype=float))


def test_randomness_is_not_replayed() -> None:
    def noisy(block: Any) -> Any:
        return block * 2 + np.random.default_rng().random(block.shape)

    x = da.ones((4, 5), chunks=(1, 5)).map_blocks(noisy, dtype=float).compute(scheduler="sync")
    assert len(np.unique(x)) == x.size


scale = 2.0


def scaled(block: Any) -> Any:
    return block * scale + 1


def test_a_global_that_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.ones(6, chunks=3)
    assert float(x.map_blocks(scaled, dtype=float).sum().compute(scheduler="sync")) == 18
    monkeypatch.setattr("tests.graph.test_untouched.scale", 3.0)
    assert float(x.map_blocks(scaled, dtype=float).sum().compute(scheduler="sync")) == 24


def test_a_marked_function_is_recorded() -> None:
    @fusible
    def marked(block: Any) -> Any:
        total = block * 2
        total += block
        return total

    compare(da.ones(6, chunks=3).map_blocks(marked, dtype=float))
    assert statistics().launches > 0


def test_errors_are_the_programs_own_and_name_the_operations() -> None:
    def wrong(block: Any) -> Any:
        return (block + 1) * np.ones(block.shape[0] + 1)

    x = da.ones((6, 4), chunks=3).map_blocks(wrong, dtype=float)
    with pytest.raises(ValueError, match="could not be broadcast") as error:
        (x * 2 + 1).compute(scheduler="sync")
    assert "wrong" in " ".join(error.value.__notes__)


def test_enable_is_a_decorator_and_nests() -> None:
    @enable()
    def computed() -> Any:
        return dask.config.get("array_optimize")

    with disable():
        assert dask.config.get("array_optimize") is not optimize
        assert computed() is optimize
        with enable():
            assert dask.config.get("array_optimize") is optimize
        assert dask.config.get("array_optimize") is not optimize
    assert dask.config.get("array_optimize") is optimize


def test_floating_point_errors_are_warned_of_as_numpy_does() -> None:
    x = da.from_array(np.array([0.0, 1.0]), chunks=2)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        ((1 / x) * 2).compute(scheduler="sync")
    with pytest.warns(RuntimeWarning, match="overflow"):
        ((x * 1e300) * 1e300).compute(scheduler="sync")
