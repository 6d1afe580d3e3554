"""Compiled kernels: once per process, found again on disk, and no harm from a full one."""

from __future__ import annotations

import errno
import linecache
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.backends import native
from gpusched.backends.cache import KernelCache, reference
from gpusched.emit.kernel import Access, Input, Kernel, Output, Statement
from gpusched.store import codefiles, handles, kernelfiles
from gpusched.store.handles import CompiledKernel, KernelStore
from gpusched.store.statistics import reset_statistics, statistics

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


@pytest.mark.filterwarnings("error")
def test_known_kernels_are_used_where_nothing_can_be_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KernelCache().get(sample_kernel())
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix != ".code":
            path.unlink()  # A pack has machine code only.

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(codefiles, "write", refuse)
    monkeypatch.setattr(codefiles, "folder_for", refuse)
    assert KernelCache().loaded(sample_kernel()) is not None


@pytest.mark.processes
def test_a_second_process_finds_machine_code_on_disk(directory: Path) -> None:
    KernelCache().get(sample_kernel())
    reset_statistics()
    KernelCache().get(sample_kernel())
    assert statistics().compilations == 0
    code = (
        "import dask\n"
        "from tests.store.test_cache import sample_kernel\n"
        "from gpusched.backends.cache import kernels\n"
        "from gpusched.store.statistics import statistics\n"
        f"dask.config.set({{'gpusched.fusion.cache-directory': {str(directory)!r}}})\n"
        "kernels.get(sample_kernel())\n"
        "print(statistics().compilations)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "0", done.stderr


def test_the_source_is_what_tracebacks_and_debuggers_show(directory: Path) -> None:
    kernel = sample_kernel("float64(4)")
    KernelCache().get(kernel)
    assert "def point" in "".join(linecache.getlines(f"<gpusched {kernel.name}>"))


def test_without_a_directory_nothing_is_kept() -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        compiled = KernelCache().get(sample_kernel("float64(4)"))
    x, out = np.arange(4.0), np.empty(4)
    compiled.call(x, out, 4)
    np.testing.assert_array_equal(out, x * 4 + 1)


def test_a_full_disk_is_said_once_and_costs_only_the_cache(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(codefiles, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left on device.*cache-directory"):
        compiled = KernelCache().get(sample_kernel())
    x, out = np.arange(4.0), np.empty(4)
    compiled.call(x, out, 4)
    np.testing.assert_array_equal(out, x * 3 + 1)


def run_kernel(cache: KernelCache) -> None:
    out = np.zeros(5)
    cache.get(sample_kernel()).call(np.arange(5.0), out, 5)
    np.testing.assert_array_equal(out, np.arange(5.0) * 3 + 1)


def test_code_is_kept_without_pickles(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("something is unpickled")

    for name in ("loads", "dumps"):
        monkeypatch.setattr(pickle, name, refuse)
    KernelCache().get(sample_kernel())
    (kept,) = directory.glob("kernels/*/*.code")
    assert b"\x7fELF" in kept.read_bytes()
    reset_statistics()
    run_kernel(KernelCache())
    assert statistics().kernels_loaded == 1
    assert statistics().compilations == 0


@pytest.mark.parametrize(
    "code", [b"", b"\1", b"\x7fELF", b"\x7fELF\2\1\1" + bytes(57), b"\xff" * 80]
)
def test_code_of_another_form_is_refused(code: bytes) -> None:
    with pytest.raises(native.UnknownCodeError):
        native.load(code, sample_kernel())


def test_every_folder_of_the_cache_is_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / "a" / "b")}):
            KernelCache().get(sample_kernel())
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "a", *tmp_path.rglob("*")) if path.is_dir()]
    assert len(made) >= 4
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}


@pytest.mark.parametrize("above", range(4), ids=["file", "folder", "kernels", "cache directory"])
def test_code_that_others_can_write_is_not_run(directory: Path, above: int) -> None:
    KernelCache().get(sample_kernel())
    (kept,) = directory.glob("kernels/*/*.code")
    (kept, *kept.parents)[above].chmod(0o777)
    reset_statistics()
    with pytest.warns(RuntimeWarning, match="not .* alone"):
        run_kernel(KernelCache())
    assert statistics().kernels_loaded == 0
    assert statistics().compilations == 1


def test_a_folder_that_others_can_write_is_warned_of_once(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    KernelCache().get(sample_kernel())
    directory.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="alone") as found:  # noqa: PT031
        run_kernel(KernelCache())
        run_kernel(KernelCache())
        kernelfiles.write_entries(directory / "processors.json", {})
    assert [str(each.message).partition(" is ")[0] for each in found] == [str(directory)]
    assert not caplog.records


class Counting(KernelStore):
    """A store of kernels that Python runs, which counts what it makes."""

    made = 0

    def loaded(self, kernel: Kernel) -> None:
        return None

    def obtained(self, kernel: Kernel) -> CompiledKernel:
        self.made += 1
        return reference(kernel)


def test_the_oldest_kernels_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "MOST", 2)
    store = Counting()
    first, *others = (sample_kernel(f"float64({number})") for number in range(4))
    held = store.handle(first)
    held.wait()
    for kernel in others:
        store.handle(kernel).wait()
    assert (len(store), store.made, list(store)) == (2, 4, others[1:])
    store.get(others[-1])
    assert store.made == 4
    x, out = np.arange(4.0), np.empty(4)
    held.call(x, out, 4)  # It is called as before.
    np.testing.assert_array_equal(out, x * 0 + 1)
    store.get(first)
    assert store.made == 5


def test_a_kernel_is_forgotten_in_all_stores() -> None:
    one, other = Counting(), Counting()
    kernel = sample_kernel()
    for store in (one, other):
        store.get(kernel)
    handles.forget(kernel)
    assert (kernel in one, kernel in other) == (False, False)
