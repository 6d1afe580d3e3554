"""One run from its beginning to its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from gpusched.cli import script
from gpusched.cli.errors import Failed
from gpusched.cli.log_filters import log_warnings_only
from gpusched.cli.progress import progress, say
from gpusched.cli.run_cluster import Session, connected, started
from gpusched.cli.signals import leaving_at_once, stopping_cleanly
from gpusched.cli.summary import summary
from gpusched.store.service.client import queued_names

if TYPE_CHECKING:
    from distributed import Client


_STOPPED = "the tasks that had not ended when the run was stopped"
"""What the counts of such a run do not have."""


class _Stopped(Exception):
    """The script was asked to stop, so tasks that still run are of no use to anybody."""


def launch(
    target: str,
    arguments: Sequence[str],
    module: bool = False,
    local: bool = False,
    scheduler: str | None = None,
    quiet: bool = False,
    profile: str | None = None,
) -> int:
    """Run a script or a module on a cluster made for it and return its exit code.

    ``profile`` is the file that a profile of the run is written to.
    """
    folder = script.prepare(target, arguments, module)
    if scheduler is None and not local:
        os.getcwd()  # Workers start in it: a `FileNotFoundError` where it was removed.
    log_warnings_only()
    code = 1
    if not quiet:
        say("starting workers" if scheduler is None else f"connecting to {scheduler}")
    try:
        with stopping_cleanly(), ExitStack() as closing, _session(local, scheduler) as session:
            session.begin()
            shown = nullcontext() if quiet else progress(session.client)
            with shown, profiling(profile, session.client, quiet):
                ending = script.execute(target, module, folder)
            # Left after the session, so that a second request to stop ends a slow closing.
            closing.enter_context(leaving_at_once())
            code = ending.code
            stopped = code > 128
            if ending.began and not quiet:
                counted, seconds, missing = session.end(timeout=2 if stopped else 10)
                missing = [*missing, *([_STOPPED] if stopped else [])]
                compiling = queued_names() if counted.kernels_requested else ()
                text = summary(counted, seconds, session.fused, missing, compiling, code)
                print(text, file=sys.stderr)
            if stopped:
                raise _Stopped
    except TimeoutError as error:
        raise Failed(f"the workers did not answer in time: {error}") from None
    except _Stopped:
        return code
    return code


def _session(local: bool, scheduler: str | None) -> AbstractContextManager[Session]:
    return connected(scheduler) if scheduler is not None else started(processes=not local)


@contextmanager
def profiling(path: str | None, client: Client, quiet: bool = False) -> Iterator[None]:
    """Profile what the block does, and write that however the block ends.

    Raises `Failed` if workers cannot record.
    """
    if path is None:
        yield
        return
    from gpusched.profiling import profile

    # The script may change to another folder.
    target = os.path.abspath(path)
    session = profile(client)
    try:
        found = session.__enter__()
    except (RuntimeError, TimeoutError) as error:
        raise Failed(str(error) or "the workers did not begin to record in time") from None
    try:
        yield
    finally:
        session.__exit__(None, None, None)
        _write(found, target, None if quiet else path)


def _write(found: Any, target: str, told: str | None) -> None:
    try:
        found.write(target)
    except OSError as error:
        print(f"gpusched run: cannot write {target}: {error.strerror}", file=sys.stderr)
        return
    if told is not None:
        print(f"gpusched: the profile is in {told}", file=sys.stderr)
