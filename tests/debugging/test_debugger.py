"""Debuggers stop where they should, and show the kernel with the user's names."""

from __future__ import annotations

import bdb
import io
import linecache
import os
import pdb  # noqa: T100
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.inspection.programs import numbers, sorted_rows
from tests.waiting import PATIENCE

Drive = Callable[..., str]


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Drive:
    """Give what types commands into pdb while a function runs, and returns what pdb shows."""

    def driven(commands: str, function: Callable[..., Any], *args: Any, **options: Any) -> str:
        shown, typed = io.StringIO(), io.StringIO(commands.replace("; ", "\n") + "\n")

        def hook() -> None:
            debugger = pdb.Pdb(stdin=typed, stdout=shown, nosigint=True, readrc=False)
            debugger.use_rawinput = False
            debugger.set_trace(sys._getframe(1))

        monkeypatch.setattr(sys, "breakpointhook", hook)
        before = sys.gettrace()
        try:
            function(*args, **options)
        finally:
            sys.settrace(before)
        return shown.getvalue()

    return driven


def ratio_of(a: Any, b: Any) -> Any:
    difference = a - b
    return difference / (a + b) * 2.5


@pytest.fixture
def x() -> da.Array:
    a, b = numbers((40, 30), 20), numbers((30,), 20, seed=1)
    return da.map_blocks(ratio_of, a, b, dtype="float64")


def test_pdb_stops_at_the_first_line_of_point(drive: Drive, x: da.Array) -> None:
    shown = drive("args; p difference; n; p difference; c", gpusched.debug, x, (25, 3))
    lines = shown.splitlines()
    assert lines[0].endswith("point()")
    assert lines[1].startswith("-> difference = ")
    assert "test_debugger.py" in lines[1]
    a, b = numbers((40, 30), 20)[25, 3].compute(), numbers((30,), 20, seed=1)[3].compute()
    assert f"np.float64({a})" in shown and f"np.float64({b})" in shown
    assert "NameError: name 'difference' is not defined" in shown
    assert f"np.float64({a - b})" in shown


def test_the_loops_are_one_frame_up(drive: Drive, x: da.Array) -> None:
    shown = drive("up; w; l; c", gpusched.debug, x, chunk=(1, 0))
    assert "kernel()" in shown
    assert "for i0 in range(n0):" in shown


def test_going_on_reaches_every_element(frames: list[FrameType], x: da.Array) -> None:
    gpusched.debug(x, chunk=(1, 1), stop="every")
    assert len(frames) == 20 * 10
    assert {frame.f_code.co_name for frame in frames} == {"point"}


def test_first_and_never(frames: list[FrameType], x: da.Array) -> None:
    gpusched.debug(x, chunk=(1, 1))
    assert len(frames) == 1
    gpusched.debug(x, chunk=(1, 1), stop="never")
    assert len(frames) == 1


def test_quitting_ends_the_run(drive: Drive, x: da.Array) -> None:
    with pytest.raises(bdb.BdbQuit):
        drive("q", gpusched.debug, x, chunk=(0, 0))
    with pytest.raises(bdb.BdbQuit):
        drive("q", gpusched.debug, x, (0, 0))


def test_stops_only_where_a_condition_holds(frames: list[FrameType], x: da.Array) -> None:
    block = gpusched.debug(x, chunk=(0, 0), stop="every", condition="difference > 0.5")
    a, b = (numbers((40, 30), 20).blocks[0, 0], numbers((30,), 20, seed=1).blocks[0])
    wanted = (a - b).compute()
    assert len(frames) == (wanted > 0.5).sum() > 0
    assert block.shape == (20, 20)


def test_a_condition_that_no_kernel_can_tell(x: da.Array) -> None:
    with pytest.raises(NameError, match=r"reads differences, which no kernel .* has; .*differ"):
        gpusched.debug(x, (0, 0), condition="differences > 0")
    with pytest.raises(SyntaxError):
        gpusched.debug(x, (0, 0), condition="difference >")
    with pytest.raises(TypeError, match="write an expression"):
        gpusched.debug(x, (0, 0), condition=lambda difference: True)  # type: ignore[arg-type]


def test_a_stop_that_is_none(x: da.Array) -> None:
    with pytest.raises(ValueError, match="stop='all'; it can be"):
        gpusched.debug(x, (0, 0), stop="all")  # type: ignore[arg-type]


