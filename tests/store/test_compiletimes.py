"""What is learned of how long compilations take."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from gpusched.backends.cache import KernelCache
from gpusched.store import kernelfiles, worthwhile
from gpusched.store.worthwhile import DEFAULT, FILE, Learned, expected, learn
from tests.store.test_cache import sample_kernel


def factor() -> float:
    """Return what has been learned."""
    return worthwhile._known(kernelfiles.directory()).factor


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(worthwhile, "_read", {})
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        yield tmp_path


def test_nothing_is_known_at_first(folder: Path) -> None:
    assert factor() == DEFAULT


def test_a_slow_machine_is_learned_and_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = sample_kernel()
    before = expected(kernel) / DEFAULT
    for _ in range(5):
        learn(kernel, 3 * before)
    assert factor() == pytest.approx(3.0)
    assert expected(kernel) == pytest.approx(3 * before)
    monkeypatch.setattr(worthwhile, "_read", {})
    assert factor() == pytest.approx(3.0), "as another process finds it"


def test_machines_that_share_a_folder_are_apart(folder: Path) -> None:
    (folder / FILE).write_text(json.dumps({"another": [9.0, 4]}))
    learn(sample_kernel(), 2 * expected(sample_kernel()) / DEFAULT)
    assert json.loads((folder / FILE).read_text()) == {"another": [9.0, 4],
                                                       platform.node(): [2.0, 1]}  # fmt: skip


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": ["x", 1]}'])
def test_a_damaged_file_is_as_none(folder: Path, content: str) -> None:
    (folder / FILE).write_text(content)
    assert factor() == DEFAULT


def test_the_newest_count_for_long() -> None:
    found = Learned()
    for _ in range(100):
        found = found.after(1.0)
    for _ in range(20):
        found = found.after(4.0)
    assert found.factor > 3


def test_what_is_compiled_is_learned_from(folder: Path) -> None:
    KernelCache().get(sample_kernel())  # May load numba, which is not the kernel's time.
    KernelCache().get(sample_kernel("float64(5)"))
    assert json.loads((folder / FILE).read_text())[platform.node()][1] >= 1
