"""The magics, in a real IPython shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpusched
from gpusched import events
from gpusched.inspection import Explanation
from gpusched.profiling import Profile

pytest.importorskip("IPython")

from IPython.testing.globalipapp import start_ipython

PROGRAM = """
import dask.array as da
x = da.ones((4000, 100), chunks=(1000, 100))
total = ((x - 0.5) * 3 + x).sum().compute(scheduler="threads")
"""


@pytest.fixture(scope="module")
def started() -> Any:
    return start_ipython() or __import__("IPython").get_ipython()


@pytest.fixture
def shell(started: Any) -> Iterator[Any]:
    """Give a shell with the extension, and names of its own."""
    started.reset(new_session=False)
    with gpusched.enable():
        started.extension_manager.load_extension("gpusched")
        yield started
    assert events.active == ()


def test_cell_runs_in_the_shell_and_its_profile_is_the_value(shell: Any) -> None:
    found = shell.run_cell_magic("gpusched_profile", "", PROGRAM)
    assert isinstance(found, Profile)
    assert shell.user_ns["total"] == 4000 * 100 * 2.5
    assert [row.launches for row in found.kernels] == [4]
    html = found._repr_html_()
    assert html is not None and html.startswith("<iframe")


def test_lines_of_the_cell_are_those_behind_its_kernels(shell: Any) -> None:
    found = shell.run_cell_magic("gpusched_profile", "", PROGRAM)
    (row,) = found.kernels
    assert "total = ((x - 0.5) * 3" in [place.text for place in row.places][-1]


def test_places_are_named_as_cells(shell: Any) -> None:
    before = shell.execution_count
    shell.run_cell("import dask.array as da\nx = da.ones(4000, chunks=1000)\ny = x * 2 + 1",
                   store_history=True)  # fmt: skip
    told = str(gpusched.explain(shell.user_ns["y"]))
    assert f"In[{before}]:3" in told


def test_explained_expression_is_shown_as_a_line(shell: Any) -> None:
    shell.run_cell(PROGRAM)
    told = shell.run_line_magic("gpusched_explain", " x * 3 + x ").text()
    assert f"In[{shell.execution_count}]:1" in told and "x * 3 + x" in told


def test_line_is_profiled_too(shell: Any) -> None:
    shell.run_cell(PROGRAM)
    found = shell.run_line_magic("gpusched_profile", "(x * 2 + 1).compute(scheduler='sync')")
    assert [row.launches for row in found.kernels] == [4]


def test_profile_is_written_and_named(shell: Any, tmp_path: Path) -> None:
    page, trace = tmp_path / "a page.html", tmp_path / "out.json"
    shell.run_cell_magic("gpusched_profile", f"-o '{page}' --name mine", PROGRAM)
    assert page.read_text().startswith("<!doctype html>")
    assert isinstance(shell.user_ns["mine"], Profile)
    shell.run_cell_magic("gpusched_profile", f"--output {trace}", PROGRAM)
    assert json.loads(trace.read_text())["traceEvents"]


def test_cell_that_fails_is_still_profiled(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ran = shell.run_cell(f"%%gpusched_profile -n found\n{PROGRAM}\n1 / 0")
    assert not ran.success
    told = capsys.readouterr()
    assert told.out.count("ZeroDivisionError: ") == 1
    assert "the profiled cell failed" in told.out + told.err
    assert shell.user_ns["found"].kernels


@pytest.mark.parametrize(
    "line",
    ["x.sum()", "--nonsense", "-o", "-o 'out.html", "-o out.txt", "-o /nowhere/out.html", "-n 3x"],
)
def test_wrong_options_are_named(shell: Any, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell(f"%%gpusched_profile {line}\ntotal = 1")
    assert "total" not in shell.user_ns
    told = capsys.readouterr()
    assert "%%gpusched_profile" in told.out + told.err


def test_explain(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell(PROGRAM)
    found = shell.run_line_magic("gpusched_explain", "(x * 3 + 1).sum()")
    assert isinstance(found, Explanation)
    assert found.totals.launches == 4
    shell.run_cell("%gpusched_explain")
    told = capsys.readouterr()
    assert "takes an expression" in told.out + told.err


def test_profile_that_cannot_be_written_is_shown(
    shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    page = tmp_path / "gone" / "out.html"
    removes = f"import os; os.rmdir({str(page.parent)!r})\n"
    shell.run_cell(f"%%gpusched_profile -o {page} -n found\n" + removes + PROGRAM)
    said = capsys.readouterr()
    assert f"cannot be written to {page}: No such file or directory" in said.err
    assert "4 launches of 1 kernel" in said.out
    assert isinstance(shell.user_ns["found"], Profile)
