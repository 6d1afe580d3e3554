"""The store of results: which tier a value is in, what is counted, and what several threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.typing import Key
from hypothesis import given
from hypothesis import strategies as st

from gpusched.workers.device import HostDevice
from gpusched.workers.device.base import Frozen
from gpusched.workers.memory.sizes import host_nbytes
from gpusched.workers.memory.spillfiles import LostValueError, SpillFiles
from gpusched.workers.memory.store import Store
from tests.waiting import PATIENCE, wait_for
from tests.workers.emulated import EmulatedArray, EmulatedDevice

from .contract import check_different_keys_threadsafe, check_mapping

KIB = 1024

Make = Callable[..., Store]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Give a function that makes stores."""
    made: list[Store] = []

    def store(device: Any = None, host_limit: float = float("inf"), **kwargs: Any) -> Store:
        files = SpillFiles(tmp_path / f"store-{len(made)}")
        made.append(Store(device or HostDevice(), files, host_limit, **kwargs))
        return made[-1]

    yield store
    for store_ in made:
        store_.close()


def settle(store: Store) -> None:
    """Wait until what was to be moved has been."""
    store.make_room().result()


def kib(n: int, fill: int = 0) -> np.ndarray:
    return np.full(n * KIB, fill, np.uint8)


def test_is_a_mapping_without_limits(make: Make) -> None:
    check_mapping(make())


def test_is_a_mapping_where_nothing_stays_in_memory(make: Make) -> None:
    check_mapping(make(host_limit=0))


@pytest.mark.parametrize("again", [False, True])
def test_value_that_is_deleted_while_its_file_is_written_is_gone_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    written, go_on = threading.Event(), threading.Event()
    write = SpillFiles.__setitem__

    def slowly(files: SpillFiles, key: Key, value: object) -> None:
        write(files, key, value)
        written.set()
        assert go_on.wait(PATIENCE)

    store = make(host_limit=0)
    monkeypatch.setattr(SpillFiles, "__setitem__", slowly)
    store["a"] = kib(10, 1)
    try:
        assert written.wait(PATIENCE)
        del store["a"]
        assert ("a" in store, len(store), list(store)) == (False, 0, [])
        with pytest.raises(KeyError):
            del store["a"]
        if again:
            store["a"] = kib(10, 2)
            assert ("a" in store, list(store)) == (True, ["a"])
    finally:
        go_on.set()
    settle(store)
    assert list(store) == ["a"] * again
    if again:
        np.testing.assert_array_equal(store["a"], kib(10, 2))


@pytest.mark.parametrize("limit", [0, 30 * KIB])
def test_threads_with_keys_of_their_own(make: Make, limit: int) -> None:
    check_different_keys_threadsafe(make(host_limit=limit))


def test_least_recently_used_goes_first(make: Make) -> None:
    store = make(host_limit=35 * KIB)
    for name in "abc":
        store[name] = kib(10)
    assert store["a"] is not None
    store["d"] = kib(10)
    settle(store)
    assert sorted(store.files) == ["b"]
    assert store.held_on_host() <= 35 * KIB


def test_value_that_is_read_comes_up_again(make: Make) -> None:
    store = make(host_limit=15 * KIB)
    store["a"], store["b"] = kib(10, 1), kib(10, 2)
    settle(store)
    assert not store.ready("a")
    np.testing.assert_array_equal(store["a"], kib(10, 1))
    settle(store)
    assert store.ready("a")
    assert not store.ready("b")


def test_value_that_is_spilled_again_is_not_written_again(make: Make) -> None:
    store = make(host_limit=15 * KIB)
    store["a"], store["b"] = kib(10, 1), kib(10, 2)
    for name in "abab":
        np.testing.assert_array_equal(store[name], kib(10, 1 + (name == "b")))
        settle(store)
    assert store.metrics()["written_bytes"] == store.files.disk_bytes
    assert store.spilled_total[0] == host_nbytes(kib(10))
    store["a"], store["c"] = kib(10, 3), kib(10)
    settle(store)
    np.testing.assert_array_equal(store["a"], kib(10, 3))
    del store["a"], store["b"], store["c"]
    assert len(store.files) == 0


