"""The worker whose task this thread runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Worker


def current_worker() -> Worker | None:
    """Return the worker whose task this thread runs; None if it runs none.

    Examples
    --------
    >>> from gpusched.graph.worker import current_worker
    >>> print(current_worker())
    None
    """
    # Who has not imported it runs no worker, and need not wait for it.
    distributed = sys.modules.get("distributed.worker")
    if distributed is None:
        return None
    try:
        worker: Worker = distributed.get_worker()
    except ValueError:
        return None
    return worker
