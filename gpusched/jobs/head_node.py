"""The head of a job: starts each node's part, and ends with the script's exit code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from gpusched.files import write_whole
from gpusched.jobs import systems
from gpusched.jobs.launch_options import LaunchOptions
from gpusched.jobs.node import CLOSING
from gpusched.jobs.node_processes import OUT_OF_TIME, TERMINATED, Children, Stopped
from gpusched.jobs.systems.system import System

CODE = "code"
"""The file in a job's folder that has its exit code, once it has ended for good."""
_CHECKPOINTS = "checkpoints"


def lead(options: LaunchOptions) -> int:
    """Run a job from its beginning to its exit code.

    Parameters
    ----------
    options
        With a ``backend`` and a ``folder``.
    """
    assert options.folder is not None
    assert options.backend is not None
    system = systems.find(options.backend)
    while True:
        start = _begin(options.folder)
        code, again = _Start(options, system, options.folder / f"start-{start}").run()
        if again and start < options.requeues:
            _say(f"back into the queue, for start {start + 2} of at most {options.requeues + 1}")
            left = system.requeue()
            if left is not None:
                return left
            continue
        if code == 0 and options.checkpoints is None:
            shutil.rmtree(options.folder / _CHECKPOINTS, ignore_errors=True)
        write_whole(options.folder / CODE, str(code))
        return code


class _Start:
    """One start of a job, which may be started several times."""

    def __init__(self, options: LaunchOptions, system: System, run: Path) -> None:
        assert options.folder is not None
        self._run = run
        self._grace = options.grace
        self._children = Children(options.limit)
        part = replace(
            options,
            folder=None,
            backend=None,
            limit=None,
            requeues=0,
            run=run,
            code_to_file=True,
            checkpoints=options.checkpoints or options.folder / _CHECKPOINTS,
        )
        self._commands = system.node_commands(part)

    def run(self) -> tuple[int, bool]:
        """Return the exit code, and whether the job may be started again after what ended it."""
        with self._children:
            nodes: list[subprocess.Popen[bytes]] = []
            try:
                self._run.mkdir(mode=0o700)
                nodes += [self._children.start(command) for command in self._commands]
                failed = self._wait(nodes)
                code, again = self._result(failed)
            except Stopped as told:
                code = self._stop(nodes, told.code)
                again = code == OUT_OF_TIME
            finally:
                self._close(nodes)
                shutil.rmtree(self._run, ignore_errors=True)
        return code, again

    def _wait(self, nodes: list[subprocess.Popen[bytes]]) -> int:
        """Wait for the first node, or another that fails; return the exit code of that one."""
        while nodes[0].poll() is None:
            # Others that end well were ended by the script (client.shutdown()), which may go on.
            codes = [node.poll() for node in nodes]
            failed = next((code for code in codes if code), 0)
            if failed:
                return failed
            self._children.wait()
        return nodes[0].returncode

    def _result(self, failed: int) -> tuple[int, bool]:
        code = self._code()
        if code is not None:
            return code, False
        killed = failed < 0 or failed > 128
        how = f"was ended by signal {abs(failed) % 128}" if killed else f"failed with {failed}"
        _say(f"a node {how} before the script ended; what it said is above")
        return 1, killed

    def _stop(self, nodes: list[subprocess.Popen[bytes]], code: int) -> int:
        _say("out of time: stopping" if code == OUT_OF_TIME else "asked to stop")
        for node in nodes:
            node.terminate()
        for node in nodes:
            self._children.ended(node, self._grace + 2 * CLOSING)
        # A script that ends by itself meanwhile has its own exit code.
        found = self._code()
        return code if found in (None, TERMINATED) else found

    def _close(self, nodes: list[subprocess.Popen[bytes]]) -> None:
        """Wait for nodes that end with the scheduler, and end what does not."""
        if nodes and self._code() is not None:
            self._children.ended(nodes[-1], CLOSING)
        for node in nodes:
            if node.poll() is None:
                node.terminate()
        for node in nodes:
            self._children.end(node, 2 * CLOSING)

    def _code(self) -> int | None:
        file = self._run / CODE
        return int(file.read_text()) if file.exists() else None


def _begin(folder: Path) -> int:
    """Return how often the job has been started before, and count this start."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / CODE).unlink(missing_ok=True)
    file = folder / "starts"
    before = int(file.read_text()) if file.exists() else 0
    write_whole(file, str(before + 1))
    return before


def _say(text: str) -> None:
    print(f"gpusched job: {text}", file=sys.stderr, flush=True)
