"""How a run ends: the script's exit code, its own traceback, and nothing left behind."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess

import psutil
import pytest

from tests.tiers import exhaustive
from tests.waiting import PATIENCE, wait_gone

from .conftest import Runner, call

# Says "running" from inside a task, so that a test can wait for that without sleeping.
LONG = """
import threading
import dask
def task():
    print("running", flush=True)
    threading.Event().wait()
dask.delayed(task)().compute()
"""

BEFORE_IT_BEGAN = "free variable 'future'"
"""What `distributed.utils.sync` logs if Ctrl-C comes before what it waits for has begun, within a
fraction of a millisecond: its coroutine has not set the future yet that is to be cancelled."""


@pytest.mark.parametrize(
    ("statement", "code", "err"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(True)", 1, ""),
        ("sys.exit('told why')", 1, "told why\n"),
        ("sys.exit(-1)", 255, ""),
        ("os._exit(5)", 5, ""),
        ("raise KeyboardInterrupt", 130, "gpusched run: interrupted at"),
    ],
)
def test_exit_code_is_the_scripts(
    gpusched_run: Runner, statement: str, code: int, err: str
) -> None:
    script = gpusched_run.script(f"import os, sys\n{statement}\n")
    gpusched_run.may_leave_files = "os._exit" in statement
    done = gpusched_run("--local", "--quiet", script)
    assert done.returncode == code
    assert done.stderr.startswith(err)
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_a_command_is_imported_ends_it_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    done = call("info")
    assert (done.exit_code, done.stderr) == (130, "gpusched: interrupted\n")


def test_leaving_without_notice_leaves_no_worker(gpusched_run: Runner) -> None:
    gpusched_run.may_leave_files = True
    script = gpusched_run.script("import os\nos._exit(5)\n")
    assert gpusched_run("--workers", "2", script).returncode == 5


def test_exception_shows_the_scripts_own_frames(gpusched_run: Runner) -> None:
    script = gpusched_run.script("def inner():\n    1 / 0\ninner()\n")
    done = gpusched_run("--local", "--quiet", script)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ZeroDivisionError: division by zero"
    frames = [line for line in lines if line.startswith("  File ")]
    assert [frame.split(", in ")[1] for frame in frames] == ["<module>", "inner"]
    assert all("script.py" in frame for frame in frames)


def test_syntax_error_shows_the_line_alone(gpusched_run: Runner) -> None:
    script = gpusched_run.script("x = = 1\n")
    done = gpusched_run("--local", "--quiet", script)
    assert done.returncode == 1
    assert done.stderr.count("  File ") == 1
    assert "script.py" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("SyntaxError")
    # Nothing ran, so there is nothing to sum up.
    assert "gpusched: " not in gpusched_run("--local", script).stderr


@pytest.mark.parametrize("flag", ["--local", "--workers=1"])
def test_exception_in_a_chunk_reaches_the_script(gpusched_run: Runner, flag: str) -> None:
    script = gpusched_run.script(
        "import dask.array as da\n"
        "def broken(block):\n    raise RuntimeError('told by the chunk')\n"
        "da.ones(4, chunks=2).map_blocks(broken, meta=da.ones(1)._meta).compute()\n"
    )
    done = gpusched_run(flag, "--quiet", script)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    # Behind it comes a note of the task, and a worker writes a line of its own at any time.
    own = [line for line in lines if " - ERROR - " not in line]
    assert "RuntimeError: told by the chunk" in own[-2:]
    assert done.stderr.count("Traceback") == 1
    assert any("in broken" in line for line in lines)
    assert any("task ('broken-" in line for line in lines)
    assert not any("gpusched/cli" in line or "runpy" in line for line in lines)


def test_summary_of_a_chunk_that_raises_says_that_no_task_had_ended(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import dask.array as da\n"
        "def broken(block):\n    raise RuntimeError\n"
        "(da.ones(4, chunks=4).map_blocks(broken, meta=da.ones(1)._meta) + 1).compute()\n"
    )
    err = gpusched_run("--local", script).stderr
    assert "none with array functions had ended when the script failed (exit code 1)" in err
    assert "nothing was fused" not in err


CHUNK_THAT_RAISES = """
import dask.array as da, numpy as np
x = da.from_array(np.arange(20_000), chunks=10_000)
(((x + 1) * 2) ** da.from_array(np.full(20_000, -1), chunks=10_000)).compute()
"""


@pytest.mark.parametrize("flag", ["--local", "--workers=1"])
def test_fused_chunk_that_raises_is_named(gpusched_run: Runner, flag: str) -> None:
    done = gpusched_run(flag, "--quiet", gpusched_run.script(CHUNK_THAT_RAISES))
    assert done.returncode == 1
    _, own = done.stderr.split("Traceback (most recent call last):")
    assert "ValueError: Integers to negative integer powers are not allowed." in own
    assert re.search(r"^gpusched: .*add, mul, pow.*\('pow-[0-9a-f]+', \d\)", own, re.M)
    assert "/gpusched/" not in own


def test_all_frames_are_shown_where_asked(gpusched_run: Runner) -> None:
    gpusched_run.environment["DASK_GPUSCHED__RUN__FULL_TRACEBACKS"] = "true"
    done = gpusched_run("--local", "--quiet", gpusched_run.script(CHUNK_THAT_RAISES))
    assert "/gpusched/cli/script.py" in done.stderr


def test_worker_that_dies_is_replaced_and_named(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import os, pathlib, signal, dask\n"
        "print('body', flush=True)\n"
        "def once():\n"
        "    mark = pathlib.Path('died')\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return 7\n"
        "print(dask.delayed(once)().compute())\n"
    )
    done = gpusched_run("--workers", "1", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "body\n7\n"
    assert "missing   worker tcp://127.0.0.1:" in done.stderr


@pytest.mark.parametrize("whole_group", [True, *exhaustive(False)], ids=["group", "one"])
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("flag", ["--local", "--workers=2"])
def test_request_to_stop_ends_everything(
    gpusched_run: Runner, flag: str, number: signal.Signals, code: int, whole_group: bool
) -> None:
    process = gpusched_run.start(flag, gpusched_run.script(LONG))
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    # Workers that are told themselves leave at once, and cannot clean up.
    gpusched_run.may_leave_files = whole_group and number == signal.SIGTERM
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2 or flag == "--local"
    (os.killpg if whole_group else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, err
    assert "Traceback" not in err or BEFORE_IT_BEGAN in err
    assert ("interrupted" in err) == (number == signal.SIGINT)


def test_killed_command_leaves_no_worker(gpusched_run: Runner) -> None:
    process = gpusched_run.start("--workers", "2", gpusched_run.script(LONG))
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    gpusched_run.may_leave_files = True
    workers = gpusched_run.processes()
    assert len(workers) >= 3
    process.kill()
    wait_gone(workers)
    process.communicate(timeout=PATIENCE)


def test_script_may_handle_requests_to_stop_itself(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import signal, sys, threading\n"
        "told = threading.Event()\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.set())\n"
        "print('ready', flush=True)\n"
        "told.wait()\n"
        "sys.exit(4)\n"
    )
    process = gpusched_run.start("--local", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 4


def test_reader_that_goes_away_is_no_disaster(gpusched_run: Runner) -> None:
    script = gpusched_run.script("for i in range(100_000):\n    print(i)\n")
    process = gpusched_run.start("--local", "--quiet", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    process.stdout.close()
    assert process.wait(timeout=PATIENCE) != 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_is_ignored_from_the_start_stays_so(
    gpusched_run: Runner, number: signal.Signals
) -> None:
    # As nohup does, and shells do for what they run in the background.
    script = gpusched_run.script("print('ready', flush=True)\ninput()\n")
    process = gpusched_run.start(
        "--local",
        "--quiet",
        script,
        stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 0


def test_what_connections_wait_for_at_the_end_is_not_reported(gpusched_run: Runner) -> None:
    # As a connection of distributed's leaves its event loop that stops between its waits.
    script = gpusched_run.script(
        "import asyncio, gc\n"
        "from tornado.locks import Event\n"
        "async def leave():\n    return Event().wait(timeout=0)\n"
        "async def later(waiting):\n    await asyncio.sleep(0.01)\n"
        "loop = asyncio.new_event_loop()\n"
        "waiting = loop.run_until_complete(leave())\n"
        "loop.run_until_complete(later(waiting))\n"
        "assert waiting.done()\n"
        "del waiting\n"
        "gc.collect()\n"
    )
    done = gpusched_run("--local", "--quiet", script)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
