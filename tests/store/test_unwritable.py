"""What is said where files of the cache cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from gpusched.files import own_folder
from gpusched.store import kernelfiles


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        yield tmp_path


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def warned(path: Path, error: OSError) -> str:
    with pytest.warns(RuntimeWarning, match="cannot keep") as found:
        kernelfiles.warn_unwritable(path, error)
    assert len(found) == 1
    return str(found[0].message)


def test_a_cache_is_warned_of_once_by_its_own_folder(root: Path) -> None:
    told = warned(root / "kernels" / "ab-cd" / "add.py", error_of(errno.EROFS))
    assert f" in {root}: Read-only file system. " in told
    # Warnings are errors in tests.
    kernelfiles.warn_unwritable(root / "processors.json", error_of(errno.EROFS))
    kernelfiles.write_entries(root / ("long" * 100), {})


def test_space_is_freed_only_on_full_disks(root: Path) -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        told = warned(root.parent / str(number) / "file", error_of(number))
        assert "Free space there, or set gpusched.fusion.cache-directory" in told
    told = warned(root.parent / "read-only" / "file", error_of(errno.EROFS))
    assert "Free space" not in told
    assert told.endswith("Set gpusched.fusion.cache-directory to a folder that can be written "
                         "(null for none).")  # fmt: skip


def test_an_error_with_a_remedy_gets_no_second_one(root: Path) -> None:
    (root / "file").touch()
    with pytest.raises(NotADirectoryError) as raised:
        own_folder(root / "file" / "kernels", "name another folder")
    told = warned(root / "file" / "kernels" / "add.py", raised.value)
    assert "is not a folder: remove it, or name another folder. They are made" in told
    assert "cache-directory" not in told
