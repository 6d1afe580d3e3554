"""On workers: libraries guarded at import, tasks cancelled, event loops that go on, metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client, Event, wait

from gpusched import Cluster, local, threadsafe
from gpusched.threadsafe import registry
from tests.threadsafe import fragile
from tests.tiers import starts_processes
from tests.waiting import PATIENCE, wait_for


@pytest.fixture(scope="module")
@starts_processes
def client() -> Iterator[Client]:
    with Cluster(1, 4, gpus=0) as cluster, Client(cluster) as client:
        yield client


def until(client: Client, function: Callable[..., Any]) -> Any:
    """Ask the worker until it says yes."""
    return wait_for(lambda: next(iter(client.run(function).values())))


def protected() -> list[str]:
    return [each.library for each in threadsafe.protections() if each.applied]


def draw(seed: int) -> int:
    import io

    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(layout="tight")
    axes.plot([1, 2, seed])
    axes.set_title(r"$\frac{a}{b}$")
    file = io.BytesIO()
    figure.savefig(file)
    plt.close(figure)
    return len(file.getvalue())


def test_matplotlib_needs_nothing(client: Client) -> None:
    sizes = client.gather(client.map(draw, range(12)))
    assert min(sizes) > 1000
    (found,) = client.run(protected).values()
    assert "matplotlib" in found
    (counts,) = client.run(threadsafe.statistics).values()
    assert counts["lock(matplotlib)"].calls >= 36


def test_wrapped_object_and_module_travel_there_and_back(client: Client) -> None:
    file = threadsafe.wrap(fragile.File(3), "lock(travels)")
    library = threadsafe.wrap(fragile, "lock(travels)")
    (here,) = client.scatter([file])
    made = client.submit(library.open_file, 5)
    assert client.submit(len, here).result() == 3
    assert client.submit(lambda *files: len(files[0] + files[1]), here, made).result() == 8
    back = made.result()
    assert isinstance(back, fragile.File)
    assert (len(back), threadsafe.unwrap(back) is back) == (5, False)


def test_waiting_task_that_is_cancelled_goes(client: Client) -> None:
    """It would wait for ever: nobody gives the lock back."""

    def hold(name: str) -> None:
        with threadsafe.lock("held for long"):
            Event(f"{name} has it").set()
            Event(f"{name} may go").wait(PATIENCE)

    def take() -> None:
        with threadsafe.lock("held for long"):
            pass

    def waits() -> bool:
        return any(
            thread.waiting is not None
            for guard in registry.every()
            if str(guard) == "lock(held for long)"
            for thread in _records()
        )

    def finished() -> bool:
        return not waits()

    holder = client.submit(hold, "holder", pure=False)
    assert Event("holder has it").wait(PATIENCE)
    waiting = client.submit(take, pure=False)
    until(client, waits)
    waiting.cancel()
    until(client, finished)
    assert not holder.done()
    Event("holder may go").set()
    wait(holder, timeout=PATIENCE)
    (counts,) = client.run(threadsafe.statistics).values()
    assert counts["lock(held for long)"].calls == 1


def _records() -> list[Any]:
    import gc

    from gpusched.threadsafe.threads import Thread

    return [each for each in gc.get_objects() if type(each) is Thread]


def test_what_a_task_leaves_is_given_up(client: Client) -> None:
    def forget() -> None:
        threadsafe.lock("forgotten").acquire()

    def take() -> bool:
        with threadsafe.lock("forgotten"):
            return True

    client.submit(forget).result()
    assert client.gather([client.submit(take, pure=False) for _ in range(8)]) == [True] * 8
    (counts,) = client.run(threadsafe.statistics).values()
    assert counts["lock(forgotten)"].abandoned == 1


def test_event_loop_goes_on_while_a_policy_is_taken(client: Client) -> None:
    def hold() -> None:
        with threadsafe.lock("of a task"):
            Event("task has it").set()
            Event("task may go").wait(PATIENCE)

    async def on_loop() -> str:
        try:
            with threadsafe.lock("of a task"):
                return "entered"
        except threadsafe.BlockedLoopError as error:
            return str(error)

    holder = client.submit(hold, pure=False)
    assert Event("task has it").wait(PATIENCE)
    file = threadsafe.wrap(fragile.File(3), "lock(of a task)")
    sent = client.scatter(file)
    (told,) = client.run(on_loop).values()
    assert "lock(of a task) is taken by thread 'Dask-" in told or "in task 'hold-" in told
    Event("task may go").set()
    holder.result(PATIENCE)
    assert client.submit(len, sent).result(PATIENCE) == 3


def test_contention_is_in_the_heartbeat(client: Client) -> None:
    def contend(barrier: str) -> None:
        with threadsafe.lock("contended"):
            pass

    client.gather(client.map(contend, ["any"] * 10, pure=False))
    (told,) = (
        info["metrics"]["gpusched"]["policies"]
        for info in client.sync(client.scheduler.identity)["workers"].values()
    )
    assert set(told) == {
        "calls", "waits", "wait_seconds", "longest_wait_seconds", "deadlocks", "abandoned"
    }  # fmt: skip


def test_worker_in_this_process_shares_its_locks() -> None:
    fragile.reset()
    with local(4) as client:
        library = threadsafe.wrap(fragile, "lock(one process)")
        found = client.gather(client.map(lambda i, lib: lib.add(i, 1), range(200), lib=library))
        assert not threadsafe.protect()
    assert threadsafe.protect()
    assert sum(found) == sum(range(1, 201))
    assert (fragile.state.overlaps, fragile.state.entries) == (0, 200)
    threadsafe.unprotect()
    assert not [t for t in threading.enumerate() if t.name.startswith("gpusched ")]
