"""Lets threads share libraries that are not thread-safe: policies, proxies, and known cases.

The files in the order in which a call goes through them: `policies` (how calls share threads, as
data), `wrapping` (``wrap``), `proxy` and `handle_classes` (what looks like the library, and which
of its results are wrapped), `specials`, `pickling`, `registry` (the guard of each policy), `guards`
and its kinds (`locks`, `limits`, `dedicated`, `instances` with their `proxy_targets`,
`child_processes` with `child` and `pipe_messages`), `waits`, `threads` and `task_cleanup`
(deadlocks, long waits, what is cancelled or left behind), `counts`. `unsafe_libraries` lists
libraries with the policies they need, which `import_hook` applies as they are imported, by
`replacing` their functions.
"""

from __future__ import annotations

from gpusched.threadsafe.counts import Counts, statistics
from gpusched.threadsafe.errors import (
    BlockedLoopError,
    ChildError,
    DeadlockError,
    TaskCancelledError,
)
from gpusched.threadsafe.import_hook import Protection, protect, protections, unprotect
from gpusched.threadsafe.policies import (
    Policy,
    limit,
    lock,
    one_thread,
    per_device,
    per_thread,
    process,
)
from gpusched.threadsafe.wrapping import close, unwrap, wrap

__all__ = [
    "BlockedLoopError",
    "ChildError",
    "Counts",
    "DeadlockError",
    "Policy",
    "Protection",
    "TaskCancelledError",
    "close",
    "limit",
    "lock",
    "one_thread",
    "per_device",
    "per_thread",
    "process",
    "protect",
    "protections",
    "statistics",
    "unprotect",
    "unwrap",
    "wrap",
]
