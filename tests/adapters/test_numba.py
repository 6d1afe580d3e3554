"""Compiling in one thread does not touch what the warnings of others go through."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numba
import pytest
from numba.extending import overload

from gpusched.vectormath.bits import device


def stops(x: Any) -> Any:
    """Wait while numba infers the type of a call."""
    raise NotImplementedError


@pytest.fixture
def stopped() -> Any:
    """Return two events: a thread infers types now, and it may go on."""
    inside, may_go_on = threading.Event(), threading.Event()

    def typed(x: Any) -> Any:
        inside.set()
        assert may_go_on.wait(60)

        def same(x: Any) -> Any:
            return x

        return same

    overload(stops)(typed)

    return inside, may_go_on


def test_filters_stay_when_a_block_ends_while_another_thread_compiles(stopped: Any) -> None:
    inside, may_go_on = stopped
    called = device(lambda x: stops(x) + 1)
    caller = numba.njit(lambda x: called(x))
    thread = threading.Thread(target=caller.compile, args=((numba.float64,),))
    before = warnings.filters, warnings.showwarning
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread.start()
        assert inside.wait(60)
        warnings.warn("of the main thread", stacklevel=1)
        assert [str(each.message) for each in caught] == ["of the main thread"]
    may_go_on.set()
    thread.join()
    assert warnings.filters is before[0]
    assert warnings.showwarning is before[1]
