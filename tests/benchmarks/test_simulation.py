"""The simulation agrees with what is known of such systems in closed form."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.simulation import (
    Costs,
    Events,
    Program,
    Server,
    most,
    rate_bound,
    simulate,
)

COPY = Program("copy", 1, 2)
MIB = 1 << 20


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_server_with_random_arrivals_is_an_m_d_1_queue(load: float) -> None:
    events = Events()
    server = Server(events)
    random_ = random.Random(0)
    count, when = 50_000, 0.0
    for _ in range(count):
        when += random_.expovariate(load)
        events.after(when, server.serve, 1.0, lambda: None)
    seconds = events.run()
    assert server.busy / seconds == pytest.approx(load, rel=0.03)
    # Pollaczek and Khinchine.
    assert server.waited / count == pytest.approx(load / (2 * (1 - load)), rel=0.08)


@pytest.mark.parametrize(("gpus", "chunks"), [(1, 1), (4, 16), (8, 17), (100, 50)])
def test_a_scheduler_that_costs_nothing(gpus: int, chunks: int) -> None:
    costs = Costs(0, 0.25, 0.5, 0, 1e9)
    found = simulate(COPY, costs, gpus, chunks, 10**9)
    assert found.seconds == pytest.approx(math.ceil(chunks / gpus) * 2.75)
    assert found.scheduling == 0


def test_gpus_that_cost_nothing() -> None:
    costs = Costs(1e-3, 0, 0, 0, math.inf)
    found = simulate(COPY, costs, 16, 1000, MIB)
    assert found.seconds == pytest.approx(1.0)
    assert found.scheduling == pytest.approx(1)
    assert found.computing == 0


def test_one_task_takes_the_way_there() -> None:
    costs = Costs(1, 2, 4, 8, 1)
    # Scheduled, sent, begun, launched, computed, told.
    assert simulate(COPY, costs, 1, 1, 16).seconds == pytest.approx(1 + 8 + 2 + 4 + 32 + 8)


@given(
    st.integers(1, 60),
    st.floats(1e-5, 1e-2),
    st.floats(0, 1e-2),
    st.floats(0, 1e-2),
    st.integers(1, 100),
)
def test_the_rate_comes_near_its_bound(
    gpus: int, scheduler: float, worker: float, latency: float, mib: int
) -> None:
    costs = Costs(scheduler, worker, 1e-5, latency, 1e10)
    chunks = 60 * gpus
    rate = chunks / simulate(COPY, costs, gpus, chunks, mib * MIB).seconds
    bound = rate_bound(COPY, costs, gpus, mib * MIB)
    assert 0.8 * bound <= rate <= bound * (1 + 1e-9)


def test_more_gpus_than_it_keeps_busy_are_no_use() -> None:
    costs = Costs(1e-3, 0, 0, 1e-4, 1e12)
    enough = most(COPY, costs, 4 << 30)
    assert enough == pytest.approx(8.59, rel=0.01)
    few, many = (simulate(COPY, costs, n, 50 * n, 4 << 30) for n in (6, 48))
    assert few.computing > 0.9
    assert many.scheduling > 0.99
    assert many.computing == pytest.approx(enough / 48, rel=0.1)


def test_joining_partial_results_costs_the_scheduler_too() -> None:
    costs = Costs(1e-3, 0, 0, 0, math.inf)
    joined = Program("sum", 1, 1, tasks=1.5)
    assert simulate(joined, costs, 4, 100, MIB).seconds == pytest.approx(0.15)
