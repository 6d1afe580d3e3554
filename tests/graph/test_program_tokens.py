"""Programs as messages: how large they are, what travels in them, and what they become."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task

from gpusched import events
from gpusched.graph import optimize
from gpusched.graph.programs import program, program_tokens
from gpusched.graph.programs.program import Program
from gpusched.graph.running.batch import Batch
from gpusched.graph.running.decisions import Remaining
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import reset_statistics, statistics
from tests.waiting import PATIENCE

LIMIT = 2048


def ufuncs(x: Any) -> Any:
    for k in range(5):
        x = np.sqrt(np.abs(x) + k)
    return x


def mixed(x: Any) -> Any:
    return np.where(x > 0.5, np.tanh(x) ** 2, np.clip(x * 3 - 1, 0, 1) / 7).astype("float32").sum()


def lambdas(x: Any) -> Any:
    for k in range(10):
        x = x.map_blocks(lambda block, k=k: block * k + 1)
    return x


SOURCES: dict[str, Callable[[], Any]] = {
    "an array": lambda: da.from_array(np.linspace(0, 1, 8192), chunks=4096),
    "ones": lambda: da.ones(8192, chunks=4096),
    "full": lambda: da.full((64, 64), 3.0, chunks=32),
    "arange": lambda: da.arange(8192, chunks=4096, dtype="float32"),
}


def programs(array: da.Array) -> list[Program]:
    graph = dict(optimize(array.__dask_graph__(), array.__dask_keys__()))
    found = [node.func for node in graph.values() if type(node) is Task]
    return [function for function in found if isinstance(function, Program)]


def forget(token: str) -> None:
    """Let this process be one that has never seen a program."""
    program._recent.pop(token, None)
    program._restored.pop(token, None)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("chain", [ufuncs, mixed], ids=lambda chain: chain.__name__)
def test_ten_operations_are_below_two_kibibytes(source: str, chain: Callable[..., Any]) -> None:
    found = programs(chain(SOURCES[source]()))
    assert max(len(p.steps) for p in found) >= 9
    assert all(len(cloudpickle.dumps(p)) < LIMIT for p in found)


def test_plain_functions_take_few_bytes() -> None:
    (found,) = set(programs(ufuncs(SOURCES["an array"]())))
    assert len(found.steps) == 15
    assert len(found.payload()[1]) < 600


def test_lambdas_and_closures_travel() -> None:
    factor = 3.0
    array = SOURCES["an array"]().map_blocks(lambda block: np.sqrt(block) * factor)
    (found,) = set(programs(lambdas(array)))
    token, payload = found.payload()
    restored = program.restore(token, payload)
    x = np.linspace(0, 1, 4096)
    assert restored is not found
    np.testing.assert_array_equal(restored(x), found(x))


@pytest.mark.processes
def test_functions_of_main_travel(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, pickle, cloudpickle, numpy as np, dask.array as da\n"
        "from dask._task_spec import Task\n"
        "from gpusched.graph import optimize\n"
        "def double(block):\n"
        "    return np.sqrt(block) * 2\n"
        "x = da.from_array(np.arange(4096.), chunks=-1).map_blocks(double)\n"
        "graph = dict(optimize(x.__dask_graph__(), x.__dask_keys__()))\n"
        "(task,) = (node for node in graph.values() if type(node) is Task)\n"
        "sys.stdout.buffer.write(pickle.dumps(task.func))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, check=True)
    x = np.arange(4096.0)
    np.testing.assert_array_equal(pickle.loads(done.stdout)(x), np.sqrt(x) * 2)


def test_documentation_does_not_travel_with_dask_s_functions() -> None:
    (found,) = set(programs(ufuncs(SOURCES["ones"]())))
    assert b"Return an array of ones" not in found.payload()[1]
    restored = program.restore(*found.payload())
    np.testing.assert_array_equal(
        restored.steps[0].function(shape=(4096,)), found.steps[0].function(shape=(4096,))
    )


def test_equal_payloads_are_one_program_in_a_process() -> None:
    (found,) = set(programs(ufuncs(SOURCES["an array"]())))
    first, second = (pickle.loads(pickle.dumps(found)) for _ in range(2))
    assert first is second


def test_a_token_that_is_known_is_read_as_its_program() -> None:
    (found,) = set(programs(ufuncs(SOURCES["an array"]())))
    restored = pickle.loads(pickle.dumps(found))
    assert program_tokens.refer(found.payload()[0]) is restored


def test_how_much_is_left_goes_with_a_program_and_is_no_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpusched.graph.optimisation.cluster_threads", lambda: 2)
    array = SOURCES["an array"]()
    (found,) = set(programs(ufuncs(array)))
    token, _ = found.payload()
    sent = pickle.dumps(found)
    assert found.remaining.tasks == 2
    assert found.remaining.extra is not None and found.remaining.extra >= array.nbytes // 2
    forget(token)
    there = pickle.loads(sent)
    assert there.remaining == found.remaining and there.payload()[0] == token
    there.remaining.tasks -= 1
    assert pickle.loads(sent).remaining.tasks == 1, "counted by the process that runs them"
    program_tokens.refer(token, 9, "another graph")
    assert there.remaining.tasks == 9


def test_how_much_is_left_is_known_while_somebody_profiles() -> None:
    """By it kernels are compiled."""
    events.start("test")
    try:
        (found,) = set(programs(ufuncs(SOURCES["an array"]())))
    finally:
        events.stop("test")
    assert found.remaining.tasks == 2 and found.remaining.graph


def test_how_often_programs_of_a_batch_run_is_no_part_of_it() -> None:
    (inner,) = set(programs(ufuncs(SOURCES["an array"]())))
    tokens = set()
    for tasks in (3, 4):
        inner.remaining.learn(Remaining(tasks, f"graph {tasks}"))
        tokens.add(Program((ProgramStep(inner, (Register(0),)),), 1).payload()[0])
    assert len(tokens) == 1


def cell() -> tuple[Any, Callable[[], None]]:
    factor = 2.0

    def change() -> None:
        nonlocal factor
        factor = 7.0

    return lambda block: np.sqrt(block) * factor, change


def counter() -> tuple[Any, Callable[[], None]]:
    class Adds:
        more = 1.0

        def __call__(self, block: Any) -> Any:
            return np.sqrt(block) * self.more

    found = Adds()
    return found, lambda: setattr(found, "more", 7.0)


def method() -> tuple[Any, Callable[[], None]]:
    found, change = counter()
    return found.__call__, change


def default() -> tuple[Any, Callable[[], None]]:
    def scaled(block: Any, factor: float = 2.0) -> Any:
        return np.sqrt(block) * factor

    return scaled, lambda: setattr(scaled, "__defaults__", (7.0,))


def batch_of(found: Program) -> Program:
    batch = Batch((ProgramStep(found, (Register(1),)),), (0,))
    return Program((ProgramStep(batch, (("task",), Register(0))),), 1)


@pytest.mark.parametrize("made", [cell, counter, method, default])
@pytest.mark.parametrize("batched", [False, True])
def test_functions_go_as_they_are_when_they_are_sent(made: Any, batched: bool) -> None:
    """Plain dask pickles them each time that a graph is computed, optimised before or not."""
    function, change = made()
    array = (SOURCES["an array"]() + 1).map_blocks(function, dtype=float)
    (found,) = set(programs(array))
    if batched:
        found = batch_of(found)
    x = np.linspace(0, 1, 4096)
    for _ in range(2):
        received = pickle.loads(pickle.dumps(found))
        expected = function(x + 1)
        np.testing.assert_array_equal(received(x), expected)
        change()
        np.testing.assert_array_equal(received(x), expected)


def test_programs_that_have_not_changed_are_pickled_once() -> None:
    (found,) = set(programs(SOURCES["an array"]().map_blocks(cell()[0]) * 2))
    assert found.payload()[1] is found.payload()[1]


def doubled(block: Any) -> Any:
    return np.sqrt(block) * 2


def tripled(block: Any) -> Any:
    return np.sqrt(block) * 3


@pytest.mark.parametrize("batched", [False, True])
def test_names_stand_for_what_they_do_in_the_process_of_the_task(
    batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain dask looks them up for each task."""
    (found,) = set(programs((SOURCES["an array"]() + 1).map_blocks(doubled, dtype=float)))
    if batched:
        found = batch_of(found)
    sent = pickle.dumps(found)
    token, _ = found.payload()
    x = np.linspace(0, 1, 4096)
    with monkeypatch.context() as patch:
        first = pickle.loads(sent)
        patch.setattr(sys.modules[__name__], "doubled", tripled)
        for program in (pickle.loads(sent), program_tokens.refer(token)):
            np.testing.assert_array_equal(program(x), tripled(x + 1))
        assert program_tokens.refer(token) is program_tokens.refer(token) is not first
    np.testing.assert_array_equal(program_tokens.refer(token)(x), doubled(x + 1))


