"""NumPy's functions that no kernel computes: called on arrays between kernels, in any function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.graph.programs.functiontraits import Functions
from gpusched.plan.plan import Register
from tests.tiers import every

Block = Any
RNG = np.random.default_rng(7)
VALUES = RNG.normal(size=(8, 6, 6)) + 4 * np.eye(6)


def decomposed(block: Block) -> Any:
    values, vectors = np.linalg.eigh(block * 2)
    return abs(vectors) * 2 + values[:, :, None]


def singular(block: Block) -> Any:
    left, values, right = np.linalg.svd(block * 2)
    return abs(left @ right) + values[:, :, None]


def of_a_pair(block: Block) -> Any:
    sign, logarithm = np.linalg.slogdet(block * 2)
    return block * (sign * np.exp(logarithm))[:, None, None]


def by_its_names(block: Block) -> Any:
    found = np.linalg.slogdet(block * 2)
    return block * (found.sign * found.logabsdet)[:, None, None]


def all_of_a_pair(block: Block) -> Any:
    pair = np.linalg.slogdet(block * 2)
    return block * np.stack(pair).sum() + len(pair)


def on_a_grid(block: Block) -> Any:
    first, second = np.meshgrid(block[:, 0, 0] + 1, block[0, 0, :] * 2, indexing="ij")
    return block * first[:, :, None] + second[:, :, None]


FUNCTIONS: dict[str, Callable[[Block], Any]] = {
    "sort": lambda b: np.sort(b * 2 + 1, axis=1) * 2,
    "argsort": lambda b: b[np.argsort(b[:, 0, 0] * 2)] * 2,
    "lexsort": lambda b: b[np.lexsort((b[:, 0, 0], b[:, 0, 1].round() * 1))] * 2,
    "partition": lambda b: np.partition(b * 2, 3, axis=1)[:, 3:4] * b,
    "take_along_axis": lambda b: np.take_along_axis(b, np.argsort(b * 3, axis=0), axis=0) + 1,
    "pad": lambda b: np.pad(b * 2, 1, mode="reflect")[1:-1, 1:-1, 1:-1] * 2 + 1,
    "cross": lambda b: np.cross(b[..., :3] * 2, b[..., 3:] + 1).sum(axis=-1, keepdims=True) * b,
    "trace": lambda b: np.trace(b * 2, axis1=1, axis2=2)[:, None, None] * b,
    "diagonal": lambda b: np.diagonal(b * 2, axis1=1, axis2=2)[:, None] * b,
    "cov": lambda b: np.cov((b * 2)[:, 0, :])[:1, :1] * b,
    "corrcoef": lambda b: np.corrcoef((b * 2)[:, 0, :].T) * b,
    "kron": lambda b: np.kron(b[0] * 2, np.ones((2, 2)))[::2, ::2] * b,
    "block": lambda b: np.block([[b[0] * 2, b[1] + 1], [b[1], b[0]]])[:6, 6:] * b,
    "insert": lambda b: np.insert(b * 2, 0, 1.0, axis=0)[:-1] * b,
    "delete": lambda b: np.delete(b * 2, 0, axis=1).sum(axis=1, keepdims=True) * b,
    "convolve": lambda b: np.convolve(b[0, 0] * 2, np.ones(3), mode="same") * b,
    "meshgrid": on_a_grid,
    "rfft": lambda b: abs(np.fft.rfft(b * 2, axis=0))[:1] + b,
    "inv": lambda b: np.linalg.inv(b * 2) * 2 - 1,
    "solve": lambda b: np.linalg.solve(b * 2, b + 1) * 2,
    "cholesky": lambda b: np.linalg.cholesky(b @ b.swapaxes(1, 2) + 1) * 2,
    "eigh": decomposed,
    "svd": singular,
    "slogdet": of_a_pair,
    "slogdet by its names": by_its_names,
    "slogdet of all": all_of_a_pair,
    "geomspace": lambda b: np.geomspace(abs(b * 2), 20, 3).sum(axis=0) + b,
    "intersect1d": lambda b: b * np.intersect1d(b[0].round() * 1, b[1].round() + 0).sum(),
    "polyfit": lambda b: b * np.polyfit(b[0, 0] * 2, b[0, 1] + 1, 1)[0],
    "diagonal of matrices": lambda b: np.linalg.diagonal(b * 2)[:, None] * b,
}


@pytest.fixture(autouse=True)
def everything_fuses() -> Iterator[None]:
    settings = {"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}
    with gpusched.enable(), dask.config.set(settings):
        yield


def mapped(function: Callable[[Block], Any], values: Any = VALUES) -> da.Array:
    x = da.from_array(values, chunks=(4, 6, 6))
    return (x * 2 + 1).map_blocks(function, dtype=float, meta=np.empty((0, 0, 0))) + 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_fused_around_such_calls(name: str) -> None:
    program = mapped(FUNCTIONS[name])
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    gpusched.reset_statistics()
    found = program.compute(scheduler="sync")
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    counts = gpusched.statistics()
    own = name.partition(" of ")[0].partition(" by ")[0]
    assert (own, GraphBreak.NO_KERNEL) in {(what, told.kind) for what, told in counts.breaks}
    assert not [told for _, told in counts.breaks if "your function" in told]
    assert counts.launches >= 2 * 2


@pytest.mark.parametrize("name", every(2, FUNCTIONS))
def test_explained_as_run(name: str) -> None:
    program = mapped(FUNCTIONS[name])
    found = gpusched.explain(program)
    gpusched.reset_statistics()
    program.compute(scheduler="sync")
    counts = gpusched.statistics()
    assert found.totals.launches == counts.launches
    own = name.partition(" of ")[0].partition(" by ")[0]
    assert (own, "NO_KERNEL") in {(each.operation, each.code) for each in found.breaks}


def test_ufuncs_that_go_through_whole_axes_are_called_by_their_names() -> None:
    weights = np.linspace(1, 2, 6)
    program = mapped(lambda b: np.matmul(b * 2, weights)[:, :, None] * np.vecdot(b, b)[..., None])
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    gpusched.reset_statistics()
    np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=1e-12)
    assert not gpusched.statistics().breaks


def test_what_numpy_raises_is_raised() -> None:
    program = mapped(lambda b: np.linalg.inv(b * 0) * 2)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        program.compute(scheduler="sync")


def test_a_tuple_with_names_is_no_result() -> None:
    """It would be another type's; the function runs on arrays."""
    x = da.from_array(VALUES, chunks=(4, 6, 6))
    pairs = (x * 2).map_blocks(np.linalg.slogdet, dtype=float).to_delayed().ravel()
    own = (x * 2).map_blocks(lambda b: np.linalg.slogdet(b * 1), dtype=float).to_delayed().ravel()
    for pair in dask.compute(*pairs, *own, scheduler="sync"):
        assert type(pair).__name__ == "SlogdetResult"
        assert all(type(each) is np.ndarray for each in pair)


