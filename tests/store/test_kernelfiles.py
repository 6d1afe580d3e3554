"""Which files of compiled kernels there are, and which go first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from gpusched.backends.cache import KernelCache
from gpusched.files import UnsafeFolderError
from gpusched.store import emitters, kernelfiles
from gpusched.store.statistics import reset_statistics, statistics
from tests.store.test_cache import run_kernel, sample_kernel

DAY = 86400


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        yield tmp_path


def write(root: Path, name: str, days: int, size: int = 100, folder: str = "ab-cd") -> Path:
    """Write machine code that was last used so many days ago."""
    path = root / "kernels" / folder / f"{name}-{'0' * 32}.code"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


def names(root: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in root.rglob("*.code")}


def test_a_folder_says_what_its_kernels_are_for(root: Path) -> None:
    KernelCache().get(sample_kernel())
    (found,) = kernelfiles.folders(root)
    assert found.path.name == emitters.folder_name()
    assert found.made_with == emitters.made_with()
    (kernel,) = found.kernels
    assert [path.suffix for path in kernel.paths] == [".code"]
    assert kernel.size == sum(path.stat().st_size for path in kernel.paths)


def test_what_was_not_used_for_longest_goes_first(root: Path) -> None:
    for days, name in enumerate("abcd"):
        write(root, name, days)
    gone = kernelfiles.shrink(root, 250)
    assert names(root) == {"a", "b"}
    assert sum(each.size for each in gone) == 200


def test_without_a_size_nothing_goes(root: Path) -> None:
    write(root, "old", days=999, size=10**6)
    with dask.config.set({"gpusched.fusion.cache-size": None}):
        kernelfiles.keep(write(root, "last", days=0), bytes(10**6))
    assert names(root) == {"old", "last"}


def test_loading_a_kernel_makes_it_one_of_the_last_to_go(root: Path) -> None:
    KernelCache().get(sample_kernel())
    (kept,) = root.rglob("*.code")
    os.utime(kept, (1e9, 1e9))
    run_kernel(KernelCache())
    assert time.time() - kept.stat().st_mtime < DAY


def test_a_kernel_that_was_removed_is_compiled_again(root: Path) -> None:
    KernelCache().get(sample_kernel())
    assert len(kernelfiles.clear(root)) == 1
    assert not list(root.glob("kernels/**/*"))
    reset_statistics()
    run_kernel(KernelCache())
    assert statistics().compilations == 1


def test_what_is_no_kernel_stays(root: Path) -> None:
    write(root, "a", days=0)
    others = [root / "tuning.json", root / "kernels" / "note", root / "mine" / "a.code"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    kernelfiles.clear(root)
    assert all(path.read_text() == "mine" for path in others)
    assert names(root) == {"a.code"}


def test_links_are_not_followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    kept = write(elsewhere, "a", days=0)
    (root / "kernels").mkdir()
    (root / "kernels" / "linked").symlink_to(kept.parent)
    kernelfiles.clear(root)
    assert kept.exists()


@pytest.mark.parametrize("folder", [".", "kernels", "kernels/ab-cd"])
def test_a_folder_that_others_can_write_is_left_as_it_is(root: Path, folder: str) -> None:
    kept = write(root, "a", days=0)
    (root / folder).chmod(0o777)
    with pytest.raises(UnsafeFolderError, match="not this user's alone"):
        kernelfiles.clear(root)
    assert kept.exists()


def test_kernels_that_there_is_no_way_to_are_none(root: Path) -> None:
    """As those in a folder that was made as another user, by sudo: a task looks for them."""
    (root / "kernels").mkdir()
    (root / "kernels" / emitters.folder_name()).symlink_to("x" * 300)
    assert KernelCache().loaded(sample_kernel("float64(13)")) is None
    assert not KernelCache().is_kept(sample_kernel("float64(13)"))


def test_a_cache_directory_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernelfiles._folder.cache_clear()
    monkeypatch.chdir(tmp_path)
    with dask.config.set({"gpusched.fusion.cache-directory": "own"}):
        assert kernelfiles.directory() == tmp_path / "own"
        monkeypatch.chdir("/")
        assert kernelfiles.directory() == tmp_path / "own"
    kernelfiles._folder.cache_clear()


@pytest.mark.parametrize("setting", ["default", "~/kernels"])
def test_without_a_home_kernels_are_kept_in_memory(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with dask.config.set({"gpusched.fusion.cache-directory": setting}):
        with pytest.warns(RuntimeWarning, match="set HOME"):
            assert kernelfiles.directory() is None
        assert kernelfiles.directory() is None, "with one warning"
        run_kernel(KernelCache())