class TestDeferred:
    @pytest.fixture
    def found(self) -> Any:
        (found,) = set(programs(ufuncs(SOURCES["an array"]())))
        forget(found.payload()[0])
        yield found
        forget(found.payload()[0])

    @pytest.fixture
    def asked(self, found: Program, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        asked: list[str] = []

        def ask(token: str) -> bytes:
            asked.append(token)
            return found.payload()[1]

        monkeypatch.setattr(program_tokens, "_ask", ask)
        return asked

    def test_asks_when_it_is_called(self, found: Program, asked: list[str]) -> None:
        token = found.payload()[0]
        reset_statistics()
        waiting = program_tokens.refer(token, 5, "a graph")
        assert isinstance(waiting, program_tokens.Deferred)
        assert not asked
        x = np.linspace(0, 1, 4096)
        np.testing.assert_array_equal(waiting(x), found(x))
        assert asked == [token]
        assert statistics().programs_received == 1
        assert waiting.__name__ == found.__name__
        assert waiting._program is not None and waiting._program.remaining.tasks == 5

    def test_many_threads_ask_once(self, found: Program, asked: list[str]) -> None:
        token = found.payload()[0]
        waiting = [program_tokens.Deferred(token) for _ in range(16)]
        start = threading.Barrier(8)

        def run(deferred: program_tokens.Deferred) -> float:
            return float(deferred(np.ones(4096))[0])

        def all_at_once(
            pair: tuple[program_tokens.Deferred, program_tokens.Deferred],
        ) -> list[float]:
            start.wait(PATIENCE)
            return [run(deferred) for deferred in pair]

        pairs = list(zip(waiting[::2], waiting[1::2], strict=True))
        with ThreadPoolExecutor(8) as threads:
            values = {v for pair in threads.map(all_at_once, pairs) for v in pair}
        assert len(values) == 1
        assert asked == [token]
        assert not program_tokens._asking

    def test_goes_on_as_the_program(self, found: Program, asked: list[str]) -> None:
        assert pickle.loads(pickle.dumps(program_tokens.Deferred(found.payload()[0]))).steps

    def test_without_a_worker_it_says_so(self, found: Program) -> None:
        waiting = program_tokens.Deferred(found.payload()[0])
        reset_statistics()
        with pytest.raises(program_tokens.UnavailableError, match="no worker"):
            waiting(np.ones(4096))
        assert statistics().programs_missing == 1
        assert isinstance(pickle.loads(pickle.dumps(waiting)), program_tokens.Deferred)


def test_code_is_part_of_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is pickled by name may be another one the next time."""

    def token() -> str:
        return Program((ProgramStep(forget, (Register(0),)),), 1).payload()[0]

    before = token()
    assert token() == before
    monkeypatch.setattr(forget, "__code__", (lambda token: None).__code__)
    assert token() != before
