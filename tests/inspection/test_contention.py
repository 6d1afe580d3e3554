"""Waits for thread policies in an explanation."""

from __future__ import annotations

import uuid

import dask.array as da

import gpusched
from gpusched import threadsafe
from gpusched.inspection import Explanation
from tests.contention import wait_for


def explained() -> Explanation:
    with gpusched.enable():
        x = da.ones(20_000, chunks=10_000)
        return gpusched.explain((x + 1) * 3)


def test_waits_are_told_in_every_form() -> None:
    name = f"told-{uuid.uuid4().hex}"
    wait_for(threadsafe.lock(name))
    found = explained()
    (waits,) = (each for each in found.waits if each.policy == f"lock({name})")
    assert (waits.calls, waits.waits) == (2, 1)
    assert 0 < waits.longest == waits.seconds
    assert f"for lock({name})," in " ".join(found.text().split())
    assert f"lock({name})" in found.html()
    assert f"lock({name})" in [each["policy"] for each in found.to_dict()["waits"]]


def test_policy_that_nobody_waited_for_is_not_told() -> None:
    name = f"free-{uuid.uuid4().hex}"
    with threadsafe.lock(name):
        pass
    assert f"lock({name})" not in [each.policy for each in explained().waits]