def test_small_values_are_spilled_last(make: Make) -> None:
    store = make(host_limit=30 * KIB)
    for number in range(5):
        store[number] = number
    store["a"], store["b"] = kib(2000), kib(25)
    settle(store)
    assert list(store.files) == ["a"]
    store.make_room(host_bytes=1000 * KIB).result()
    assert len(store.files) == 7


def test_files_of_what_is_in_memory_make_room_on_a_full_disk(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(host_limit=15 * KIB)
    store["a"], store["b"] = kib(10, 1), kib(10, 2)
    settle(store)
    assert store["a"][0] == 1
    settle(store)
    assert sorted(store.files) == ["a", "b"]
    real = SpillFiles.__setitem__

    def full(self: SpillFiles, key: Any, value: Any) -> None:
        if len(self) == 2:
            raise OSError(28, "No space left on device")
        real(self, key, value)

    monkeypatch.setattr(SpillFiles, "__setitem__", full)
    store.in_use = lambda: ["a"]
    store["c"] = kib(10, 3)
    settle(store)
    assert store.disk_error is None
    assert sorted(store.files) == ["b", "c"]
    assert [int(store[name][0]) for name in "abc"] == [1, 2, 3]


def test_bringing_up_is_done_elsewhere_and_keeps_what_was_asked_for(make: Make) -> None:
    store = make(host_limit=25 * KIB)
    for number in range(4):
        store[number] = kib(10, number)
    settle(store)
    assert store.bring_up([0, 1]).result() == []
    assert store.ready(0)
    assert store.ready(1)
    assert not store.ready(3)


def test_value_larger_than_the_limit_is_served(make: Make) -> None:
    store = make(host_limit=5 * KIB)
    store["large"] = kib(100, 7)
    settle(store)
    assert list(store.files) == ["large"]
    np.testing.assert_array_equal(store["large"], kib(100, 7))


def test_device_values_go_through_host_memory_to_disk(make: Make) -> None:
    device = EmulatedDevice(size=100 * KIB, memory_limit=25 * KIB)
    store = make(device, host_limit=15 * KIB)
    for number in range(4):
        store[number] = device.array(kib(10, number))
    settle(store)
    assert store.held_on_device() == device.used() == 20 * KIB
    assert list(store.files) == [0]
    assert store.metrics()["device_bytes"] == 10 * KIB
    for number in range(4):
        value = store[number]
        assert isinstance(value, EmulatedArray)
        np.testing.assert_array_equal(value.values, kib(10, number))
        del value
        settle(store)
        assert device.used() <= 25 * KIB
    assert len(store) == 4


def test_host_values_stay_off_the_device(make: Make) -> None:
    device = EmulatedDevice(size=100 * KIB, memory_limit=25 * KIB)
    store = make(device, host_limit=15 * KIB)
    store["host"], store["other"] = kib(10, 5), kib(10, 6)
    settle(store)
    np.testing.assert_array_equal(store["host"], kib(10, 5))
    assert device.used() == 0


def test_memory_of_running_tasks_counts(make: Make) -> None:
    device = EmulatedDevice(size=100 * KIB, memory_limit=50 * KIB)
    store = make(device)
    store["result"] = device.array(kib(20))
    settle(store)
    assert store.held_on_device() == 20 * KIB
    temporary = device.array(kib(40))
    settle(store)
    assert store.held_on_device() == 0
    assert device.used() == temporary.nbytes


def test_making_room_keeps_what_is_in_use(make: Make) -> None:
    device = EmulatedDevice(size=100 * KIB)
    store = make(device)
    for name in "ab":
        store[name] = device.array(kib(10))
    store.make_room(device_bytes=float("inf"), keep=["a"]).result()
    assert store.held_on_device() == 10 * KIB
    assert store.ready("a")


def test_key_can_change_its_place(make: Make) -> None:
    device = EmulatedDevice(size=100 * KIB)
    store = make(device)
    store["key"] = device.array(kib(10))
    store["key"] = "text"
    assert store["key"] == "text"
    assert len(store) == 1
    assert device.used() == 0
    store["key"] = device.array(kib(10))
    del store["key"]
    assert list(store) == []
    assert device.used() == 0


def test_value_that_cannot_be_written_stays_and_lets_others_go(make: Make) -> None:
    store = make(host_limit=0)
    store["lock"] = threading.Lock()
    store["array"] = kib(10)
    settle(store)
    assert store.ready("lock")
    assert list(store.files) == ["array"]


def test_what_distributed_asks_for_is_told(make: Make) -> None:
    store = make(host_limit=15 * KIB)
    store["a"], store["b"] = kib(10), kib(10)
    settle(store)
    assert len(store.slow) == 1
    assert store.spilled_total == (store.files.memory_bytes, store.files.disk_bytes) != (0, 0)
    # With both, distributed's own monitor would evict on the event loop.
    assert not (hasattr(store, "fast") and hasattr(store, "evict"))


def test_damaged_file_is_told_and_forgotten(make: Make) -> None:
    told: list[Any] = []
    store = make(host_limit=0, on_lost=lambda key, reason: told.append((key, reason)))
    store["a"], store["b"] = kib(10), kib(10)
    settle(store)
    for path in store.files.directory.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LostValueError):
        store["a"]
    assert store.bring_up(["b"]).result() == ["b"]
    assert [key for key, _ in told] == ["a", "b"]
    assert len(store) == 0
    assert "a" not in store
    store["a"] = 1
    assert store["a"] == 1


