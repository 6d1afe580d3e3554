"""Who may start: never too much at once, and always somebody in the end."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.workers.memory.ledger import SLIGHT, Decision, Ledger, Need, Verdict

LIMIT = 100
BASE = 7
"""Bytes that the process takes for itself."""


def ledger_of(held: int = 0, running: dict[str, int] | None = None) -> Ledger:
    ledger = Ledger(LIMIT)
    ledger.observe(held, 0, held + BASE)
    for key, extra in (running or {}).items():
        ledger.start(key, Need(extra))
    return ledger


def test_task_starts_where_it_fits_beside_all_that_is_there() -> None:
    ledger = ledger_of(held=20, running={"a": 30})
    assert ledger.committed == 20 + BASE + 30
    assert ledger.decide(Need(43), 0).verdict is Verdict.START
    assert ledger.decide(Need(44), 0).verdict is Verdict.WAIT


def test_results_are_spilled_before_anything_waits() -> None:
    ledger = ledger_of(held=60, running={"a": 30})
    assert ledger.decide(Need(23), 60) == Decision(Verdict.SPILL, 20)
    assert ledger.decide(Need(23), 5) == Decision(Verdict.SPILL, 5)
    ledger.begin_spill()
    assert ledger.decide(Need(23), 60) == Decision(Verdict.WAIT, reason="spilling")


def test_root_task_waits_for_consumers_before_anything_is_spilled_for_it() -> None:
    ledger = ledger_of(held=80)
    ledger.start("consumer", Need(5))
    root, other = Need(20, root=True), Need(20)
    assert ledger.decide(other, 80).verdict is Verdict.SPILL
    waiting = Decision(Verdict.WAIT, reason="consumers of earlier results")
    assert ledger.decide(root, 80) == waiting
    ledger.seceded = {"consumer"}
    assert ledger.decide(root, 80).verdict is Verdict.SPILL
    ledger.observe(held=80, in_flight=1)
    assert ledger.decide(root, 80) == waiting


def test_root_tasks_do_not_wait_for_each_other() -> None:
    ledger = ledger_of(held=80)
    ledger.start("another", Need(5, root=True))
    assert ledger.decide(Need(20, root=True), 80).verdict is Verdict.SPILL


def test_nothing_more_is_spilled_after_a_disk_has_taken_nothing() -> None:
    ledger = ledger_of(held=60, running={"a": 30})
    ledger.begin_spill()
    ledger.end_spill(0)
    assert ledger.decide(Need(23), 60).verdict is Verdict.WAIT
    ledger.finish("a")
    assert ledger.decide(Need(63), 60).verdict is Verdict.SPILL


def test_nothing_starts_beyond_the_limit_while_the_disk_is_full() -> None:
    ledger = ledger_of(held=90)
    ledger.begin_spill()
    ledger.end_spill(0, disk_full=True)
    waiting = Decision(Verdict.WAIT, reason="space on the disk")
    assert ledger.decide(Need(23), 60) == waiting
    assert ledger.decide(Need(0), 60).verdict is Verdict.START
    ledger.try_again()
    assert ledger.decide(Need(23), 60) == Decision(Verdict.SPILL, 20)
    ledger.begin_spill()
    ledger.end_spill(20)
    assert ledger.decide(Need(23), 0).verdict is Verdict.PIECES


def test_the_most_that_was_committed_outlasts_a_spill() -> None:
    ledger = ledger_of(running={"a": 60})
    ledger.finish("a")
    ledger.begin_spill()
    ledger.end_spill(10)
    assert ledger.most == 60 + BASE


def test_task_that_fits_nowhere_runs_alone_on_parts_of_its_chunks() -> None:
    ledger = ledger_of(running={"a": 1})
    assert ledger.decide(Need(1000), 0) == Decision(Verdict.WAIT, reason="running tasks")
    ledger.finish("a")
    assert ledger.decide(Need(1000), 0).verdict is Verdict.PIECES


def test_task_waits_for_what_is_being_received() -> None:
    ledger = Ledger(LIMIT)
    ledger.observe(0, 50, None)
    assert ledger.decide(Need(60), 0) == Decision(Verdict.WAIT, reason="transfers")


def test_results_are_received_as_tasks_start() -> None:
    ledger = ledger_of(held=20, running={"a": 30})
    assert ledger.decide(Need(43), 0).verdict is Verdict.START
    ledger.receive(43)
    assert (ledger.committed, ledger.most) == (LIMIT, LIMIT)
    assert ledger.decide(Need(1), 0) == Decision(Verdict.WAIT, reason="running tasks")


def test_results_that_another_has_asked_for_wait_for_no_transfer() -> None:
    ledger = ledger_of(held=60, running={"a": 30})
    ledger.receive(10)
    asked = Need(0, absent=30, root=True, outgoing=True)
    assert ledger.decide(asked, 60).verdict is Verdict.SPILL
    assert ledger.decide(asked, 0) == Decision(Verdict.WAIT, reason="running tasks")
    assert ledger.decide(asked, 0, patient=False).verdict is Verdict.START
    ledger.finish("a")
    assert ledger.decide(Need(30), 0) == Decision(Verdict.WAIT, reason="transfers")
    # Not as what fits: it is to be spilled for, where that can be.
    assert ledger.decide(asked, 0).verdict is Verdict.PIECES


def test_task_whose_inputs_exceed_the_worker_is_refused_with_the_sizes() -> None:
    ledger = Ledger(LIMIT, hard=2000)
    decision = ledger.decide(Need(0, least=4000), 0)
    assert decision.verdict is Verdict.REFUSE
    assert "3.91 kiB" in decision.reason and "1.95 kiB" in decision.reason


def test_task_that_waits_for_others_is_waited_for_by_none() -> None:
    ledger = ledger_of(running={"a": 90})
    ledger.seceded = {"a"}
    assert ledger.decide(Need(50), 0).verdict is Verdict.PIECES


def test_inputs_are_counted_once_they_are_brought_in() -> None:
    ledger = ledger_of()
    ledger.start("a", Need(10, absent=20))
    assert ledger.reserved == 30
    ledger.loaded("a")
    assert ledger.reserved == 10
    ledger.finish("a")
    ledger.finish("a")
    assert ledger.reserved == 0


def test_reservations_are_doubted_after_long_where_the_process_takes_less() -> None:
    ledger = ledger_of(running={"a": 90})
    assert ledger.decide(Need(50), 0, patient=False).verdict is Verdict.START
    ledger.observe(0, 0, 80)
    assert ledger.decide(Need(50), 0, patient=False).verdict is Verdict.WAIT


def test_what_is_unmanaged_is_told_from_the_bounds_that_running_tasks_leave() -> None:
    ledger = ledger_of(running={"a": 50})
    assert ledger.unmanaged == BASE
    ledger.observe(0, 0, BASE + 50)  # It may be the task's.
    assert ledger.unmanaged == BASE
    ledger.observe(0, 0, BASE + 60)  # That much cannot.
    assert ledger.unmanaged == BASE + 10
    ledger.observe(10, 0, BASE + 10)  # It is a result, and what was seen has gone.
    assert ledger.unmanaged == BASE


def test_results_that_move_while_the_process_is_looked_at_hide_nothing_of_it() -> None:
    ledger = ledger_of(running={"a": 30})
    ledger.observe(0, 0, 50)
    # 40 went after what is held was looked at, or came before.
    ledger.observe(10, 0, 30, before=50)
    assert ledger.unmanaged == 20
    ledger.observe(50, 0, 70, before=10)
    assert ledger.unmanaged == 20


def test_results_that_share_memory_hide_nothing_of_the_process_itself() -> None:
    ledger = Ledger(LIMIT, own=BASE)
    ledger.observe(held=60, in_flight=0, resident=30 + BASE)
    assert ledger.committed == 60 + BASE


# What a worker could be like --------------------------------------------------------------------


@dataclass
class Task:
    """A task, or results to be received or sent."""

    inputs: int
    extra: int
    running: bool = False
    seceded: bool = False
    kind: str = "task"

    def need(self) -> Need:
        if self.kind == "task":
            return Need(self.extra, absent=self.inputs, root=not self.inputs)
        sent = self.kind == "send"
        return Need(self.extra, absent=self.inputs, root=sent, outgoing=sent)


@dataclass
class Model:
    """A worker's memory as it is, which the ledger sees only now and then."""

    ledger: Ledger = field(default_factory=lambda: Ledger(LIMIT))
    tasks: dict[int, Task] = field(default_factory=dict)
    loose: int = 0
    """Results in memory that no running task reads."""
    arriving: int = 0
    disk_works: bool = True
    asked: int = 0
    """Bytes that are being spilled."""

    @property
    def running(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.running]

    def take(self) -> int:
        """Return the bytes that are taken if running tasks take all that they may."""
        return BASE + self.held() + self.arriving + sum(task.extra for task in self.running)

    def held(self) -> int:
        return self.loose + sum(task.inputs for task in self.running)

    def pump(self) -> Decision | None:
        """Do what the ledger says until the first task waits; return why."""
        while True:
            waiting = [number for number, task in self.tasks.items() if not task.running]
            waiting.sort(key=lambda number: (self.tasks[number].kind != "send", number))
            if not waiting:
                return None
            self.ledger.observe(self.held(), self.arriving, self.take())
            first = self.tasks[waiting[0]]
            need = first.need()
            decision = self.ledger.decide(need, self.loose)
            if decision.verdict is Verdict.SPILL:
                assert 0 < decision.nbytes <= self.loose
                self.asked = decision.nbytes
                self.ledger.begin_spill()
            elif decision.verdict is Verdict.WAIT:
                return decision
            else:
                self._start(waiting[0], decision.verdict)

    def _start(self, number: int, verdict: Verdict) -> None:
        task = self.tasks[number]
        alone = not [each for each in self.running if not each.seceded]
        alone = alone and (not self.arriving or task.kind == "send")
        if task.kind == "receive":
            self.ledger.receive(task.extra)
            self.arriving += task.extra
            del self.tasks[number]
        else:
            self.ledger.start(number, task.need())
            task.running = True
            self.ledger.loaded(number)
        slight = task.extra + task.inputs <= SLIGHT * LIMIT
        assert alone or slight or self.take() <= LIMIT
        assert alone or verdict is Verdict.START

    def spill_ends(self) -> None:
        if self.ledger.spilling:
            moved = min(self.asked, self.loose) if self.disk_works else 0
            self.loose -= moved
            self.ledger.end_spill(moved, disk_full=not self.disk_works)

    def finish(self, number: int, result: int) -> None:
        task = self.tasks.pop(number)
        self.loose += task.inputs + min(result, task.extra)
        self.ledger.finish(number)

    def secede(self, number: int) -> None:
        self.tasks[number].seceded = True
        self.ledger.seceded = {*self.ledger.seceded, number}

    def land(self) -> None:
        self.loose += self.arriving
        self.arriving = 0


