"""Compiled kernels: once per process, found again on disk, and no harm from a full one."""

from __future__ import annotations

import errno
import linecache
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.fusion import codefiles
from gpusched.fusion.cache import KernelCache
from gpusched.fusion.kernel import Access, Input, Kernel, Output, Statement
from gpusched.fusion.statistics import reset_statistics, statistics

UNIT = (Access.UNIT,)


def sample_kernel(constant: str = "float64(3)") -> Kernel:
    return Kernel(
        (Input("float64", UNIT),), (),
        (Statement("multiply", 0, (0, constant), "float64", "float64"),
         Statement("add", 0, (1, "float64(1)"), "float64", "float64")),
        (Output(2, "float64", UNIT, None, "float64"),), ("map",),
    )  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        yield tmp_path


def test_many_threads_compile_a_kernel_once(directory: Path) -> None:
    reset_statistics()
    fresh = KernelCache()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: fresh.get(sample_kernel()), range(16)))
    assert len({id(k) for k in found}) == 1
    assert statistics().compilations == 1


@pytest.mark.processes
def test_a_second_process_finds_machine_code_on_disk(directory: Path) -> None:
    KernelCache().get(sample_kernel())
    reset_statistics()
    KernelCache().get(sample_kernel())
    assert statistics().compilations == 0
    code = (
        "import dask\n"
        "from tests.fusion.test_cache import sample_kernel\n"
        "from gpusched.fusion.cache import kernels\n"
        "from gpusched.fusion.statistics import statistics\n"
        f"dask.config.set({{'gpusched.fusion.cache-directory': {str(directory)!r}}})\n"
        "kernels.get(sample_kernel())\n"
        "print(statistics().compilations)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "0", done.stderr


def test_the_source_is_a_file_a_debugger_can_show(directory: Path) -> None:
    compiled = KernelCache().get(sample_kernel())
    assert Path(compiled.filename).read_text() == compiled.source
    assert "def point" in "".join(linecache.getlines(compiled.filename))
    assert compiled.kernel.name in compiled.filename


def test_without_a_directory_the_source_is_in_linecache() -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        compiled = KernelCache().get(sample_kernel("float64(4)"))
    assert "def point" in "".join(linecache.getlines(compiled.filename))
    x, out = np.arange(4.0), np.empty(4)
    compiled.call(x, out, 4)
    np.testing.assert_array_equal(out, x * 4 + 1)


@pytest.mark.parametrize("when", ["source", "machine code"])
def test_a_full_disk_is_said_once_and_costs_only_the_cache(
    directory: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(path: Path, content: bytes) -> None:
        if (path.suffix == ".py") == (when == "source"):
            full()
        codefiles_write(path, content)

    codefiles_write = codefiles.write
    monkeypatch.setattr(codefiles, "write", write)
    with pytest.warns(RuntimeWarning, match="No space left on device.*cache-directory"):
        compiled = KernelCache().get(sample_kernel())
    x, out = np.arange(4.0), np.empty(4)
    compiled.call(x, out, 4)
    np.testing.assert_array_equal(out, x * 3 + 1)
