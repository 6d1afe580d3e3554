"""Steps that have not run, and what stands in for their results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusched.plan.plan import Call, Register, Registers, kind
from gpusched.record.postponed import Postponed

X = np.arange(3.0)


def recorded() -> tuple[Registers, Postponed]:
    """Return registers in which `1` and `2` are to be written, of what `0` holds."""
    contents: Registers = [X, np.empty(3), np.empty(3)]
    postponed = Postponed(contents)
    for k in (1, 2):
        call = Call(np.negative, (Register(k - 1),), {}, (k,), True, (kind(X),))
        postponed.add(call)
    return contents, postponed


def test_steps_run_in_order_once() -> None:
    contents, postponed = recorded()
    assert postponed.writes({0, 1}) and not postponed.writes({0})
    postponed.run(postponed.steps)
    np.testing.assert_array_equal(contents[1], -X)
    np.testing.assert_array_equal(contents[2], X)
    assert not postponed.steps and not postponed.writes({1, 2})


def test_others_may_do_what_they_do() -> None:
    contents, postponed = recorded()
    others = [replace(step, function=np.copy) for step in postponed.steps]
    postponed.run(others)
    np.testing.assert_array_equal(contents[2], X)
    assert not postponed.steps


def test_what_stands_in_is_let_go() -> None:
    contents, postponed = recorded()
    postponed.discard()
    assert contents[0] is X and contents[1:] == [None, None]
