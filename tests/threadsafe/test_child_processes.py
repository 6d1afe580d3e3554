"""The policy ``process``: crashes, cancelled tasks, what is dropped, and ends that are shared."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import psutil
import pytest

from gpusched import threadsafe
from gpusched.threadsafe import waits
from gpusched.threadsafe.registry import guard_for
from gpusched.threadsafe.task_cleanup import running
from tests.threadsafe import fragile
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def test_calls_are_made_elsewhere_by_one_process() -> None:
    getpid = threadsafe.wrap(os.getpid, threadsafe.process("one"))
    again = threadsafe.wrap(os.getpid, threadsafe.process("one"))
    other = threadsafe.wrap(os.getpid, threadsafe.process("two"))
    assert getpid() == again()
    assert len({getpid(), other(), os.getpid()}) == 3


def test_arrays_and_errors_travel() -> None:
    library = threadsafe.wrap(np, "process")
    array = np.arange(1000.0).reshape(10, 100)
    np.testing.assert_array_equal(library.sqrt(array), np.sqrt(array))
    with pytest.raises(ValueError, match="reshape") as caught:
        library.reshape(array, (3, 3))
    assert "In the child process" in caught.value.__notes__[0]


def test_library_that_exits_ends_its_caller_and_not_the_child() -> None:
    """As by `argparse`, it raises `SystemExit`, which the caller sees without a child, too."""
    library = threadsafe.wrap(sys, threadsafe.process("exits"))
    getpid = threadsafe.wrap(os.getpid, threadsafe.process("exits"))
    before = getpid()
    with pytest.raises(SystemExit, match="3"):
        library.exit(3)
    assert getpid() == before


def test_objects_that_stay_there_are_arguments_there() -> None:
    library = threadsafe.wrap(fragile, "process")
    first, second = library.File(2), library.File(3)
    assert len(first + second) == 5
    assert first.same(first)
    assert not first.same(second)
    assert [list(part) for part in (first.part(1), second)] == [[1], [0, 1, 2]]


def kept(name: str) -> int:
    """Return how many objects a child keeps, with the function that tells it."""
    import gc

    return sum(len(each._kept) for each in gc.get_objects() if type(each).__name__ == "Child")


def test_what_nobody_refers_to_is_dropped_there() -> None:
    count = threadsafe.wrap(kept, threadsafe.process("dropping"))
    make = threadsafe.wrap(fragile.File, threadsafe.process("dropping"))
    before = [count(""), count("")][-1]
    files = [make(2) for _ in range(10)]
    assert count("") == before + 11
    del files
    count("")
    assert count("") == before + 1


def test_crash_is_an_error_and_the_next_call_starts_anew() -> None:
    library = threadsafe.wrap(ctypes, threadsafe.process("crash"))
    file = threadsafe.wrap(fragile.File, threadsafe.process("crash"))(2)
    with pytest.raises(threadsafe.ChildError, match=r"process\(crash\) ended with exit code -11"):
        library.string_at(0)
    with pytest.raises(threadsafe.ChildError, match="went with it: make it again"):
        len(file)
    assert library.sizeof(ctypes.c_int) == 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_process_has_a_child_of_its_own() -> None:
    library = threadsafe.wrap(fragile, threadsafe.process("forked"))
    file = library.File(2)
    forked = os.fork()
    if not forked:
        with contextlib.suppress(BaseException):
            assert len(library.File(3)) == 3
            with pytest.raises(threadsafe.ChildError, match="went with it: make it again"):
                len(file)
            os._exit(5)
        os._exit(1)
    _, status = os.waitpid(forked, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    assert len(file) == 2


def test_start_is_bounded() -> None:
    with (
        dask.config.set({"gpusched.threadsafe.start-timeout": "1 ms"}),
        pytest.raises(threadsafe.ChildError, match=r"did not start within 0\.001 s"),
    ):
        threadsafe.wrap(os.getpid, threadsafe.process("slow start"))()
    assert threadsafe.wrap(os.getpid, threadsafe.process("slow start"))() != os.getpid()


def test_child_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(threadsafe.ChildError, match="ended with exit code 1"):
        threadsafe.wrap(os.getpid, threadsafe.process("no start"))()


def block(file: str) -> None:
    """Say that it has begun, and never return the interpreter's lock."""
    Path(file).write_text(str(os.getpid()))
    ctypes.PyDLL(None).pause()


def child_of(file: Path) -> psutil.Process:
    """Return the child that has begun to block."""
    return psutil.Process(int(wait_for(lambda: file.exists() and file.read_text())))


def test_cancelled_task_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "is_cancelled", lambda key: (tmp_path / "begun").exists())
    with running("unwanted"), pytest.raises(threadsafe.TaskCancelledError, match="unwanted"):
        threadsafe.wrap(block, threadsafe.process("cancelled"))(str(tmp_path / "begun"))
    child = int((tmp_path / "begun").read_text() or 0)
    assert not psutil.pid_exists(child)
    monkeypatch.undo()
    assert threadsafe.wrap(os.getpid, threadsafe.process("cancelled"))() != os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child ends after its call")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_child_ends_with_its_parent_even_in_a_call(tmp_path: Path, number: int) -> None:
    code = (
        "import sys; from gpusched import threadsafe;"
        "from tests.threadsafe import test_child_processes;"
        "threadsafe.wrap(test_child_processes.block, 'process')(sys.argv[1])"
    )
    file = tmp_path / "begun"
    parent = subprocess.Popen([sys.executable, "-c", code, str(file)], cwd=ROOT)
    child = child_of(file)
    parent.send_signal(number)
    parent.wait(60)
    child.wait(60)


def test_child_outlives_the_thread_that_called_first() -> None:
    getpid, found = threadsafe.wrap(os.getpid, threadsafe.process("outlives")), []
    thread = threading.Thread(target=lambda: found.append(getpid()))
    thread.start()
    thread.join()
    assert getpid() == found[0]


def test_child_ends_with_the_interpreter() -> None:
    code = (
        "import os; from gpusched import threadsafe; print(threadsafe.wrap(os.getpid, 'process')())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not psutil.pid_exists(int(done.stdout))


def test_calls_take_turns(together: Any) -> None:
    library = threadsafe.wrap(fragile, threadsafe.process("turns"))
    together(*[lambda: [library.add(1, i) for i in range(20)]] * 6)
    assert library.state.overlaps == 0
    assert library.state.entries == 120
    assert guard_for(threadsafe.process("turns")).counts.waits > 0
