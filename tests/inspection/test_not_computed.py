"""Nothing of the user's data is read, and no function of theirs is run on it."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

from gpusched import explain, reset_statistics, statistics

CALLS: list[Any] = []


def raises(*arguments: Any, **options: Any) -> Any:
    CALLS.append(arguments)  # What changes nothing is recorded.
    raise AssertionError("a chunk was computed")


class Source:
    """Something that chunks could be read from."""

    dtype = np.dtype("float32")
    shape = (100, 40)
    ndim = 2

    def __getitem__(self, index: Any) -> Any:
        raises()


def test_functions_of_chunks_are_not_called() -> None:
    x = da.ones((40, 40), chunks=20)
    found = explain(((x + 1) * 2).map_blocks(raises, dtype="float64") * 3 - 1)
    assert found.totals.launches == 8
    (stop,) = [stop for stop in found.breaks if stop.operation == "raises"]
    assert stop.tasks == 4
    assert stop.reason.startswith("your function ")
    assert stop.place is not None
    assert stop.place.text.startswith("def raises(")


def places(block: Any, block_id: Any = None) -> Any:
    raises(block, block_id)


def details(block: Any, block_info: Any = None) -> Any:
    raises(block, block_info)


@pytest.mark.parametrize("function", [places, details])
@pytest.mark.parametrize("fused", [True, False], ids=["after_others", "alone"])
def test_functions_that_are_given_places_are_not_called(function: Any, fused: bool) -> None:
    """Such functions may write the chunk to a file of its own."""
    x = da.ones((40, 40), chunks=20)
    given = (x + 1) * 2 if fused else x
    found = explain(given.map_blocks(function, dtype="float64", meta=np.empty((0, 0))) * 3 - 1)
    told = "your function is given where its chunk is"
    (stop,) = [stop for stop in found.breaks if stop.reason == told]
    assert (stop.operation, stop.tasks) == (function.__name__, 4)


def test_functions_whose_dtype_is_enforced_are_not_called() -> None:
    x = da.ones((40, 40), chunks=20)
    enforced = da.core.elemwise(raises, x, x.T, dtype="float32")
    CALLS.clear()
    explain(enforced)
    assert not CALLS


def test_delayed_values_are_not_made() -> None:
    parts = [da.from_delayed(dask.delayed(raises)(k), (10, 10), "float64") for k in range(3)]
    found = explain(da.concatenate(parts) * 2 + 1)
    assert [k.launches for k in found.kernels] == [3]


def test_functions_that_are_given_no_chunk_are_not_called() -> None:
    def part(k: int) -> Any:
        return np.ones(10 ** (15 + k))

    x = da.from_delayed(dask.delayed(part)(1), (10, 10), "float64")
    assert [k.launches for k in explain(x * 2 + 1).kernels] == [1]


def test_sources_are_not_read() -> None:
    x = da.from_array(Source(), chunks=(20, 40), name="source", meta=np.empty((0, 0), "float32"))
    found = explain((x * 2 + 1).sum(axis=1))
    (kernel,) = found.kernels
    assert kernel.launches == 5
    assert kernel.inputs[0].dtype == "float32"
    assert kernel.inputs[0].shape == (20, 40)
    assert found.totals.bytes_least == 100 * 40 * 4 + 100 * 4


def test_nothing_is_counted() -> None:
    x = da.ones((40, 40), chunks=20)
    reset_statistics()
    explain(((x + 1) * 2).sum())
    assert statistics().tasks == statistics().launches == statistics().compilations == 0


def test_random_numbers_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.random.default_rng(0).normal(size=(40, 40), chunks=20)
    drawn: list[Any] = []
    real = np.random.Generator.normal

    class Watched(np.random.Generator):
        def normal(self, *args: Any, **kwargs: Any) -> Any:
            drawn.append(kwargs.get("size"))
            return real(self, *args, **kwargs)

    found = explain(x * 2 - 1)
    assert found.totals.launches == 4
    assert not any(size and 0 not in size for size in drawn)


def test_a_result_of_unknown_shape_is_said_to_be_unknown() -> None:
    x = da.from_delayed(dask.delayed(raises)(), (np.nan,), "float64")
    found = explain(x * 2 + 1)
    assert found.totals.launches == 0
    unknown = [stage.unknown for stage in found.stages if stage.unknown]
    assert unknown[0] == ("raises: is not called, and the shape of what it returns is not known")
    assert "not known" in str(found)


def test_xarray_objects_are_explained() -> None:
    x = da.ones((40, 40), chunks=20)
    array = xr.DataArray(x, dims=("y", "x"), name="a")
    assert explain((array + 1) * 2).totals.launches == 4
    assert explain(xr.Dataset({"a": (array + 1) * 2, "b": (array - 1) * 3})).totals.launches == 8


def test_a_function_of_dask_arrays_is_called_with_them() -> None:
    x = da.ones((40, 40), chunks=20)
    found = explain(lambda a, b: (a + b) * 2, x, b=x)
    assert found.totals.launches == 4


def test_a_function_of_chunks_is_one_task() -> None:
    def centred(block: Any) -> Any:
        return (block - 0.25) * 2

    found = explain(centred, np.ones((30, 20)))
    assert (found.totals.tasks_after, found.totals.launches) == (1, 1)
    assert found.kernels[0].inputs[0].name == "block"


@pytest.mark.parametrize("nothing", [3, "text", [], np.ones(3), dask.delayed(1)])
def test_what_holds_no_array_is_refused(nothing: Any) -> None:
    with pytest.raises(TypeError, match="array"):
        explain(nothing)
