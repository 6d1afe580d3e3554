"""What is known of the processor: LLVM is asked once, and its answer remembered."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from gpusched.backends.cache import KernelCache
from gpusched.store import processors, tuned
from gpusched.store.service import client as service
from tests.store.test_cache import sample_kernel

XEON = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C
stepping\t: 8
cpu MHz\t\t: 2599.998
flags\t\t: fpu sse2 avx512f

processor\t: 1
vendor_id\t: AuthenticAMD
"""


class Machine:
    """A processor, as Linux and LLVM describe it, and how often LLVM was asked."""

    def __init__(self, cpuinfo: Path) -> None:
        self._cpuinfo = cpuinfo
        self.asked = 0
        self.answer = "sapphirerapids", "+avx512f"

    def llvm(self) -> tuple[str, str]:
        self.asked += 1
        return self.answer

    def described(self, text: str = XEON) -> tuple[str, str]:
        """Return what a new process knows of a processor that Linux says this of."""
        self._cpuinfo.write_text(text)
        processors._described.cache_clear()
        return processors.name(), processors.features()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    found = Machine(tmp_path / "cpuinfo")
    monkeypatch.setattr(processors, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(processors, "_from_llvm", found.llvm)
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / "cache")}):
        yield found
    processors._described.cache_clear()


def test_llvm_is_asked_once_for_each_kind_of_processor(machine: Machine) -> None:
    assert machine.described() == machine.answer
    assert machine.described(XEON.replace("2599.998", "3100.002")) == machine.answer
    assert machine.asked == 1
    others = [("avx512f", "avx2"), ("143", "207"), ("stepping\t: 8", "stepping\t: 9")]
    for count, other in enumerate(others, 2):
        machine.answer = "another", f"+{count}"
        assert machine.described(XEON.replace(*other)) == machine.answer
        assert machine.asked == count


def test_where_nothing_has_been_compiled_llvm_is_not_asked_and_nothing_written(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_client", service.Client())
    for lru in (processors.key, tuned.here):
        lru.cache_clear()
    processors._described.cache_clear()
    try:
        assert KernelCache().loaded(sample_kernel()) is None
        with dask.config.set({"gpusched.fusion.compiler": "service"}):
            assert service.starting() > 0
        assert not machine.asked and not (tmp_path / "cache").exists()
        # What others have compiled may be for this processor.
        (tmp_path / "cache" / "kernels").mkdir(parents=True)
        assert KernelCache().loaded(sample_kernel()) is None
        assert machine.asked == 1
        assert not list((tmp_path / "cache" / "kernels").iterdir())
    finally:
        for lru in (processors.key, tuned.here):
            lru.cache_clear()


def test_versions_are_those_that_the_packages_have() -> None:
    processors.version.cache_clear()
    for package in ("numpy", "dask", "llvmlite"):
        assert processors.version(package) == importlib.metadata.version(package)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        processors.version("gpusched-no-such-package")


@pytest.mark.parametrize("text", ["", XEON.replace("flags", "other")])
def test_what_linux_does_not_tell_is_not_remembered(machine: Machine, text: str) -> None:
    machine.described(text)
    machine.described(text)
    assert machine.asked == 2


def test_an_llvm_of_unknown_version_is_asked_each_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(processors, "version", unknown)
    assert machine.described() == machine.described() == machine.answer
    assert machine.asked == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": [1]}'])
def test_a_damaged_file_is_made_again(machine: Machine, tmp_path: Path, content: str) -> None:
    machine.described()
    (tmp_path / "cache" / processors.FILE).write_text(content)
    assert machine.described() == machine.described() == machine.answer
    assert machine.asked == 2


def test_without_a_cache_directory_each_process_asks(machine: Machine) -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        assert machine.described() == machine.described() == machine.answer
    assert machine.asked == 2


def test_numba_may_be_halfway_through_its_import_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert processors.interpreted()
    monkeypatch.delenv("NUMBA_DISABLE_JIT")
    assert not processors.interpreted()
