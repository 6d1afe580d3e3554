"""What is kept of workers that report; messages are made up here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpusched.dashboard.observer import Observer


def counters(*compiling: list[Any]) -> dict[str, Any]:
    return {"tasks": 1, "kernels": [], "breaks": [], "compiling": compiling}


def seen(observer: Observer, worker: str, pid: int, *compiling: list[Any]) -> None:
    """Have a worker report the kernels that its process waits for."""
    observer._seen(worker, ["host", pid], [], {}, [], 0, counters(*compiling))


def test_a_worker_that_has_ended_waits_for_no_kernels() -> None:
    """The others of its process do; what it has counted stays."""
    workers = {name: SimpleNamespace(name=name) for name in "abc"}
    scheduler: Any = SimpleNamespace(workers=workers, stream_handlers={})
    observer = Observer(scheduler)
    add, multiply = ["add", 0.5, True], ["multiply", 0.25, True]
    seen(observer, "a", 1, add)
    seen(observer, "b", 1, add)
    seen(observer, "c", 2, multiply)

    def awaited() -> list[str]:
        return [each.name for each in observer.fusion.compiling()]

    assert awaited() == ["add", "multiply"]
    for gone, left in (("c", ["add"]), ("a", ["add"]), ("b", [])):
        del workers[gone]
        observer.remove_worker(scheduler, gone, stimulus_id="", reason="")
        assert awaited() == left
    assert observer.fusion.counted().tasks == 2
    seen(observer, "a", 1, add)  # A message that was on its way.
    assert awaited() == [] and not observer._processes
