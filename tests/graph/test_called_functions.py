"""What tasks call besides NumPy's functions: methods, of arrays and of ufuncs, and wrappers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.graph.functions.known import known
from gpusched.graph.functions.partials import name_of
from gpusched.store.statistics import Statistics, reset_statistics, statistics

VALUES = np.random.default_rng(3).normal(size=(24, 6, 8))


@pytest.fixture(autouse=True)
def everything_fuses() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}):
        yield


def counted(program: Any, **tolerance: float) -> Statistics:
    """Return the counts of a program, whose values are those that it has without fusion."""
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    reset_statistics()
    with gpusched.enable():
        found = program.compute(scheduler="sync")
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, **({"rtol": 0, "atol": 0} | tolerance))
    return statistics()


def array() -> da.Array:
    return da.from_array(VALUES, chunks=(12, 6, 8))


RESHAPED: dict[str, Callable[[], Any]] = {
    "reshape": lambda: (array() * 2).reshape(4, 6, 6, 8) + 1,
    "coarsened": lambda: ((array() * 2).reshape(4, 6, 6, 8) + 1).mean(axis=1),
    "ravel": lambda: (array() * 2).ravel() - 1,
    "in columns": lambda: (array().T * 2).reshape(8, 6, 2, 12) + 1,
}


@pytest.mark.parametrize("name", RESHAPED)
def test_methods_of_arrays_are_part_of_a_task(name: str) -> None:
    counts = counted(RESHAPED[name](), rtol=1e-15)
    assert counts.fused_tasks >= 2
    assert not counts.breaks


@pytest.mark.parametrize("name", RESHAPED)
def test_explained_as_run(name: str) -> None:
    expected = gpusched.explain(RESHAPED[name]()).totals.launches
    assert counted(RESHAPED[name](), rtol=1e-15).launches == expected > 0


def test_methods_of_ufuncs_are_chunk_functions() -> None:
    x = array() * 2 + 1
    largest = np.maximum.reduce
    reduced = da.reduction(x, largest, largest, axis=0, dtype=float, concatenate=True)
    scanned = da.reductions.cumreduction(
        np.maximum.accumulate, np.maximum, -np.inf, x, axis=0, dtype=float
    )
    assert [counted(each).launches for each in (reduced, scanned)] == [2, 2]
    assert known(np.add.reduceat) and known(np.minimum.accumulate)
    assert not known(np.add.at), "which changes what it is given"
    assert not known(np.hypot.reduce) and known(np.hypot.outer)


@pytest.mark.parametrize("weights", [(8,), (8, 1), (6, 8, 1)])
def test_products_with_vectors_are_kernels_with_what_is_around(weights: tuple[int, ...]) -> None:
    w = np.linspace(-1, 1, np.prod(weights)).reshape(weights)
    program = (array() * 2 + 1) @ w if len(weights) < 3 else da.matmul(array() * 2 + 1, w[0])
    counts = counted(np.sqrt(abs(program)) + 1, rtol=1e-13)
    assert counts.launches == 4 and not counts.breaks


def test_pairs_of_elements_are_computed_by_one_kernel() -> None:
    x = array()[:, 0] * 2

    def distances(block: np.ndarray) -> np.ndarray:
        return np.abs(np.subtract.outer(block, block[0] + 1)).sum(axis=(0, 1))

    own = x.map_blocks(distances, drop_axis=0, chunks=(8,), dtype=float)
    for program in (own, np.hypot.outer(x[:, 0], x[0]) * 2 + 1):
        counts = counted(program, rtol=1e-13)
        assert counts.launches and {name for name, _ in counts.breaks} <= {"mul"}


def test_products_of_matrices_are_left_to_blas() -> None:
    counts = counted(np.sqrt(abs((array() * 2 + 1) @ np.ones((8, 5)))), rtol=1e-13)
    assert [name for name, _ in counts.breaks] == ["matmul"]


def test_names_are_those_of_methods() -> None:
    from dask.utils import M

    assert name_of(M.reshape) == "reshape"


def test_wrappers_that_look_at_the_result() -> None:
    def doubled(block: np.ndarray) -> np.ndarray:
        return np.sqrt(abs(block)) * 2

    program = array().map_blocks(doubled, enforce_ndim=True, dtype=float) + 1
    counts = counted(program)
    assert counts.launches == 2 and not counts.breaks
    wrong = array().map_blocks(lambda b: (b * 2 + 1)[0], enforce_ndim=True, dtype=float,
                               drop_axis=(0, 1), chunks=((8,),))  # fmt: skip
    with gpusched.enable(), pytest.raises(ValueError, match="Dimension mismatch"):
        wrong.compute(scheduler="sync")


def of_labels(block: np.ndarray) -> np.ndarray:
    return np.bincount(np.arange(len(block)) % 5, weights=block[:, 0, 0] * 2, minlength=6)


def of_rows(block: np.ndarray) -> np.ndarray:
    return np.maximum.reduceat(block * 2, np.arange(0, 12, 4), axis=0)


def added(block: np.ndarray) -> np.ndarray:
    found = np.zeros((5, *block.shape[1:]))
    np.add.at(found, np.arange(len(block)) % 5, block * 2)
    return found


def of_classes(block: np.ndarray) -> np.ndarray:
    return np.digitize(block * 2, np.linspace(-1, 1, 7)) + np.arange(8)


def of_places(block: np.ndarray) -> np.ndarray:
    return (block * 2)[np.arange(0, 12, 5)] + 1


def of_usual_options(block: np.ndarray) -> np.ndarray:
    return np.quantile(block * 2, 0.3, axis=0, weights=None, overwrite_input=False)


OWN: dict[Callable[..., Any], Any] = {
    of_labels: ((6, 6),), of_rows: ((3, 3), (6,), (8,)), added: ((5, 5), (6,), (8,)),
    of_classes: ((12, 12), (6,), (8,)), of_places: ((3, 3), (6,), (8,)),
}  # fmt: skip


@pytest.mark.parametrize("function", OWN, ids=lambda function: function.__name__)
def test_arrays_of_numbers_are_arguments(function: Callable[..., Any]) -> None:
    """Such as labels that a function makes of the shape of its chunk."""
    chunks = OWN[function]
    dtype = function(VALUES[:12]).dtype
    program = array().map_blocks(
        function, chunks=chunks, drop_axis=tuple(range(len(chunks), 3)), dtype=dtype
    )
    counts = counted(program, rtol=1e-13)
    assert counts.launches and not counts.breaks


def test_edges_that_are_a_result_are_not_shared() -> None:
    def edges(block: np.ndarray) -> np.ndarray:
        return np.histogram(block * 2, np.linspace(-1, 1, 7))[1]

    program = array().map_blocks(edges, chunks=((7, 7),), drop_axis=(1, 2), dtype=float)
    found = [name for name, _ in counted(program).breaks]
    assert "edges" in found


def test_options_that_ask_for_nothing_are_none() -> None:
    program = array().rechunk((24, 6, 4)).map_blocks(of_usual_options, drop_axis=0, dtype=float)
    counts = counted(program)
    assert counts.launches
    assert not any("option" in reason for _, reason in counts.breaks)


def test_arrays_that_others_see_are_not_added_to() -> None:
    def added_to_a_view(block: np.ndarray) -> np.ndarray:
        found = np.zeros((5, *block.shape[1:]))
        shown = found.T
        np.add.at(found, np.arange(len(block)) % 5, block * 2)
        return shown.T[1:]

    program = array().map_blocks(added_to_a_view, chunks=((4, 4), (6,), (8,)), dtype=float)
    ((_, reason),) = counted(program).breaks
    assert "may change its arguments" in reason
