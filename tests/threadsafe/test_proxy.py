"""Proxies behave like what they stand for, under every policy."""

from __future__ import annotations

import copy
import inspect
import pickle
import sqlite3
import threading
import types
from typing import Any

import cloudpickle
import numpy as np
import pytest

from gpusched import threadsafe
from tests.threadsafe import fragile

SHARED = ["lock", "lock(each=True)", "one_thread", "one_thread(each=True)", "limit(n=1)"]
POLICIES = [
    *SHARED,
    "per_thread",
    "per_device",
    pytest.param("process", marks=pytest.mark.processes),
]


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def library(policy: str) -> Any:
    return threadsafe.wrap(fragile, policy)


@pytest.fixture
def file(library: Any) -> Any:
    return library.open_file(4)


def test_module(library: Any) -> None:
    assert library.add(1, second=2) == 3
    assert library.__name__ == "tests.threadsafe.fragile"
    assert library.__doc__ == fragile.__doc__
    assert isinstance(library, types.ModuleType)
    assert "add" in dir(library)
    with pytest.raises(AttributeError, match="no_such"):
        library.no_such  # noqa: B018


def test_function(library: Any) -> None:
    assert library.add.__name__ == "add"
    assert callable(library.add)
    with pytest.raises(TypeError, match="second"):
        library.add(1)


def test_errors_are_those_of_the_library(library: Any) -> None:
    with pytest.raises(fragile.FragileError, match="as asked"):
        library.fail()
    with pytest.raises(library.FragileError, match="as asked") as caught:
        library.fail()
    assert str(caught.value) == "as asked"


def test_generator(library: Any) -> None:
    assert list(library.count_to(3)) == [0, 1, 2]
    numbers = library.count_to(3)
    assert next(numbers) == 0
    numbers.close()
    assert list(numbers) == []


def test_handle(file: Any, library: Any) -> None:
    assert isinstance(file, fragile.File)
    assert isinstance(file, library.File)
    assert (file.size, len(file), file[1], list(file), 3 in file) == (4, 4, 1, [0, 1, 2, 3], True)
    assert file.read(2, scale=5) == 10
    assert file.kind == "fragile"
    assert repr(file) == "File(4)"
    assert bool(file)
    assert not callable(file)
    assert file.read.__doc__ == "Return a value."


def test_attributes_are_set(file: Any) -> None:
    file.size = 2
    assert len(file) == 2
    file[0] = 7
    assert file.read() == 7
    file.note = "added"
    assert file.note == "added"
    del file.note
    assert not hasattr(file, "note")


def test_context_manager(library: Any) -> None:
    with library.File(2) as file:
        assert file[1] == 1
        assert not file.closed
    assert file.closed


def test_class_and_subclass(library: Any) -> None:
    file = library.File(2)
    assert file == library.File(2)
    assert file != library.File(3)
    assert library.File.kind == "fragile"
    assert issubclass(fragile.File, library.File)


@pytest.mark.parametrize("policy", SHARED, indirect=True)
def test_results_that_belong_to_the_library_are_wrapped(file: Any) -> None:
    guarded = type(file)
    for result in (file.part(1), file.parts()["rest"], file.pair()[0], file + file, iter(file)):
        assert threadsafe.unwrap(result) is not result
    assert file.pair()[1] == 4
    assert isinstance(file.pair(), tuple)
    before = file
    file += 9
    assert file is before
    assert list(file)[-1] == 9
    assert file.same(file)
    assert guarded is not fragile.File


@pytest.mark.parametrize("policy", SHARED, indirect=True)
def test_data_is_not_wrapped(policy: str) -> None:
    zeros = threadsafe.wrap(np.zeros, policy)
    assert type(zeros(3)) is np.ndarray
    assert type(threadsafe.wrap(np, policy).float32(1)) is np.float32
    file = threadsafe.wrap(fragile.open_file, policy, results=False)()
    assert type(file) is fragile.File