def test_several_kernels_are_stopped_in_one_after_the_other(frames: list[FrameType]) -> None:
    y = numbers((40, 30), 20)
    with dask.config.set({"gpusched.fusion.maximum-operations": 4}):
        for k in range(9):
            y = y * (k + 2.5) - 1
        gpusched.debug(y, (3, 4))
        gpusched.debug(y, chunk=(0, 0))
    names = [Path(frame.f_code.co_filename).stem.rpartition("-")[0] for frame in frames]
    assert len(names) > 4
    assert names[: len(names) // 2] == names[len(names) // 2 :]


def test_a_reduction_in_a_block_is_no_stop_of_an_element(frames: list[FrameType]) -> None:
    centred = numbers((40, 30), 20).map_blocks(lambda b: (b - b.mean()) * 2.5, dtype=float)
    gpusched.debug(centred, (3, 4))
    assert len(frames) == 1
    gpusched.debug(centred, chunk=(0, 0), stop="every")
    assert len(frames) == 1 + 2 * 20 * 20


def test_a_functions_own_call_is_stopped_at(
    drive: Drive, capsys: pytest.CaptureFixture[str]
) -> None:
    y = (numbers((40, 30), (20, 30)) * 2 + 1).map_blocks(sorted_rows)
    shown = drive("c; s; s; args; c", gpusched.debug, y, chunk=(0, 0))
    assert "-> result = sorted_rows(a)" in shown
    assert "sorted_rows()\n-> return np.apply_over_axes(np.sort, block * 3 - 1, 1)" in shown
    told = capsys.readouterr().err
    told_of = "gpusched.debug: sorted_rows is not fused: your function calls apply_over_axes, which"
    assert told.startswith(told_of)


def test_a_function_that_changes_its_argument_is_called_once(frames: list[FrameType]) -> None:
    def counted(block: Any) -> Any:
        block = np.sort(block)
        times.append(block.size)
        return block

    times: list[int] = []
    x = numbers((40,), 20)
    y = x.map_blocks(counted, dtype=float) * 2 + 1
    times.clear()
    gpusched.debug(y, 25)
    assert (times, len(frames)) == ([20], 2)
    gpusched.debug(y, chunk=(1,))
    assert (times, len(frames)) == ([20, 20], 4)


def test_small_chunks_are_stopped_at_as_numpy_runs_them(
    frames: list[FrameType], capsys: pytest.CaptureFixture[str]
) -> None:
    y = numbers((40, 30), 20) * 2 + 1
    with dask.config.set({"gpusched.fusion.minimum-elements": 4096}):
        assert gpusched.debug(y, (3, 4)) == y[3, 4].compute()
    assert [frame.f_code.co_name for frame in frames] == ["chunk", "chunk"]
    assert "mul is not fused: small chunks" in capsys.readouterr().err


def test_the_tasks_that_join_a_reduction(frames: list[FrameType]) -> None:
    total = ((numbers((40, 30), 20) * 2 - 1) ** 2).sum()
    assert gpusched.debug(total, ()) == pytest.approx(total.compute())
    assert "sum(" in linecache.getline(frames[0].f_code.co_filename, 3)


def test_what_cannot_be_stopped_at_is_told(
    frames: list[FrameType], capsys: pytest.CaptureFixture[str]
) -> None:
    gpusched.debug(da.ones((40, 30), chunks=20), (3, 4))
    assert not frames
    assert "its task only makes data, or moves it" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False])
def test_the_source_can_be_shown(frames: list[FrameType], x: da.Array, kept: bool) -> None:
    folder = dask.config.get("gpusched.fusion.cache-directory")
    with dask.config.set({"gpusched.fusion.cache-directory": folder if kept else None}):
        gpusched.debug(x, (0, 0))
    (frame,) = frames
    file, line = frame.f_code.co_filename, frame.f_code.co_firstlineno + 1
    assert linecache.getline(file, line).startswith("    difference")
    linecache.checkcache()
    assert linecache.getline(file, line).startswith("    difference")
    assert Path(file).exists() == kept


def test_inputs_are_only_those_that_are_needed() -> None:
    loaded: list[Any] = []

    def load(block: Any, block_info: Any = None) -> Any:
        loaded.append(block_info[None]["chunk-location"])
        return np.sort(block, axis=0)

    source = da.zeros((40, 30), chunks=10).map_blocks(load, dtype=float)
    assert gpusched.debug(source * 2 + 1, (35, 3), stop="never") == 1
    assert set(loaded) == {(3, 0)}


SCRIPT = """
import dask, dask.array as da, gpusched
dask.config.set({"gpusched.fusion.minimum-elements": 0})
gpusched.enable()
x = da.arange(40, chunks=20)
scaled = (x - 1) * 2.5
print("value", gpusched.debug(scaled, 25))
"""


def scripted(
    tmp_path: Path, commands: str, *command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with commands typed into whatever debugger it starts."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    return subprocess.run(
        [sys.executable, *command, str(script)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), **environment},
    )


@pytest.mark.processes
def test_pdb_in_a_script(tmp_path: Path) -> None:
    done = scripted(tmp_path, "n\nn\np t0\nc\n")
    assert done.returncode == 0, done.stderr
    assert "-> t0 = " in done.stdout
    assert "np.int64(24)" in done.stdout
    assert "value 60.0" in done.stdout


@pytest.mark.processes
def test_breakpoints_can_be_switched_off(tmp_path: Path) -> None:
    done = scripted(tmp_path, "", PYTHONBREAKPOINT="0")
    assert (done.returncode, done.stdout) == (0, "value 60.0\n"), done.stderr


@pytest.mark.processes
def test_another_debugger_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def hook():\n    print('my debugger')\n")
    done = scripted(tmp_path, "", PYTHONBREAKPOINT="mine.hook", PYTHONPATH=str(tmp_path))
    assert done.stdout == "my debugger\nvalue 60.0\n", done.stderr


@pytest.mark.skipif(find_spec("IPython") is None, reason="needs IPython")
@pytest.mark.processes
def test_ipython(tmp_path: Path) -> None:
    hook = "IPython.core.debugger.set_trace"
    arguments = ("-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor")
    done = scripted(tmp_path, "n\nn\np t0\nc\n", *arguments, PYTHONBREAKPOINT=hook)
    assert "24" in done.stdout, done.stdout + done.stderr
    assert "value 60.0" in done.stdout
