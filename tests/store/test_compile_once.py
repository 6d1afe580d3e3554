"""A kernel that is in a file is compiled by no other process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.backends.cache import KernelCache
from gpusched.store.codefiles import DamagedCodeError, seal, unseal
from gpusched.store.handles import Handle
from gpusched.store.statistics import Statistics, reset_statistics, statistics
from tests.store.test_cache import sample_kernel

ROOT = Path(__file__).parents[2]

ASKING = """
import json, logging, sys
import dask, numpy as np
from gpusched.backends.cache import KernelCache
from gpusched.store.statistics import statistics
from tests.store.test_cache import sample_kernel

logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
dask.config.set({"gpusched.fusion.cache-directory": sys.argv[1]})
print("ready", flush=True)
sys.stdin.readline()
for constant in sys.argv[2:]:
    x, out = np.arange(4.0), np.empty(4)
    KernelCache().get(sample_kernel(f"float64({constant})")).call(x, out, 4)
    np.testing.assert_array_equal(out, x * float(constant) + 1)
counted = statistics()
print(json.dumps({name: getattr(counted, name) for name in (
    "compilations", "kernels_loaded", "kernels_received", "kernels_waited", "kernels_unshared"
)}))
"""
"""A process that wants kernels as soon as it is told to."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        reset_statistics()
        yield tmp_path


@contextmanager
def process(code: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in a process that is gone afterwards."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, cwd=ROOT, env={**os.environ, **environment},
    ) as running:  # fmt: skip
        try:
            yield running
        finally:
            running.kill()


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def start(running: subprocess.Popen[str]) -> None:
    assert line(running) == "ready"
    assert running.stdin is not None
    running.stdin.write("go\n")
    running.stdin.flush()


def counts(running: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a process counted, when it is done."""
    told = running.communicate(timeout=120)[0].splitlines()
    assert running.returncode == 0
    return dict(json.loads(told[-1]))


def asked(folder: Path, *constants: int, **environment: str) -> dict[str, Any]:
    with process(ASKING, str(folder), *map(str, constants), **environment) as running:
        start(running)
        return counts(running)


def code_file(folder: Path) -> Path:
    """Return the only file of machine code."""
    (found,) = folder.rglob("*.code")
    return found


def left_over(folder: Path) -> list[Path]:
    return [*folder.rglob(".*")]


def check(compiled: Handle) -> None:
    x, out = np.arange(4.0), np.empty(4)
    compiled.call(x, out, 4)
    np.testing.assert_array_equal(out, x * 3 + 1)


@pytest.mark.processes
def test_a_folder_that_cannot_be_written_costs_a_compilation_a_process(folder: Path) -> None:
    (folder / "kernels").write_text("in the way")
    for found in (asked(folder, 3), asked(folder, 3)):
        assert (found["compilations"], found["kernels_loaded"]) == (1, 0)
        assert sum(found["kernels_unshared"].values()) == 1
        assert "cannot write" in next(iter(found["kernels_unshared"]))
    assert (folder / "kernels").read_text() == "in the way"


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "of another kernel"])
def test_a_damaged_file_is_made_again_and_counted(folder: Path, damage: str) -> None:
    check(KernelCache().get(sample_kernel()))
    path = code_file(folder)
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    if damage == "of another kernel":
        KernelCache().get(sample_kernel("float64(7)"))
        (other,) = set(folder.rglob("*.code")) - {path}
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes({"flipped": bytes(flipped), "cut": content[:100], "empty": b""}[damage])
    reset_statistics()
    check(KernelCache().get(sample_kernel()))
    assert statistics().compilations == 1
    assert statistics().kernels_unshared == {"a damaged file": 1}
    check(KernelCache().get(sample_kernel()))
    assert statistics().kernels_loaded == 1


@pytest.mark.processes
def test_code_made_by_several_processes_does_not_mix(folder: Path) -> None:
    for constant in (3, 4):
        assert asked(folder, constant)["compilations"] == 1
    found = asked(folder, 4, 3, 5, 4, 3)
    assert (found["compilations"], found["kernels_loaded"]) == (1, 4)


@pytest.mark.processes
def test_processors_do_not_share(folder: Path) -> None:
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert asked(folder, 3)["compilations"] == 1
    assert asked(folder, 3, **generic)["compilations"] == 1
    for environment in ({}, generic):
        assert asked(folder, 3, **environment)["kernels_loaded"] == 1
    assert len(list(folder.rglob("*.code"))) == 2


@pytest.mark.processes
def test_numba_s_options_do_not_share(folder: Path) -> None:
    assert asked(folder, 3)["compilations"] == 1
    assert asked(folder, 3, NUMBA_OPT="1")["compilations"] == 1


def test_an_error_in_compiling_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpusched.backends import cpu

    def fail(*args: Any) -> Callable[..., None]:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(cpu, "compile_code", fail)
        with pytest.raises(RuntimeError, match="no"):
            KernelCache().get(sample_kernel())
    assert statistics() == Statistics()
    assert not left_over(folder)
    check(KernelCache().get(sample_kernel()))


def test_a_seal_is_of_one_key() -> None:
    assert unseal("a", seal("a", b"")) == b""
    with pytest.raises(DamagedCodeError):
        unseal("b", seal("a", b"code"))
