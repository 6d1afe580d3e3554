"""Other processes' clocks: what readings leave open always holds the truth."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.profiling.clocks import Exchange, Reading, offset, read

seconds = st.floats(0, 1e3)
delays = st.lists(st.tuples(seconds, st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)), min_size=1)


@given(st.floats(-1e6, 1e6), delays)
def test_offset_is_known_to_its_accuracy(truth: float, exchanges: list[tuple[float, ...]]) -> None:
    found = offset(
        Exchange(Reading(asked + there + truth, ""), asked, asked + there + back)
        for asked, there, back in exchanges
    )
    assert abs(found.seconds - truth) <= found.accuracy + 1e-9
    shortest = min(there + back for _, there, back in exchanges)
    assert found.accuracy <= shortest / 2 + 1e-9


def test_clocks_that_drift_are_compared_by_the_shortest_exchange() -> None:
    found = offset(
        [Exchange(Reading(10.5, ""), 0.0, 1.0), Exchange(Reading(200.05, ""), 100.0, 100.1)]
    )
    assert found.seconds == pytest.approx(100.0)
    assert found.accuracy == pytest.approx(0.05)


@pytest.mark.processes
def test_processes_of_one_system_share_a_clock() -> None:
    code = "from gpusched.profiling.clocks import read; r = read(); print(r.time, r.clock, sep='|')"
    before = read()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    time, clock = out.stdout.strip().split("|")
    if not before.clock:
        pytest.skip("this system does not report which clock a process has")
    assert clock == before.clock
    assert before.time < float(time) < read().time
    found = offset([Exchange(Reading(float(time), clock), before.time, read().time)])
    assert (found.seconds, found.accuracy) == (0.0, 0.0)


def test_clock_never_read() -> None:
    with pytest.raises(ValueError, match="never read"):
        offset([])
