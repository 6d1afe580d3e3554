"""The fast mode: what asks for it, where it goes, and what it computes."""

from __future__ import annotations

import concurrent.futures
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends.cache import kernels, reference
from gpusched.backends.devices import HOST
from gpusched.emit import hostloops
from gpusched.emit.editions import EditionError
from gpusched.emit.kernel import EXACT, FAST, Kernel
from gpusched.graph.programs.payload import pack, unpack
from gpusched.plan.overrides import NONE, Overrides, active, applied
from tests.record.recording import record

SETTING = "gpusched.fusion.mathematics"
RECORDER = Overrides(mathematics=FAST)


def kernel_of(function: Any, *arrays: np.ndarray) -> Kernel:
    return record(function, *arrays).launches[0].kernel.kernel


def fast(function: Any, *arrays: np.ndarray) -> np.ndarray:
    """Return what the fast mode gives for one kernel."""
    launch = record(function, *arrays).launches[0]
    out = np.empty(arrays[0].shape, launch.outputs[0].dtype)
    compiled = kernels.get(applied(launch.kernel.kernel, FAST))
    compiled.call(*arrays, out, *launch.numbers)
    return out


def test_kernels_of_both_modes_are_different_ones() -> None:
    exact = kernel_of(lambda x: np.sin(x) + 1, np.ones(8))
    quick = applied(exact, FAST)
    assert quick != exact
    assert len({exact.digest, quick.digest}) == len({exact.name, quick.name}) == 2
    assert hostloops.source(exact) != hostloops.source(quick)
    assert "mathematics: fast" in hostloops.source(quick)


def test_kernel_of_integers_is_the_same_in_both_modes() -> None:
    exact = kernel_of(lambda x: x * 3 + 1, np.ones(8, int))
    assert applied(exact, FAST) is exact
    assert applied(exact, EXACT) is exact


def test_python_runs_the_source_of_the_fast_mode() -> None:
    values = np.linspace(-3, 3, 11)
    launch = record(lambda x: np.sin(x) * 2, values).launches[0]
    out = np.empty_like(values)
    reference(applied(launch.kernel.kernel, FAST)).call(values, out, *launch.numbers)
    np.testing.assert_array_equal(out, np.sin(values) * 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_nearly_the_same(dtype: str) -> None:
    values = np.random.default_rng(0).uniform(-30, 30, 10_007).astype(dtype)
    found = fast(lambda x: np.sin(x) * 2, values)
    expected = np.sin(values.astype("longdouble")) * 2
    units = np.abs(found - expected) / np.spacing(np.abs(expected).astype(dtype))
    assert units.max() <= 4
    nothing = np.array([np.nan, np.inf, -np.inf] * 9, dtype)
    assert np.isnan(fast(lambda x: np.sin(x) * 2, nothing)).all()
    with np.errstate(divide="ignore"):
        assert np.isinf(fast(lambda x: 1 / x, np.zeros(9, dtype))).all()


def test_arithmetic_with_subnormal_numbers_is_not_slowed_down_and_others_are_left_alone() -> None:
    from gpusched.backends.flags import HAS_FLUSH

    values = np.full(100, 1e-310)
    assert np.all(fast(lambda x: np.sin(x) * 2 + 1e-312, values) == 0) == HAS_FLUSH
    assert np.all(values * 0.5 > 0), "the mode of the processor has stayed"


def test_setting_and_argument_hold_where_they_are_meant_to() -> None:
    assert active() is NONE
    with gpusched.enable(mathematics="fast"):
        assert active().mathematics == FAST
        with gpusched.enable():
            assert active().mathematics == FAST
        with gpusched.enable(mathematics="exact"):
            assert active() is NONE
    assert active() is NONE
    with dask.config.set({SETTING: "fast"}):
        assert active().mathematics == FAST

    @gpusched.enable(mathematics="fast")
    def inside() -> str:
        return active().mathematics

    assert inside() == FAST
    assert active() is NONE


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="mathematics cannot be 'quick': write 'exact' or 'fast'"):
        gpusched.enable(mathematics="quick")
    with dask.config.set({SETTING: 1}), pytest.raises(ValueError, match=f"{SETTING} cannot be 1"):
        active()


def test_programs_take_the_mode_with_them() -> None:
    for overrides in (NONE, RECORDER):
        assert unpack(pack((), 0, overrides))[2] == overrides
    assert cloudpickle.loads(cloudpickle.dumps(RECORDER)) == RECORDER
    assert len({NONE.token, RECORDER.token, Overrides(mathematics=FAST).token}) == 2


def test_device_compiles_in_the_mode_of_the_program() -> None:
    compiled: list[Kernel] = []
    watched = replace(HOST, compile=lambda kernel: compiled.append(kernel) or HOST.compile(kernel))
    kernel = kernel_of(lambda x: np.cos(x) + 1, np.ones(8))
    RECORDER.on(watched).compile(kernel)
    NONE.on(watched).compile(kernel)
    assert [k.mathematics for k in compiled] == [FAST, EXACT]


def test_version_of_a_kernel_holds_in_both_modes_and_is_made_in_the_exact_one(
    tmp_path: Path,
) -> None:
    y = np.sin(da.from_array(np.linspace(-9, 9, 10_000), chunks=10_000)) * 2
    with gpusched.enable(mathematics="fast"):
        (shown,) = gpusched.explain(y).kernels
        with pytest.raises(EditionError, match="fast mode: change it as"):
            shown.edit(tmp_path / "fast.py")
        assert not list(tmp_path.iterdir())
        with gpusched.enable(mathematics="exact"):
            (shown,) = gpusched.explain(y).kernels
            edited = shown.edit(tmp_path / "exact.py")
        text = edited.path.read_text()
        edited.path.write_text(text.replace("float64(2.0)", "float64(3.0)"))
        quick = y.compute(scheduler="sync")
        edited.apply(check=False)
        try:
            changed = y.compute(scheduler="sync")
        finally:
            edited.remove()
    np.testing.assert_allclose(changed, quick * 1.5)


def test_two_threads_compute_in_both_modes_at_once() -> None:
    values = np.linspace(-9, 9, 30_000)
    y = np.tanh(da.from_array(values, chunks=10_000)) + np.sin(values)
    with gpusched.enable():
        exact = y.compute(scheduler="threads")
        with gpusched.enable(mathematics="fast"):
            quick = y.compute(scheduler="threads")
            shown = str(gpusched.explain(y))
        again = y.compute(scheduler="threads")
    np.testing.assert_array_equal(exact, again)
    np.testing.assert_allclose(quick, exact, rtol=0, atol=1e-15)
    assert "fast mathematics" in shown
    with concurrent.futures.ThreadPoolExecutor(2) as pool, gpusched.enable():
        found = list(pool.map(lambda _: y.compute(scheduler="sync"), range(4)))
    for each in found:
        np.testing.assert_array_equal(each, exact)
