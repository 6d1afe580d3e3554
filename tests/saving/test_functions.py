"""Functions recorded by what they call: inputs, shapes, and what cannot be recorded."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed.protocol import deserialize, serialize

import gpusched
from gpusched.saving import SavedFunction, UnsavableError, describe

A = np.random.default_rng(0).random((300, 40))
B = np.random.default_rng(1).random(40)


def standardised(x: Any, weights: Any, power: float = 2.0, *, shift: Any = 0.0) -> Any:
    centred = (x - x.mean(axis=0)) / x.std(axis=0)
    return (np.abs(centred) ** power * weights).sum(axis=1) + shift


@pytest.fixture
def saved(tmp_path: Path) -> SavedFunction:
    gpusched.save(tmp_path / "f", standardised, A, B, power=3.0)
    assert describe(tmp_path / "f")["code"] == []
    return gpusched.load(tmp_path / "f")


def test_numpy_arrays_in_numpy_arrays_out(saved: SavedFunction) -> None:
    found = saved(A * 2, B)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, standardised(A * 2, B, 3.0))


def test_numpy_arrays_are_computed_by_kernels(saved: SavedFunction) -> None:
    gpusched.reset_statistics()
    saved(A, B)
    assert gpusched.statistics().launches > 0


def test_fusion_can_be_switched_off(saved: SavedFunction) -> None:
    gpusched.reset_statistics()
    with dask.config.set({"gpusched.fusion.enabled": False}):
        np.testing.assert_allclose(saved(A, B), standardised(A, B, 3.0))
    assert gpusched.statistics().launches == 0


def test_calls_from_many_threads(saved: SavedFunction) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda k: saved(A + k, B), range(40)))
    for k, one in enumerate(found):
        np.testing.assert_allclose(one, standardised(A + k, B, 3.0))


def test_dask_arrays_in_dask_arrays_out(saved: SavedFunction) -> None:
    found = saved(da.from_array(A, chunks=100), B)
    assert isinstance(found, da.Array)
    np.testing.assert_allclose(found.compute(scheduler="threads"), standardised(A, B, 3.0))


def test_calls_with_other_inputs_are_other_tasks(saved: SavedFunction) -> None:
    x, y = da.from_array(A, chunks=300), da.from_array(A + 1, chunks=300)
    one, other, again = saved(x, B), saved(y, x[0]), saved(x, x[0])
    assert len({one.name, other.name, again.name}) == 3
    assert saved(y, x[0]).name == other.name
    np.testing.assert_allclose(
        da.stack([other, again]).compute(scheduler="threads"),
        [standardised(A + 1, A[0], 3.0), standardised(A, A[0], 3.0)],
    )


def test_signature_is_the_inputs(saved: SavedFunction) -> None:
    assert list(inspect.signature(saved).parameters) == ["x", "weights"]
    assert saved.inputs["weights"]["shape"] == (40,)
    np.testing.assert_array_equal(saved(weights=B, x=A), saved(A, B))
    with pytest.raises(TypeError, match="weights"):
        saved(A)


def test_other_arguments_keep_their_value(saved: SavedFunction, tmp_path: Path) -> None:
    assert describe(tmp_path / "f")["constants"] == {"power": "3.0"}


def test_other_shapes_and_dtypes_are_refused(saved: SavedFunction) -> None:
    with pytest.raises(TypeError, match=r"'x' of shape \(300, 40\).*given shape \(299, 40\)"):
        saved(A[:-1], B)
    with pytest.raises(TypeError, match=r"dtype float64.*dtype float32"):
        saved(A, B.astype("f4"))


def test_chunks_of_the_examples_are_kept(tmp_path: Path) -> None:
    example = da.from_array(A, chunks=(100, 40))
    gpusched.save(tmp_path / "f", lambda x: np.exp(x).sum(axis=0), example)
    loaded = gpusched.load(tmp_path / "f")
    np.testing.assert_allclose(loaded(A), np.exp(A).sum(axis=0))
    lazy = loaded(da.from_array(A, chunks=(7, 7)))
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), np.exp(A).sum(axis=0))


RESULTS: dict[str, Callable[..., Any]] = {
    "tuple": lambda x: (x + 1, x.sum()),
    "dictionary": lambda x: {"twice": x * 2, "list": [x - 1]},
    "its input": lambda x: (x, x),
    "constants": lambda x: (x + 1, 5, np.arange(3)),
}


@pytest.mark.parametrize("name", list(RESULTS))
def test_results_keep_their_structure(tmp_path: Path, name: str) -> None:
    gpusched.save(tmp_path / "f", RESULTS[name], B)
    np.testing.assert_equal(gpusched.load(tmp_path / "f")(B), RESULTS[name](B))


def test_function_that_changes_its_input_in_place(tmp_path: Path) -> None:
    def clipped(x: Any) -> Any:
        x[x > 0.5] = 0.5
        return x * 2

    gpusched.save(tmp_path / "f", clipped, B)
    x = B.copy()
    np.testing.assert_array_equal(gpusched.load(tmp_path / "f")(x), np.minimum(B, 0.5) * 2)
    np.testing.assert_array_equal(x, B)


def test_ufunc_and_function_of_many_arguments(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "f", np.hypot, B, B)
    np.testing.assert_allclose(gpusched.load(tmp_path / "f")(B, B + 1), np.hypot(B, B + 1))
    gpusched.save(tmp_path / "g", lambda first, *rest: first + sum(rest), B, B, B)
    loaded = gpusched.load(tmp_path / "g")
    assert list(loaded.inputs) == ["first", "rest0", "rest1"]
    np.testing.assert_allclose(loaded(B, B, B), B * 3)


def test_inputs_that_are_not_used_are_still_asked_for(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "f", lambda x, y: x * 2, B, B)
    np.testing.assert_array_equal(gpusched.load(tmp_path / "f")(B, B), B * 2)


def test_loaded_function_can_be_sent(saved: SavedFunction) -> None:
    there = pickle.loads(pickle.dumps(saved))
    np.testing.assert_array_equal(there(A, B), saved(A, B))
    np.testing.assert_array_equal(deserialize(*serialize(saved))(A, B), saved(A, B))


def test_function_that_looks_at_values_is_refused(tmp_path: Path) -> None:
    def sign(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(
        UnsavableError, match=r"function sign: it looks at the values of 'x'.*where"
    ):
        gpusched.save(tmp_path / "f", sign, B)
    assert list(tmp_path.iterdir()) == []


def test_error_of_the_function_itself_is_told_from_where(tmp_path: Path) -> None:
    with pytest.raises(AttributeError) as caught:
        gpusched.save(tmp_path / "f", lambda x: x.no_such_thing, B)
    assert caught.value.__notes__ == ["gpusched: raised while <lambda> was recorded on dask arrays"]


def test_arrays_inside_of_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsavableError, match="'x' is a list of arrays"):
        gpusched.save(tmp_path / "f", lambda x, y: y, [B], B)


def test_examples_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsavableError, match="none of the examples"):
        gpusched.save(tmp_path / "f", np.add, 1, 2)


def test_examples_for_an_array_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="examples are for functions"):
        gpusched.save(tmp_path / "f", da.ones(3), B)
