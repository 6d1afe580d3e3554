"""CUDA kernels with blocks, vectors and repetitions that somebody has chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusched.emit.choices import applied, possible
from gpusched.emit.kernel import Kernel, Options
from gpusched.store.handles import CompiledKernel
from tests.backends.cuda.cases import numbers
from tests.record import recording
from tests.tiers import every

CHOSEN = [
    Options(block=32, vector=1, unroll=1),
    Options(block=64, vector=2, unroll=4),
    Options(block=512, vector=4, unroll=2),
    Options(block=1024, unroll=8),
]
PROGRAMS: dict[str, Callable[..., Any]] = {
    "flat": lambda a, b: (a[0] + b[0]) * 2.5 - a[0],
    "nest": lambda a, b: a * b[0] + 3,
    "strided": lambda a, b: a[:, ::2] + b[:, 1::2],
    "rows": lambda a, b: (a * b).sum(axis=0),
    "columns": lambda a, b: (a - b).max(axis=1),
    "all": lambda a, b: (a + b).sum(),
}


def ids(options: Options) -> str:
    return f"{options.block}-{options.vector}-{options.unroll}"


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return numbers(3, 1110), numbers(3, 1110, seed=1)


@pytest.mark.parametrize("options", every(3, CHOSEN), ids=ids)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_numpys(name: str, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("greenlet", reason="the simulator's threads are greenlets")
    from tests.backends.cuda.runtimes import SimulatorRuntime

    runtime = SimulatorRuntime()

    def get(kernel: Kernel) -> CompiledKernel:
        return runtime.get(replace(kernel, options=applied(kernel, options, "cuda")))

    monkeypatch.setitem(recording.BACKENDS, "chosen", get)
    recording.check(PROGRAMS[name], *arrays(), backend="chosen")
    kernel, geometry = runtime.launches[0]
    x, y, z = geometry.block
    assert x * y * z <= (options.block or 0)
    assert kernel.options.block == options.block


@pytest.mark.parametrize(
    ("options", "cc"), list(zip(CHOSEN, [(8, 0), (9, 0), (10, 0), (9, 0)], strict=True))
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_machine_code_is_made(name: str, options: Options, cc: tuple[int, int]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda compiles")
    from gpusched.backends.cuda.runtime import compile_for

    found: list[Kernel] = []

    def get(kernel: Kernel) -> CompiledKernel:
        found.append(kernel)
        return recording.reference(kernel)

    recording.BACKENDS["noting"] = get
    try:
        recording.record(PROGRAMS[name], *(a[:, :10] for a in arrays()), backend="noting")
    finally:
        del recording.BACKENDS["noting"]
    for kernel in found:
        chosen = replace(kernel, options=applied(kernel, options, "cuda"))
        compiled = compile_for(chosen, cc)
        assert compiled.cubin.startswith(b"\x7fELF")
        assert f".maxntid {options.block}" in compiled.ptx()


def test_what_makes_no_difference_is_left_out() -> None:
    kernel = replace(_copy(), options=applied(_copy(), Options(unroll=4, block=64), "cpu"))
    assert kernel == _copy()
    assert set(possible(_copy(), "cuda")) == {"block", "vector", "unroll"}


def _copy() -> Kernel:
    from gpusched.emit.kernel import Access, Input, Output

    unit = (Access.UNIT,)
    return Kernel((Input("float32", unit),), (), (), (Output(0, "float32", unit),), ("map",))
