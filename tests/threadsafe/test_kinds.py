"""Policies as data."""

from __future__ import annotations

import pickle

import pytest

from gpusched import threadsafe
from gpusched.threadsafe.kinds import KINDS, Policy, parse

ALL = [
    threadsafe.lock("a"), threadsafe.lock("a", each=True), threadsafe.one_thread("a"),
    threadsafe.one_thread(each=True), threadsafe.limit(3, "a"), threadsafe.per_thread("a"),
    threadsafe.per_device("a"), threadsafe.process("a"), threadsafe.lock(),
]  # fmt: skip


@pytest.mark.parametrize("policy", ALL, ids=str)
def test_text_says_all(policy: Policy) -> None:
    assert parse(str(policy)) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(parse(str(policy))) == hash(policy)


@pytest.mark.parametrize(
    "text", ["", "locks", "lock(", "lock(a, n=2)", "limit(a, n=0)", "limit(n=two)", "lock(a)(b)"]
)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no policy"):
        parse(text)


def test_name_is_that_of_the_library_if_none_is_given() -> None:
    import json

    wrapped = threadsafe.wrap(json.JSONDecoder(), "lock")
    assert wrapped.decode("[1]") == [1]
    assert "lock(json)" in threadsafe.statistics()


def test_every_policy_can_be_written_in_a_setting() -> None:
    assert {type(policy) for policy in ALL} == set(KINDS.values())


def test_without_a_name_there_is_nothing_to_hold() -> None:
    with pytest.raises(ValueError, match="only with a name"), threadsafe.lock():
        pass
