"""`gpusched doctor` compiles and runs kernels on each GPU."""

from __future__ import annotations

import pytest

from gpusched.cli.checks import gpu_kernels
from gpusched.workers.visible_gpus import visible_devices

pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = [pytest.mark.gpu, pytest.mark.processes]


def test_each_gpu_computes_and_is_named() -> None:
    found = gpu_kernels.kernels()
    assert found.status == "ok", found.text
    assert all(f"{entry} (" in found.text for entry in visible_devices())


def test_a_compiler_that_fails_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (
        "from gpusched.backends.cuda import numba_cuda\n"
        "del numba_cuda.compiler.kernel_fixup\n"
        # Not from the folder of what has been compiled.
        "import dask\ndask.config.set({{'gpusched.fusion.cache-directory': None}})\n"
    )
    monkeypatch.setattr(gpu_kernels, "_PROGRAM", broken + gpu_kernels._PROGRAM)
    found = gpu_kernels.kernels()
    assert found.status == "failure"
    assert "kernel_fixup" in found.text
    assert "numba-cuda 0." in found.text
    assert "[cuda13]" in found.remedy


def test_a_wrong_result_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = gpu_kernels._PROGRAM.replace("wanted = program(values)", "wanted = program(values) + 1")
    monkeypatch.setattr(gpu_kernels, "_PROGRAM", wrong)
    found = gpu_kernels.kernels()
    assert found.status == "failure"
    assert "an elementwise kernel" in found.text


def test_no_gpu_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_kernels, "has_hardware", lambda: False)
    assert gpu_kernels.kernels().status == "skipped"
