"""Elements of chunks on a GPU are followed and found as those of chunks in host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.debugging.check import Bad, nonfinite

cupy = pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(
        "ignore:(divide by zero|invalid value|overflow) encountered:RuntimeWarning"
    ),
]

VALUES = np.arange(1600.0).reshape(40, 40)

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "kernel": lambda x: 1 / (x - 820) * 2 + 1,
    "reduction": lambda x: (1 / (x - 820)).sum(axis=0),
    "total": lambda x: (1 / (x - 820)).sum(),
    "function": lambda x: da.sqrt(x * 2 + 1).map_blocks(sorted_reciprocals, dtype=float) + 1,
    "move": lambda x: (1 / (x[::-1].T - 820)).rechunk(20),
    "moments": lambda x: (1 / (x - 820)).var(axis=0),
}


FUSED_AS = {"truediv": "divide"}
"""NumPy's name of what a task calls itself where it is not fused."""


def sorted_reciprocals(block: Any) -> Any:
    # CuPy's own functions refuse arrays in host memory.
    module = cupy if isinstance(block, cupy.ndarray) else np
    return 1 / (module.sort(block, axis=0) - np.sqrt(41.0))


@pytest.fixture(autouse=True)
def fused() -> Iterator[None]:
    settings = {"gpusched.fusion.minimum-elements": 0, "scheduler": "sync"}
    with dask.config.set(settings), gpusched.enable():
        yield


def on_host() -> da.Array:
    return da.from_array(VALUES, chunks=10)


def on_gpu() -> da.Array:
    return da.from_array(cupy.asarray(VALUES), chunks=10)


def moved_to_gpu() -> da.Array:
    return da.from_array(VALUES, chunks=10).map_blocks(cupy.asarray, dtype=float)


@pytest.mark.parametrize("source", [on_gpu, moved_to_gpu])
@pytest.mark.parametrize("name", PROGRAMS)
def test_first_nonfinite_value_is_where_it_is_in_host_memory(
    name: str, source: Callable[[], da.Array]
) -> None:
    wanted = gpusched.find_nonfinite(PROGRAMS[name](on_host()))
    found = gpusched.find_nonfinite(PROGRAMS[name](source()))
    assert wanted is not None and found is not None
    for attribute in ("chunk", "index", "chunks", "nans", "infs", "already_in_input"):
        assert getattr(found, attribute) == getattr(wanted, attribute), attribute
    assert FUSED_AS.get(found.operation, found.operation) == wanted.operation
    assert not np.isfinite(found.value)


@pytest.mark.parametrize("source", [on_gpu, moved_to_gpu])
@pytest.mark.parametrize("name", PROGRAMS)
def test_elements_are_followed_as_in_host_memory(name: str, source: Callable[[], da.Array]) -> None:
    wanted, found = PROGRAMS[name](on_host()), PROGRAMS[name](source())
    index = (3, 7)[: wanted.ndim]
    expected = gpusched.trace_element(wanted, index)
    trace = gpusched.trace_element(found, index)
    if source is on_gpu:
        wanted_names = [step.operation for step in expected.steps]
        assert [step.operation for step in trace.steps] == wanted_names
    assert trace.steps[-1].value == pytest.approx(expected.steps[-1].value, rel=1e-12)
    assert trace.value == pytest.approx(expected.value, rel=1e-12)
    assert all(isinstance(step.value, np.generic) for step in trace.steps)


@pytest.mark.parametrize("name", PROGRAMS)
def test_chunks_are_stepped_through(name: str) -> None:
    found = PROGRAMS[name](on_gpu())
    chunk = (0,) * found.ndim
    value = gpusched.debug(found, chunk=chunk, stop="never")
    assert isinstance(value, np.ndarray | np.generic)
    part = found.blocks[chunk] if chunk else found
    np.testing.assert_allclose(value, part.compute().get(), rtol=1e-12)


def test_a_function_of_cupys_is_called_with_arrays_on_the_gpu() -> None:
    y = on_gpu().map_blocks(cupy.log1p, dtype=float).map_blocks(cupy.cumsum, axis=0, dtype=float)
    trace = gpusched.trace_element(y + 1, (3, 7))
    assert float(trace.value) == pytest.approx(np.log1p(VALUES)[:4, 7].sum() + 1)
    assert "cumsum" in [step.operation for step in trace.steps]
    assert float(gpusched.debug(y, index=(3, 7), stop="never")) == pytest.approx(
        np.log1p(VALUES)[:4, 7].sum()
    )


def test_what_the_graph_holds_is_found() -> None:
    values = VALUES.copy()
    values[33, 5] = np.nan
    found = gpusched.find_nonfinite(da.from_array(cupy.asarray(values), chunks=10) * 2)
    assert found is not None
    assert (found.already_in_input, found.index) == (True, (33, 5))


def test_parts_of_a_partial_result_are_counted() -> None:
    value = {"n": cupy.ones(3), "total": [cupy.asarray([1.0, np.inf, np.nan])]}
    assert nonfinite(value) == Bad(nans=1, infs=1, array=1, local=(1,))
