"""Sources in files: written, changed, applied, and opened in an editor."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.editing.checking import MismatchError
from gpusched.emit.editions import EditionError
from gpusched.inspection import kernel_listings
from gpusched.inspection.kernel_listings import EditorError
from tests.tiers import exhaustive
from tests.tuning.conftest import kernel_of


def test_file_has_the_source_with_the_users_lines(program: da.Array, tmp_path: Path) -> None:
    kernel = kernel_of(program)
    mine = kernel.edit(tmp_path / "mine.py")
    assert mine.path == tmp_path / "mine.py"
    assert mine.path.read_text() == kernel.source
    assert "conftest.py:" in kernel.source
    assert not mine.applied


def test_changed_file_is_checked_and_applied(program: da.Array, tmp_path: Path) -> None:
    mine = kernel_of(program).edit(tmp_path / "mine.py")
    assert mine.path is not None
    text = mine.path.read_text()
    mine.path.write_text(text.replace("float64(1.0)", "float64(2.0)"))
    with pytest.raises(MismatchError, match="expected"):
        mine.apply()
    before = program.compute()
    mine.apply(check=False)
    np.testing.assert_allclose(program.compute(), before + 7)
    mine.path.write_text(text.replace("float64(1.0)", "float64(3.0)"))
    np.testing.assert_allclose(program.compute(), before + 7)  # until it is applied again
    mine.apply(check=False)
    np.testing.assert_allclose(program.compute(), before + 14)
    mine.remove()
    np.testing.assert_array_equal(program.compute(), before)


def test_loops_can_be_changed(program: da.Array, tmp_path: Path) -> None:
    mine = kernel_of(program).edit(tmp_path / "mine.py")
    assert mine.path is not None
    text = mine.path.read_text()
    start = text.index("        for i in range(n1)")
    end = len(text)
    mine.path.write_text(text[:start] + "        for j in range(n1):\n            i = n1 - 1 - j\n"
                         + "            out_0[i] = (x_0[i] + 1.0) * s0\n" + text[end:])  # fmt: skip
    text = mine.path.read_text()
    if "x_0" not in text.split("shift", 1)[0] + text[:start]:
        mine.path.write_text(text.replace("x_0[i]", "a_0[i]"))
    before = program.compute()
    with mine:
        np.testing.assert_array_equal(program.compute(), before)
    assert gpusched.statistics().edited_launches == 4


def test_error_names_the_line_of_the_file(program: da.Array, tmp_path: Path) -> None:
    mine = kernel_of(program).edit(tmp_path / "mine.py")
    assert mine.path is not None
    text = mine.path.read_text()
    line = text[: text.index("float64(1.0)")].count("\n") + 1
    for wrong, told in (("flot64(1.0)", "'flot64' is not defined"), ("'x'", "cannot be compiled")):
        mine.path.write_text(text.replace("float64(1.0)", wrong))
        with pytest.raises(EditionError, match=f"mine.py:{line}: .*{told}"):
            mine.apply()
    assert not mine.applied


def test_a_function_with_the_name_of_one_of_the_loops_is_told(program: da.Array) -> None:
    """The loops that are generated around a user's `point` would call it."""
    kernel = kernel_of(program)
    arguments = re.search(r"def point\((.*)\)", kernel.source)
    assert arguments is not None
    text = (
        "def element(x):\n    return x\n\n\n"
        f"def point({arguments[1]}):\n    return element({arguments[1].split(',')[0]})\n"
    )
    with pytest.raises(EditionError, match=r":1: .*a function element .*give yours another name"):
        gpusched.override(kernel, text).check()


def test_file_that_is_there_is_kept(program: da.Array, tmp_path: Path) -> None:
    kernel = kernel_of(program)
    kernel.edit(tmp_path / "mine.py")
    with pytest.raises(FileExistsError, match=r"gpusched.override\(kernel"):
        kernel.edit(tmp_path / "mine.py")
    kernel.edit(tmp_path / "mine.py", overwrite=True)
    with gpusched.override(kernel, tmp_path / "mine.py") as mine:
        assert mine.path == tmp_path / "mine.py"


def test_version_is_edited_further(program: da.Array, tmp_path: Path) -> None:
    mine = kernel_of(program).edit(tmp_path / "mine.py")
    assert mine.path is not None
    mine.path.write_text("# mine\n" + mine.path.read_text())
    with mine:
        again = kernel_of(program).edit(tmp_path / "again.py")
    assert again.path is not None
    assert again.path.read_text().startswith("# mine\n")
    assert again.kernel == mine.kernel


def test_target_is_one_of_two(program: da.Array, tmp_path: Path) -> None:
    mine = kernel_of(program).edit(tmp_path / "mine.py", target="cuda")
    assert mine.path is not None
    assert "thread_x()" in mine.path.read_text()
    assert mine.check() > 0
    with pytest.raises(ValueError, match="say 'cpu' or 'cuda'"):
        kernel_of(program).edit(tmp_path / "x.py", target="gpu")


@pytest.mark.processes
def test_editor_changes_the_file_and_the_version_is_applied(
    program: da.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/return t1/return t1 + 0/; 1i # edited' $2\n")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("VISUAL", f"{editor} --wait")
    monkeypatch.setattr(
        kernel_listings, "sys", SimpleNamespace(stdin=_Terminal(), stdout=_Terminal())
    )
    mine = kernel_of(program).edit(tmp_path / "mine.py", editor=True)
    assert mine.path is not None
    assert mine.path.read_text().startswith("# edited")
    assert mine.applied
    mine.remove()


class _Terminal:
    def isatty(self) -> bool:
        return True


def test_editor_needs_a_terminal(
    program: da.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "ed")
    monkeypatch.delenv("VISUAL", raising=False)
    with pytest.raises(EditorError, match="no terminal"):
        kernel_of(program).edit(tmp_path / "mine.py", editor=True)
    monkeypatch.delenv("EDITOR")
    with pytest.raises(EditorError, match="neither VISUAL nor EDITOR"):
        kernel_of(program).edit(tmp_path / "mine.py", editor=True)
    assert not (tmp_path / "mine.py").exists()


@pytest.mark.parametrize("name", exhaustive("running-total", "places"))
def test_scans_and_searches_can_be_changed(name: str, tmp_path: Path) -> None:
    x = da.from_array(np.random.default_rng(0).normal(size=(40, 30)), chunks=(40, 30))
    if name == "running-total":
        program = (x * 2.0).map_blocks(np.cumsum, axis=0, dtype=float)
    else:
        program = da.digitize(x * 2.0, np.linspace(-3, 3, 9))
    with gpusched.enable():
        before = program.compute()
        mine = kernel_of(program).edit(tmp_path / "mine.py")
        assert mine.path is not None
        mine.apply()
        np.testing.assert_array_equal(program.compute(), before)
        text = mine.path.read_text()
        mine.path.write_text(text.replace("float64(2.0)", "float64(4.0)"))
        with pytest.raises(MismatchError, match="expected"):
            mine.apply()
        mine.remove()