def test_tasks_with_such_calls_are_neither_merged_nor_repeated() -> None:
    functions, given = Functions(), (Register(0),)
    sorts = functions.traits(lambda block: np.sort(block, axis=0) * 2, given, {})
    scales = functions.traits(lambda block: block * 2, given, {})
    assert sorts.recorded and scales.recorded
    assert sorts.between and not scales.between


def test_a_function_that_pads_may_be_the_users_own() -> None:
    def edges(vector: Any, width: Any, axis: int, options: Any) -> None:
        vector[: width[0]] = 7.0
        vector[len(vector) - width[1] :] = 7.0

    program = mapped(lambda b: np.pad(b * 2, ((0, 0), (1, 1), (0, 0)), mode=edges)[:, 1:-1] + 1)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    np.testing.assert_array_equal(program.compute(scheduler="sync"), expected)


def by_the_largest(block: Block) -> Any:
    most = block.max()

    def chosen(elements: Any) -> Any:
        return elements * (2 if elements.max() > most - 1 else 3)

    return np.piecewise(block * 1.0, [block > 0], [chosen, 0]) + 1


@pytest.mark.usefixtures("no_compiler")
def test_functions_that_are_given_to_such_calls_see_the_chunk_of_each_task() -> None:
    """A plan would keep what they have read of the chunk that it was recorded for."""
    for factor in (1, 10, 0.1, 100):
        program = mapped(by_the_largest, VALUES * factor)
        with gpusched.disable():
            expected = program.compute(scheduler="sync")
        np.testing.assert_allclose(program.compute(scheduler="sync"), expected, rtol=1e-12)


@pytest.mark.usefixtures("no_compiler")
def test_such_calls_run_in_vain_for_one_chunk_where_values_decide_how_many_results_there_are() -> (
    None
):
    def varying(block: Block) -> Any:
        line = np.polyfit(block[0, 0] * 0 + 1, block[0, 1], 2)  # Warns, each time.
        return np.unique(block.round() * 2) + line[0] * 0

    calls = []
    for k in range(6):
        block = da.from_array(VALUES[:4] * (k + 1), chunks=-1) * 2
        (chunk,) = block.map_blocks(varying, dtype=float).to_delayed().ravel()
        with pytest.warns(np.exceptions.RankWarning) as warned:
            dask.compute(chunk, scheduler="sync")
        calls.append(len(warned))
    assert calls == [1, 2, 1, 1, 1, 1]
