"""Dictionaries of the newest entries keep no more than they may, whoever writes to them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from gpusched.newest import Newest


@given(limit=st.integers(1, 4), keys=st.lists(st.integers(0, 6), max_size=20))
def test_the_newest_are_kept(limit: int, keys: list[int]) -> None:
    found: Newest[int, int] = Newest(limit)
    for number, key in enumerate(keys):
        found[key] = number
    last = {key: number for number, key in enumerate(keys)}
    assert dict(found) == dict(sorted(last.items(), key=lambda item: item[1])[-limit:])
    assert list(found.values()) == sorted(found.values())


def test_what_is_there_by_default_is_as_old_as_before() -> None:
    found: Newest[str, int] = Newest(2)
    assert [found.setdefault(key, k) for k, key in enumerate("abac")] == [0, 1, 0, 3]
    assert dict(found) == {"b": 1, "c": 3}


def test_threads_may_write_at_once() -> None:
    found: Newest[int, int] = Newest(10)

    def write(first: int) -> None:
        for k in range(300):
            found[first + k] = k
            found.pop(first + k - 5, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(0, 4000, 1000)))
    assert len(found) <= 10


def test_all_are_removed_before_or_after_one_is_set() -> None:
    """Not between its being set again and its being the newest, for which it is looked up."""
    found: Newest[object, int] = Newest(10)
    thread = threading.Thread(target=found.clear)

    class Key:
        asked = 0

        def __hash__(self) -> int:
            self.asked += 1
            if self.asked == 3:
                thread.start()
                thread.join(0.05)  # It runs now, as far as it can.
            return 0

    key = Key()
    found[key] = 1
    found["newer"] = 2
    found[key] = 3
    thread.join()
    assert not found