NAMES = (
    "ready", "ready", "finish", "secede", "spilled", "disk", "receive", "send", "land", "release",
)  # fmt: skip
SIZES = st.integers(0, 150)
EVENTS = st.lists(st.tuples(st.sampled_from(NAMES), SIZES, SIZES), max_size=60)


def happen(model: Model, name: str, first: int, second: int, count: int) -> None:
    """Let one thing happen on the modelled worker, if it can."""
    running = [number for number, task in model.tasks.items() if task.running]
    if name == "ready":
        model.tasks[count] = Task(first if first % 3 else 0, second)
    elif name == "finish" and running:
        model.finish(running[first % len(running)], second)
    elif name == "secede" and running:
        which = running[first % len(running)]
        if model.tasks[which].kind == "task":
            model.secede(which)
    elif name == "spilled":
        model.spill_ends()
    elif name == "disk":
        model.disk_works = first % 2 == 0
    elif name == "receive":
        model.tasks[count] = Task(0, first, kind="receive")
    elif name == "send":
        model.tasks[count] = Task(first, 0, kind="send")
    elif name == "land":
        model.land()
    elif name == "release":
        model.loose = max(0, model.loose - first)


def carry_on(model: Model, count: int) -> None:
    """Let what is going on come to its end; all tasks end, but those that wait for others."""
    model.land()
    model.disk_works = True
    for _ in range(4 * count + 4):
        model.ledger.try_again()
        model.spill_ends()
        model.pump()
        model.land()
        going = [n for n, task in model.tasks.items() if task.running and not task.seceded]
        if going:
            model.finish(going[0], 0)
    assert all(task.seceded for task in model.tasks.values())


