"""Files that replace others whole, for all that the package writes so."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from gpusched import files
from tests.disks import mounted

ROOT = Path(__file__).parents[1]


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with files.replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with files.replacing(path) as file:
            file.write(b"new")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_errors_name_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    def write(path: Path, content: bytes, name: str | None) -> None:
        with files.replacing(path) as file:
            file.write(content)
            if content == b"":
                raise OSError(errno.ENOSPC, "No space left on device", name)

    def error_of(path: Path, content: bytes = b"new", name: str | None = None) -> OSError:
        with pytest.raises(OSError) as raised:
            write(path, content, name)
        return raised.value

    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "none" / "file", tmp_path / "folder"):
        assert error_of(path).filename == str(path)
    path = tmp_path / "file"
    assert str(error_of(path, b"")) == f"[Errno 28] No space left on device: '{path}'"
    assert error_of(path, b"", "another").filename == "another"


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_nobody_else_opens_a_file_before_it_has_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / ("n" * 255)
    with files.replacing(path, mode) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == mode


def test_one_file_replaces_others() -> None:
    """`os.replace` and temporary files beside others are in `gpusched.files` alone."""
    found = [
        path.relative_to(ROOT).as_posix()
        for folder in ("gpusched", "workers", "serialization")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r"\bos\.replace\(|\bmkstemp\(|\bos\.rename\(", path.read_text())
    ]
    assert found == ["gpusched/files.py"]


@pytest.mark.processes
def test_a_report_without_room_leaves_no_file(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "4k") as small:
        with pytest.raises(OSError, match="No space left"):
            files.write_or_remove(small / "report", "long" * 4096)
        assert not list(small.iterdir())
    (tmp_path / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    files.write_or_remove(tmp_path / "link", "grün")
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "grün"
    with pytest.raises(OSError, match="No space left"):
        files.write_or_remove("/dev/full", "text")
    assert os.path.exists("/dev/full")
