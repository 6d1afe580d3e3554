"""Another backend takes a text, a compiler and what it can do: here C, by the system's compiler.

It computes the golden kernels with NumPy's values, without a change outside of what writes and
what compiles kernels.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusched.backends.devices import HOST, Device
from gpusched.emit.floatingpoint import DIVIDE, INVALID, take
from gpusched.emit.kernel import Kernel
from gpusched.store.handles import CompiledKernel, KernelStore
from tests.backends import clanguage
from tests.emit.test_generate import CASES, GOLDEN
from tests.record import recording

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = [
    pytest.mark.essential,  # It starts the compiler.
    pytest.mark.processes,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler here"),
]

ULP = 16
"""Units in the last place: C's functions are as exact as ours, and sums are joined as in ours."""


class CKernels(KernelStore):
    """Kernels as shared objects in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def loaded(self, kernel: Kernel) -> CompiledKernel | None:
        """Return None: every process compiles its own."""
        return None

    def obtained(self, kernel: Kernel) -> CompiledKernel:
        """Return a kernel compiled by the system's compiler."""
        file = self.folder / f"{kernel.name}.c"
        file.write_text(clanguage.source(kernel))
        made = file.with_suffix(".so")
        command = [COMPILER, "-O1", "-frounding-math", "-ffp-contract=off", "-w", "-shared",
                   "-fPIC", str(file), "-o", str(made), "-lm"]  # fmt: skip
        subprocess.run(command, check=True)  # type: ignore[arg-type]
        function = ctypes.CDLL(str(made)).kernel
        function.restype = ctypes.c_int64
        numbers = [np.ctypeslib.as_ctypes_type(np.dtype(name)) for name in kernel.parameters]
        count = len(kernel.operands)

        def call(*arguments: Any) -> int:
            rest = arguments[count:]
            given = [ctypes.c_void_p(array.ctypes.data) for array in arguments[:count]]
            given += [kind(value) for kind, value in zip(numbers, rest, strict=False)]
            given += [ctypes.c_int64(size) for size in rest[len(numbers) :]]
            return int(function(*given))

        return CompiledKernel(kernel, call)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    store = CKernels(tmp_path)
    monkeypatch.setitem(recording.BACKENDS, "c", store.get)
    return replace(
        HOST, name="c", compile=store.handle, can=replace(HOST.can, tiles=False, windows=False)
    )


def check(function: Callable[..., Any], arrays: list[np.ndarray], device: Device) -> list[str]:
    """Assert that a function's kernels, in C, give NumPy's values; return their names."""
    with np.errstate(all="ignore"):
        expected = function(*arrays)
    found = recording.record(function, *arrays, backend="c", device=device)
    recording.assert_same(found.result, expected, ULP)
    return [launch.name for launch in found.launches]


@pytest.mark.parametrize("name", CASES)
def test_golden_kernels_have_numpys_values(name: str, device: Device) -> None:
    function, arrays = CASES[name]
    golden = (GOLDEN / f"{name}.py").read_text()
    names = check(function, arrays, device)
    # Loops of windows are those of other reductions here.
    assert "_windows_" in golden or (
        [f"# {each}," in golden for each in names] == [True] * golden.count("written by")
    )
    random = np.random.default_rng(0)
    check(function, [random.uniform(0.5, 9, a.shape).astype(a.dtype) for a in arrays], device)


def test_errors_are_those_that_numpy_reports(device: Device) -> None:
    x = np.array([[0.0, 1.0], [4.0, -2.0]], "float32")
    found = recording.record(lambda a: np.log(2 / a), x, backend="c", device=device)
    take()
    found.plan.run((x,))
    assert take() & DIVIDE
    x[0, 0] = 1
    found.plan.run((x,))
    assert take() & INVALID
    x[1, 1] = 2
    found.plan.run((x,))
    assert take() == 0
