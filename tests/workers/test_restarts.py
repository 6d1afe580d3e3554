"""When a nanny no longer starts its worker again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpusched.cluster import serve
from gpusched.workers.nanny import DeviceNanny
from gpusched.workers.restarts import Restarts, had_tasks

KILLED = {"exitcode": -9, "seconds": 1.0, "had_tasks": False}


@pytest.mark.parametrize("other", [{"exitcode": 0}, {"seconds": 600.0}, {"had_tasks": True}])
def test_only_ends_in_a_row_without_a_task_count(other: dict[str, Any]) -> None:
    restarts = Restarts(most=3)
    ends = [KILLED, KILLED, KILLED | other, KILLED, KILLED, KILLED]
    assert [restarts.count(**end) for end in ends] == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], True),
        ([{"action": "remove-worker", "processing-tasks": set()}], False),
        ([{"action": "remove-worker", "lost-computed-tasks": {"x"}}], True),
        ([{"action": "remove-worker", "processing-tasks": {"x"}}, "worker-added"], True),
        (
            [
                {"action": "remove-worker", "processing-tasks": {"x"}},
                {"action": "remove-worker", "processing-tasks": set()},
            ],
            False,
        ),
    ],
)
def test_the_schedulers_last_removal_tells_of_tasks(events: list[Any], expected: bool) -> None:
    assert had_tasks((float(number), event) for number, event in enumerate(events)) is expected


def test_command_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finished(self: DeviceNanny) -> None:
        pass

    monkeypatch.setattr(DeviceNanny, "finished", finished)
    nanny = object.__new__(DeviceNanny)
    nanny.name, nanny.gave_up = "w", ""
    asyncio.run(serve._finish(nanny))
    nanny.gave_up = "its process ended 5 times"
    with pytest.raises(serve.StartError, match=r"worker w .*: its process ended 5 times"):
        asyncio.run(serve._finish(nanny))
