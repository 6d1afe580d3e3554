"""Where this package's messages are shown: beside distributed's, in the same form.

All loggers are named after their modules, under ``gpusched``, so that they can be distinguished
from distributed's and set by themselves. distributed gives a handler to its own loggers only, and
keeps what its servers say apart for `distributed.Client.get_worker_logs`: `follow` adds ours to
both.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpusched.adapters.distributed import keep_log

if TYPE_CHECKING:
    from distributed.node import ServerNode


def follow(server: ServerNode) -> None:
    """Show messages as distributed does, and keep them with those of a server.

    Whoever has given the logger ``gpusched`` a handler or a level has said where they go already.

    Parameters
    ----------
    server
        A scheduler, a worker or a nanny, in whose process messages are written from now on.
    """
    ours, theirs = logging.getLogger("gpusched"), logging.getLogger("distributed")
    if not ours.handlers and ours.level == logging.NOTSET:
        ours.setLevel(theirs.level)
        ours.propagate = theirs.propagate
        for handler in theirs.handlers:
            ours.addHandler(handler)
    keep_log(server, ours)