@given(EVENTS)
def test_no_schedule_takes_too_much_or_comes_to_a_stand(events: list[tuple[str, int, int]]) -> None:
    model = Model()
    model.ledger.observe(0, 0, BASE)
    for count, (name, first, second) in enumerate(events):
        happen(model, name, first, second, count)
        model.pump()
        assert model.ledger.unmanaged == BASE
    carry_on(model, len(events))


TASKS = (Task(0, 60), Task(40, 30), Task(70, 150))
"""A root, one that reads, and one that fits nowhere, ready in this order."""
RECEIVED, SENT = 10, 11
"""The numbers of results that may be received, and asked for, at any time."""


@dataclass
class Explored:
    """A state of a modelled worker, and what may still happen to it."""

    model: Model = field(default_factory=Model)
    ready: int = 0
    received: bool = False
    sent: bool = False

    @property
    def state(self) -> tuple[object, ...]:
        model = self.model
        tasks = tuple((n, task.running, task.seceded) for n, task in model.tasks.items())
        # What is reserved, and for which of those that wait for others, follows from the tasks.
        left = "needs", "seceded", "granted"
        ledger = tuple(value for name, value in vars(model.ledger).items() if name not in left)
        rest = model.loose, model.arriving, model.disk_works, model.asked
        return tasks, ledger, rest, self.ready, self.received, self.sent

    def next(self) -> Iterator[Explored]:
        """Yield the states that may follow."""
        running = [number for number, task in self.model.tasks.items() if task.running]
        events = [("finish", number) for number in running]
        events += [("secede", n) for n in running if self.model.tasks[n].kind == "task"]
        events += [("ready", 0)] * (self.ready < len(TASKS)) + [("disk", 0), ("spilled", 0)]
        events += [("receive", 0)] * (not self.received) + [("send", 0)] * (not self.sent)
        events += [("land", 0)] * (self.model.arriving > 0)
        for name, number in events:
            other = deepcopy(self)
            other.happen(name, number)
            other.model.pump()
            yield other

    def happen(self, name: str, number: int) -> None:
        model = self.model
        if name == "ready":
            model.tasks[self.ready] = replace(TASKS[self.ready])
            self.ready += 1
        elif name == "finish":
            model.finish(number, model.tasks[number].extra)
        elif name == "secede":
            model.secede(number)
        elif name == "disk":
            model.disk_works = not model.disk_works
        elif name == "spilled":
            model.spill_ends()
        elif name == "receive":
            model.tasks[RECEIVED], self.received = Task(0, 15, kind="receive"), True
        elif name == "send":
            model.tasks[SENT], self.sent = Task(35, 0, kind="send"), True
        else:
            model.land()


@pytest.mark.exhaustive
def test_all_schedules_of_a_few_tasks_go_on() -> None:
    seen = set()
    first = Explored()
    first.model.ledger.observe(0, 0, BASE)
    todo = [first]
    while todo:
        for following in todo.pop().next():
            if following.state not in seen:
                seen.add(following.state)
                todo.append(following)
                carry_on(deepcopy(following).model, len(TASKS) + 2)
    assert len(seen) > 1000


@pytest.mark.parametrize("extra", [1, 50, 150])
def test_reservations_end_with_their_tasks(extra: int) -> None:
    ledger = ledger_of()
    for key in range(9):
        ledger.start(key, Need(extra))
    ledger.start(3, Need(extra + 1))
    for key in range(9):
        ledger.finish(key)
    assert (ledger.reserved, ledger.running) == (0, 0)
