"""Policies as data."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from gpusched import threadsafe
from gpusched.threadsafe.policies import KINDS, Policy, parse

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


SAME: list[tuple[str, Policy]] = [
    ("lock", threadsafe.lock()),
    ("lock()", threadsafe.lock()),
    ("lock(hdf5)", threadsafe.lock("hdf5")),
    ("lock('hdf5')", threadsafe.lock("hdf5")),
    ('lock("a, b", each=True)', threadsafe.lock("a, b", each=True)),
    ("lock(torch training)", threadsafe.lock("torch training")),
    ("lock(name=gdal, each=true)", threadsafe.lock("gdal", each=True)),
    ("limit(4)", threadsafe.limit(4)),
    ("limit(4, gdal)", threadsafe.limit(4, "gdal")),
    ("limit(4, name=gdal)", threadsafe.limit(4, name="gdal")),
    ("limit(n=4, name=gdal)", threadsafe.limit(n=4, name="gdal")),
    ("one_thread(each=False)", threadsafe.one_thread(each=False)),
]


@pytest.mark.parametrize(("text", "policy"), SAME, ids=[text for text, _ in SAME])
def test_text_means_what_the_call_means(text: str, policy: Policy) -> None:
    assert parse(text) == policy
    assert parse(str(policy)) == policy


NONE = [
    "", "locks", "lock(", "lock)", "lock(a, n=2)", "limit(a, n=0)", "limit(n=two)", "lock(a)(b)",
    "limit", "limit()", "limit(a)", "limit(gdal, n=2)", "limit(0)", "limit(-1)", "limit(1.5)",
    "limit(True)", "limit('4')", "lock(5)", "lock(a, b)", "lock(a, True)", "lock(each=1)",
    "lock(each=yes)", "lock(each=True, a)", "lock(name=a, name=b)", "lock(a, name=b)", "lock(,)",
    "lock(a,,b)", "lock(=a)", "lock(a=)", "lock('a)", "process(each=True)", "lock(a;b)", "Lock(a)",
    "lock(None)", "limit(4, None)", "limit(007)", "limit(\N{FULLWIDTH DIGIT FOUR})",
]  # fmt: skip


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a policy"):
        parse(text)


def test_refusal_says_how_the_policy_is_called() -> None:
    with pytest.raises(ValueError, match=r"multiple values for argument 'n'; it is limit\(n"):
        parse("limit(gdal, n=2)")


@pytest.mark.parametrize("value", [None, 5, False, ["lock"]])
def test_settings_that_are_no_text_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a policy"):
        parse(value)


@pytest.mark.parametrize("policy", [None, 5, threadsafe.lock, object()])
def test_what_is_no_policy_does_not_wrap(policy: Any) -> None:
    with pytest.raises(TypeError, match="is not a policy: give one such as"):
        threadsafe.wrap(object(), policy)


@pytest.mark.parametrize(
    "make",
    [
        lambda: threadsafe.lock(5), lambda: threadsafe.lock("a", each="yes"),
        lambda: threadsafe.limit("a"), lambda: threadsafe.limit(True),
        lambda: threadsafe.limit(2, 3), lambda: threadsafe.per_thread(None),
    ],
)  # fmt: skip
def test_arguments_of_another_type_are_refused(make: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


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
