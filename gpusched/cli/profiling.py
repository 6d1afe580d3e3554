"""The profile of a run, in a file: ``gpusched run --profile``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpusched.cli.errors import Failed

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def profiling(path: str | None, client: Client, quiet: bool = False) -> Iterator[None]:
    """Profile what the block does, and write that however the block ends.

    Raises `Failed` if workers cannot record.

    Parameters
    ----------
    path
        A file that ends with ``.html`` or ``.json``; None for no profile.
    client
        Of the run's cluster.
    quiet
        Whether it is not said where the profile is.
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
        if target.endswith(".json"):
            found.save_trace(target)
        else:
            found.html(target)
    except OSError as error:
        print(f"gpusched run: cannot write {target}: {error.strerror}", file=sys.stderr)
        return
    if told is not None:
        print(f"gpusched: the profile is in {told}", file=sys.stderr)
