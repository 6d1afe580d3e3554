"""Tasks of one form are asked once, by whoever asks."""

from functools import partial
from unittest.mock import Mock

import dask.array as da
import numpy as np
from dask.array import chunk

from gpusched import enable
from gpusched.adapters.tasks import DataNode, List, Task, TaskRef
from gpusched.graph.passes.chains import cuts, has_join_inside
from gpusched.graph.programs import rewrite
from gpusched.graph.programs.functiontraits import Functions
from gpusched.graph.programs.templates import Forms

CHUNKS = 300


def sums(n):
    """Return tasks that are alike but for the chunks that they take."""
    return [Task(("s", k), sum, List(TaskRef(("x", k)), TaskRef(("x", k + 1)))) for k in range(n)]


def test_a_question_is_asked_of_the_first_task_of_a_form():
    forms, tasks, asked = Forms(), sums(4), []

    def question(task):
        asked.append(task.key)
        return len(asked)

    assert [forms.answer(question, task) for task in tasks] == [1, 1, 1, 1]
    assert asked == [("s", 0)]


def test_other_constants_functions_and_chunks_given_twice_are_other_forms():
    x, y = TaskRef("x"), TaskRef("y")
    tasks = [Task("a", max, x, 1), Task("b", max, x, 1.0), Task("c", max, x, True),
             Task("d", min, x, 1), Task("e", max, x, y), Task("f", max, x, x)]  # fmt: skip
    forms = Forms()
    assert len({forms.of(task)[0] for task in tasks}) == len(tasks)
    assert forms.of(Task("g", max, y, 1))[0] == forms.of(tasks[0])[0]


def test_what_passes_ask_has_the_same_answer_for_each_task_of_a_form():
    cut = [Task(("c", k), chunk.getitem, TaskRef(("x", k)), (slice(k, k + 2),)) for k in range(3)]
    both = [Task.fuse(c, Task(("t", k), np.tan, TaskRef(c.key))) for k, c in enumerate(cut)]
    forms = Forms()
    for task in [*cut, *both, *sums(3)]:
        for question in (cuts, has_join_inside):
            assert forms.answer(question, task) == question(task)


def test_a_signature_is_made_once_for_all_passes(monkeypatch):
    made = []
    plain = Forms._signature

    def signature(self, task):
        made.append(task)
        return plain(self, task)

    monkeypatch.setattr(Forms, "_signature", signature)
    x = ((da.ones(CHUNKS * 10, chunks=10) + 1) * 2).sum()
    with enable():
        assert float(x.compute(scheduler="sync")) == CHUNKS * 40
    joins = sum(-(-CHUNKS // 4**k) for k in range(1, 6))
    assert CHUNKS < len(made) <= CHUNKS + joins


def weighted(x, y, weights):
    return x * y + weights


def calls(function, given):
    """Return tasks that call a function with a chunk and an array each."""
    return {
        ("t", k): Task(("t", k), function, TaskRef(("x", k)), DataNode(None, array))
        for k, array in enumerate(given)
    }


def test_what_a_function_holds_is_no_argument_of_the_next_task():
    held, other = np.arange(4.0), np.arange(4.0) * 3
    rewritten = rewrite.rewrite(calls(partial(weighted, weights=held), [held, other]), Functions())
    for task, own in zip(rewritten.values(), [held, other], strict=True):
        np.testing.assert_array_equal(task({("x", 0): held, ("x", 1): held}), held * own + held)


def test_functions_that_hold_arrays_are_translated_once(monkeypatch):
    asked = Mock(wraps=rewrite.translated)
    monkeypatch.setattr(rewrite, "translated", asked)
    given = [np.full(4, float(k)) for k in range(5)]
    rewritten = rewrite.rewrite(calls(partial(weighted, weights=np.ones(4)), given), Functions())
    x = np.arange(4.0)
    for k, task in enumerate(rewritten.values()):
        np.testing.assert_array_equal(task({("x", k): x}), x * k + 1)
    assert asked.call_count == 1
