"""One thread that waits for another, for certain."""

from __future__ import annotations

import threading
from typing import Any

from gpusched.threadsafe import threads


def wait_for(policy: Any) -> None:
    """Take a policy in a thread that had to wait for this one."""
    records: list[threads.Thread] = []
    begun = threading.Event()

    def take() -> None:
        records.append(threads.current())
        begun.set()
        with policy:
            pass

    with policy:
        thread = threading.Thread(target=take, name="waiting")
        thread.start()
        assert begun.wait(60)
        while records[0].waiting is None:
            assert thread.is_alive()
    thread.join(60)