def test_full_disk_keeps_values_and_says_so_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make(host_limit=0)
    real = SpillFiles.__setitem__

    def full(self: SpillFiles, key: Any, value: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SpillFiles, "__setitem__", full)
    for number in range(3):
        store[number] = kib(10, number)
    settle(store)
    settle(store)
    assert store.disk_error is not None
    assert store.held_on_host() >= 30 * KIB
    assert len([r for r in caplog.records if "cannot spill" in r.getMessage()]) == 1
    monkeypatch.setattr(SpillFiles, "__setitem__", real)
    settle(store)
    assert store.disk_error is None
    assert sorted(store.files) == [0, 1, 2]


def test_closing_removes_the_files_and_can_be_repeated(make: Make, tmp_path: Path) -> None:
    store = make(host_limit=0)
    store["a"] = kib(10)
    settle(store)
    store.close()
    store.close()
    assert not list(tmp_path.rglob("*.*"))


@given(st.lists(st.tuples(st.sampled_from(["set", "get", "del", "move", "up"]), st.integers(0, 5))))
def test_any_order_of_calls_gives_what_a_dictionary_gives(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, int]]
) -> None:
    device = EmulatedDevice(size=1000 * KIB, memory_limit=5 * KIB)
    store = Store(device, SpillFiles(tmp_path_factory.mktemp("files")), host_limit=5 * KIB)
    model: dict[int, int] = {}
    for turn, (call, key) in enumerate(calls):
        if call == "set":
            values = kib(2, turn % 256)
            store[key] = device.array(values) if key % 2 else values
            model[key] = turn % 256
        elif call == "get" and key in model:
            value = store[key]
            np.testing.assert_array_equal(getattr(value, "values", value), kib(2, model[key]))
        elif call == "del" and key in model:
            del store[key], model[key]
        elif call == "move":
            store.make_room(device_bytes=3 * KIB, host_bytes=3 * KIB)
        elif call == "up":
            store.bring_up([key])
    assert sorted(store) == sorted(model)
    store.close()


class PausingDevice(EmulatedDevice):
    """Waits in the middle of "freeze" or "thaw" until it is released."""

    def __init__(self, at: str) -> None:
        super().__init__(size=100 * KIB, memory_limit=40 * KIB)
        self._at = at
        self.reached, self.released = threading.Event(), threading.Event()

    def _pause(self, at: str) -> None:
        if at == self._at:
            self.reached.set()
            assert self.released.wait(PATIENCE)

    def freeze(self, value: EmulatedArray) -> Frozen:
        self._pause("freeze")
        return super().freeze(value)

    def thaw(self, frozen: Frozen) -> EmulatedArray:
        self._pause("thaw")
        return super().thaw(frozen)