@pytest.mark.parametrize("policy", SHARED, indirect=True)
def test_signature_and_source(library: Any) -> None:
    assert inspect.signature(library.add) == inspect.signature(fragile.add)
    assert inspect.signature(library.File(1).read) == inspect.signature(fragile.File(1).read)
    assert inspect.getdoc(library.File) == inspect.getdoc(fragile.File)
    assert inspect.unwrap(library.add) is fragile.add


@pytest.mark.parametrize("policy", SHARED, indirect=True)
def test_class_derived_from_a_wrapped_one(library: Any) -> None:
    class Derived(library.File):  # type: ignore[misc]
        def read(self) -> int:
            return super().read(0) + 100

    assert Derived(1).read() == 100
    assert Derived.__mro__[1] is fragile.File


@pytest.mark.parametrize("policy", SHARED, indirect=True)
def test_wrapped_function_as_method(policy: str) -> None:
    class Holder:
        total = threadsafe.wrap(lambda self, x: (self.start, x), policy)
        start = 1

    assert Holder().total(2) == (1, 2)


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_pickled_proxy_takes_this_process_own_guard(library: Any, dumps: Any) -> None:
    loaded = pickle.loads(dumps(library))
    assert loaded.add(1, 2) == 3
    # Each time the same, so that tokens are.
    assert dumps(library) == dumps(library)


def test_pickled_handle(policy: str) -> None:
    file = threadsafe.wrap(fragile.File(2), policy)
    loaded = pickle.loads(cloudpickle.dumps(file))
    assert list(loaded) == [0, 1]
    assert isinstance(loaded, fragile.File)
    assert len(threadsafe.statistics()) > 0


def test_lambda_and_closure(policy: str) -> None:
    base = 40
    add = threadsafe.wrap(lambda x: base + x, policy)
    assert pickle.loads(cloudpickle.dumps(add))(2) == 42


@pytest.mark.parametrize("policy", SHARED, indirect=True)
def test_copies(file: Any) -> None:
    for copied in (copy.copy(file), copy.deepcopy(file)):
        assert copied == file
        assert threadsafe.unwrap(copied) is not threadsafe.unwrap(file)


def test_unhashable_stays_unhashable(policy: str) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(threadsafe.wrap([1], policy))
    assert hash(threadsafe.wrap((1, 2), policy)) == hash((1, 2))


async def _wait() -> None: ...


async def _step() -> Any:
    yield 1


@pytest.mark.parametrize("function", [_wait, _step])
def test_asynchronous_functions_are_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="asynchronous"):
        threadsafe.wrap(function, "lock")


def test_wrapping_twice_replaces_the_policy() -> None:
    once = threadsafe.wrap(fragile.add, "lock(one)")
    assert threadsafe.unwrap(threadsafe.wrap(once, "lock(two)")) is fragile.add


def test_connection_is_used_in_the_thread_that_made_it(together: Any) -> None:
    connect = threadsafe.wrap(sqlite3.connect, "one_thread(each=True)")
    first, second = connect(":memory:"), connect(":memory:")
    for each in (first, second):
        each.execute("create table rows (x)")

    def insert() -> None:
        with first:
            first.execute("insert into rows values (1)")

    together(*[insert] * 8)
    assert first.execute("select sum(x) from rows").fetchall() == [(8,)]
    assert second.execute("select count(*) from rows").fetchone() == (0,)
    assert list(first.execute("select x from rows limit 2")) == [(1,), (1,)]
    threads = [t for t in threading.enumerate() if "one_thread(sqlite3" in t.name]
    assert len(threads) == 2


def test_counts_of_each_stay_when_its_handles_go() -> None:
    library = threadsafe.wrap(fragile, "lock(counted, each=True)")
    for _ in range(3):
        library.open_file(2).read()
    counted = threadsafe.statistics()["lock(counted, each=True)"]
    assert counted.calls >= 6


def test_proxy_of_another_thread_or_device_is_one_of_its_own(together: Any) -> None:
    file = threadsafe.wrap(fragile.open_file, "per_thread")(2)

    def change() -> int:
        file[0] += 1
        return int(file[0])

    assert together(*[change] * 4) == [1] * 4
    assert file[0] == 0
