"""The head of a job, with bash scripts for nodes: what it makes of their ends and of signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pytest_mock import MockerFixture

from gpusched.jobs.node_processes import Children, Stopped
from tests.cli.conftest import hear_requests
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_gone

LEAD = Path(__file__).with_name("lead.py")
ENDS = "echo 3 >$RUN/code"
"""The first node's script has ended, with 3."""
STAYS = "touch $RUN/up; exec sleep 600"
FOLLOWS = "while [ ! -f $RUN/code ]; do sleep 0.05; done"
"""Another node, which ends when the script has ended."""

UP = "echo up; while :; do sleep 0.05; done"


class Head:
    """Starts heads of jobs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *nodes: str, requeues: int = 0, grace: float = 60) -> subprocess.Popen[str]:
        """Start a head; what it prints is in one pipe."""
        head = subprocess.Popen(
            [sys.executable, str(LEAD), str(self.folder), str(requeues), str(grace), *nodes],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=hear_requests,
            env=os.environ | {"JOB": str(self.folder)},
        )
        self.started.append(head)
        return head

    def run(self, *nodes: str, requeues: int = 0) -> tuple[int, str]:
        """Run a head to its end; return its exit code and what it printed."""
        head = self.start(*nodes, requeues=requeues)
        told, _ = head.communicate(timeout=PATIENCE)
        return head.returncode, told

    def told(self) -> str:
        """Return the exit code that is left in the job's folder."""
        return (self.folder / "code").read_text()


@pytest.fixture
@starts_processes
def head(tmp_path: Path) -> Iterator[Head]:
    """Give a starter of heads; afterwards nothing of a start is left, but for the exit code."""
    head = Head(tmp_path / "job")
    yield head
    family = [
        process
        for process in psutil.process_iter()
        if any(_is_of(process, started.pid) for started in head.started)
    ]
    wait_gone(family)
    assert not list(head.folder.glob("start-*"))


def _is_of(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session
    except ProcessLookupError:
        return False


def test_code_is_the_scripts(head: Head) -> None:
    assert head.run(ENDS, FOLLOWS)[0] == 3
    assert head.told() == "3"


def test_others_may_end_before_the_script(head: Head) -> None:
    gone = "touch $RUN/gone"
    waits = f"while [ ! -f $RUN/gone ]; do sleep 0.05; done; {ENDS}"
    assert head.run(waits, gone)[0] == 3


@pytest.mark.parametrize("nodes", [("exit 5",), (STAYS, "exit 5")], ids=["first", "other"])
def test_node_that_fails_ends_the_job_and_is_not_tried_again(
    head: Head, nodes: tuple[str, ...]
) -> None:
    code, told = head.run(*nodes, requeues=5)
    assert code == 1
    assert "a node failed with 5 before the script ended" in told
    assert (head.folder / "starts").read_text() == "1"


@pytest.mark.parametrize("nodes", [("kill -9 $$",), (STAYS, "kill -9 $$")], ids=["first", "other"])
def test_node_that_is_killed_starts_the_job_again(head: Head, nodes: tuple[str, ...]) -> None:
    code, told = head.run(*nodes, requeues=2)
    assert code == 1
    assert told.count("a node was ended by signal 9") == 3
    assert "for start 3 of at most 3" in told


def test_second_start_may_end_well(head: Head) -> None:
    once = f"[ -f $JOB/met ] || {{ touch $JOB/met; kill -9 $$; }}; {ENDS}"
    code, told = head.run(once, requeues=5)
    assert code == 3, told
    assert (head.folder / "starts").read_text() == "2"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGUSR1, 124),
        (signal.SIGUSR2, 124),
        (signal.SIGTERM, 143),
        (signal.SIGINT, 130),
        (signal.SIGHUP, 129),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_signal_is_passed_on_as_one_to_end(head: Head, number: int, code: int) -> None:
    ends = (
        "trap 'echo ended; echo 143 >$RUN/code; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    )
    started = head.start(ends, FOLLOWS)
    wait_for_line(started, "up")
    started.send_signal(number)
    told, _ = started.communicate(timeout=PATIENCE)
    assert "ended" in told
    assert started.returncode == code
    assert head.told() == str(code)


def test_script_that_ends_well_when_told_to_has_its_own_code(head: Head) -> None:
    saves = f"trap 'echo 0 >$RUN/code; exit 0' TERM; {UP}"
    started = head.start(saves, FOLLOWS, requeues=3)
    wait_for_line(started, "up")
    started.send_signal(signal.SIGUSR1)
    started.communicate(timeout=PATIENCE)
    assert started.returncode == 0


def test_time_that_is_over_starts_the_job_again(head: Head) -> None:
    met = "[ -f $JOB/met ] && exec bash -c 'echo 0 >$RUN/code'; touch $JOB/met"
    started = head.start(f"{met}; echo up; exec sleep 600", requeues=1)
    wait_for_line(started, "up")
    started.send_signal(signal.SIGUSR1)
    told, _ = started.communicate(timeout=PATIENCE)
    assert "out of time" in told
    assert started.returncode == 0


def test_what_does_not_end_is_killed(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCHED_TEST_CLOSING", "0.2")
    deaf = f"trap '' TERM; {UP}"
    started = head.start(deaf, grace=0.2)
    wait_for_line(started, "up")
    started.terminate()
    started.communicate(timeout=PATIENCE)
    assert started.returncode == 143


@pytest.mark.processes
def test_limit_that_passes_while_a_job_ends_is_no_news(mocker: MockerFixture) -> None:
    """Nor is it asked for again and again."""
    waited = mocker.spy(signal, "sigtimedwait")
    with Children(limit=0.05) as children:
        child = children.start(["sleep", "0.3"])
        assert children.ended(child, PATIENCE)
        assert waited.call_count <= 2
        with pytest.raises(Stopped):
            children.wait()
        children.wait(0)


def test_killed_head_takes_its_nodes_along(head: Head) -> None:
    started = head.start("echo up; exec sleep 600")
    wait_for_line(started, "up")
    [node] = psutil.Process(started.pid).children()
    started.kill()
    started.communicate(timeout=PATIENCE)
    wait_gone([node])
    for left in head.folder.glob("start-*"):
        left.rmdir()


def test_what_was_kept_goes_when_the_job_has_succeeded(head: Head) -> None:
    keeps = "mkdir -p $JOB/checkpoints/x; echo {} >$RUN/code"
    assert head.run(keeps.format(1))[0] == 1
    assert (head.folder / "checkpoints/x").exists()
    assert head.run(keeps.format(0))[0] == 0
    assert not (head.folder / "checkpoints").exists()


def wait_for_line(process: subprocess.Popen[str], words: str) -> None:
    """Read what a process prints until a line begins with these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(words):
            return
    raise AssertionError(f"it ended before it printed {words!r}")
