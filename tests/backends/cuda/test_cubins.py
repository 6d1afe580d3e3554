"""Cubins are found again, and never believed when damaged."""

from __future__ import annotations

from pathlib import Path

import dask
import pytest

from gpusched.backends.cuda import runtime
from gpusched.store.sharing import obtain

CC = (9, 0)
CODE = b"\x7fELF" + bytes(range(256)) * 20


def get(text: str = "text", cc: tuple[int, int] = CC) -> bool:
    """Return whether the cubin had to be built."""
    built = []

    def build() -> tuple[bytes, bytes]:
        built.append(CODE)
        return CODE, CODE

    assert obtain(runtime.wanted("add_1234", text, cc), bytes, build) == CODE
    return bool(built)


def test_found_again_for_the_same_text_and_kind(tmp_path: Path) -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        assert get()
        assert not get()
        assert get("other text")
        assert get(cc=(8, 0))
        assert len(list(tmp_path.rglob("*.cubin"))) == 3
        assert not list(tmp_path.rglob(".writing-*"))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damaged_file_is_built_again(damage: str, tmp_path: Path) -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        assert get()
        (path,) = tmp_path.rglob("*.cubin")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes({"flip": bytes(content), "cut": content[:99], "empty": b""}[damage])
        assert get()
        assert not get()


def test_no_directory_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        assert get()
        assert get()
    assert not list(tmp_path.iterdir())


def test_directory_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "cubins").write_text("in the way")
    with (
        dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}),
        pytest.warns(RuntimeWarning, match="cache-directory"),
    ):
        assert get()