def test_host_value_takes_the_place_of_a_device_value_that_is_being_moved(make: Make) -> None:
    device = PausingDevice("freeze")
    store = make(device)
    for replace_at_once in (True, False):
        store["x"] = device.array(kib(4, 1))
        moved = store.make_room(device_bytes=4 * KIB)
        assert device.reached.wait(PATIENCE)
        if not replace_at_once:
            del store["x"]
        with ThreadPoolExecutor(1) as threads:
            setting = threads.submit(store.__setitem__, "x", kib(4, 2))
            wait_for(lambda: "x" not in store._device_keys)
            device.released.set()
            setting.result(PATIENCE)
        assert moved.result(PATIENCE) == 0
        np.testing.assert_array_equal(store["x"], kib(4, 2))
        assert list(store) == ["x"]
        device.reached.clear()
        device.released.clear()


def test_host_value_takes_the_place_of_a_device_value_that_is_to_be_read(make: Make) -> None:
    class Keys(set[Key]):
        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            if found and threading.current_thread() is not threading.main_thread():
                looked.append(key)
                if len(looked) == 2:  # it is there, and it is one of the device
                    self.discard("x")
                    del store.host["x"]
                    store.host["x"] = kib(4, 2)
            return found

    looked: list[object] = []
    device = EmulatedDevice(size=100 * KIB, memory_limit=40 * KIB)
    store = make(device)
    store["x"] = device.array(kib(4, 1))
    store.make_room(device_bytes=4 * KIB).result(PATIENCE)
    store._device_keys = Keys(store._device_keys)
    np.testing.assert_array_equal(store["x"], kib(4, 2))
    assert len(looked) == 2
    assert list(store) == ["x"]


@pytest.mark.parametrize("lies", ["on the host", "on the device"])
def test_value_that_is_replaced_while_it_is_read_is_the_new_one(make: Make, lies: str) -> None:
    device = PausingDevice("thaw")
    store = make(device)
    store["x"] = device.array(kib(4, 1))
    store.make_room(device_bytes=4 * KIB).result(PATIENCE)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(store.__getitem__, "x")
        assert device.reached.wait(PATIENCE)
        store["x"] = kib(4, 2) if lies == "on the host" else device.array(kib(4, 2))
        device.released.set()
        found = reading.result(PATIENCE)
    np.testing.assert_array_equal(getattr(found, "values", found), kib(4, 2))


def test_setting_and_deleting_a_key_that_is_being_moved(make: Make) -> None:
    device = EmulatedDevice(size=10_000 * KIB, memory_limit=40 * KIB)
    store = make(device, host_limit=20 * KIB)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            store.make_room(device_bytes=20 * KIB, host_bytes=20 * KIB).result()
            store.bring_up(range(8)).result()

    with ThreadPoolExecutor(2) as threads:
        churning = [threads.submit(churn) for _ in range(2)]
        for turn in range(300):
            key = turn % 8
            values = kib(4, turn % 256)
            store[key] = device.array(values) if turn % 3 else values
            if turn % 5 == 0:
                del store[key]
                assert key not in store
            else:
                value = store[key]
                np.testing.assert_array_equal(getattr(value, "values", value), values)
        stop.set()
        for future in churning:
            future.result()
    for key in list(store):
        del store[key]
    del value
    settle(store)
    assert device.used() == 0
    assert len(store.files) == 0


def test_values_that_tasks_read_stay_until_the_last_of_these_has_ended(make: Make) -> None:
    store = make()
    for name in "ab":
        store[name] = np.zeros(1000, np.uint8)
    weight = store.held_on_host() // 2
    running = [["a"], ["a", "b"]]
    store.in_use = lambda: chain(*running)
    assert store.movable_from_host() == 0
    assert store.make_room(host_bytes=1).result() == 0
    running.pop()
    assert store.movable_from_host() == weight
    assert store.movable_from_host(keep=["b"]) == 0
    assert store.make_room(host_bytes=2 * weight).result() == weight
    assert store.ready("a") and not store.ready("b")
    running.pop()
    assert store.make_room(host_bytes=1).result() == weight
