"""Values in memory and in files, whose files stay while the values are in memory again."""

from __future__ import annotations

from typing import TypeVar

import zict
from zict.common import discard, locked

KT = TypeVar("KT")
VT = TypeVar("VT")


class KeepingBuffer(zict.Buffer[KT, VT]):
    """A buffer in which moving a value down for the second time writes nothing.

    What is spilled under pressure is often read, and spilled again, many times over. Values do not
    change, so that the file of the first time holds for all; it goes with the value.

    Notes
    -----
    Thread-safe as `zict.Buffer` is. `kept` has the keys that are in both mappings.

    Examples
    --------
    >>> from gpusched.workers.memory.kept import KeepingBuffer
    >>> buffer = KeepingBuffer({}, {}, n=1)
    >>> buffer["a"] = 1
    >>> buffer["b"] = 2
    >>> dict(buffer.slow), buffer["a"], sorted(buffer.slow), sorted(buffer.kept)
    ({'a': 1}, 1, ['a', 'b'], ['a'])
    >>> del buffer["a"]
    >>> dict(buffer.slow), sorted(buffer.kept)
    ({'b': 2}, [])
    """

    kept: dict[KT, None]

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.kept = {}

    def fast_to_slow(self, key: KT, value: VT) -> None:
        """Move a value down, by forgetting it where it is there already."""
        with self.lock:
            if key in self.kept:
                del self.kept[key]
                return
        super().fast_to_slow(key, value)

    def slow_to_fast(self, key: KT) -> VT:
        """Bring a value up, and leave its other form where it is."""
        self._cancel_restore[key] = False
        try:
            with self.unlock():
                value = self.slow[key]
            if self._cancel_restore[key]:
                raise KeyError(key)
        finally:
            del self._cancel_restore[key]
        if self.weight(key, value) <= self.n:
            self.kept[key] = None
            self.fast.set_noevict(key, value)
        with self.unlock():
            self.fast.evict_until_below_target()
        return value

    def __setitem__(self, key: KT, value: VT) -> None:
        with self.lock:
            self.kept.pop(key, None)
        super().__setitem__(key, value)

    @locked
    def set_noevict(self, key: KT, value: VT) -> None:
        """Set a value, and move none down."""
        self.kept.pop(key, None)
        super().set_noevict(key, value)

    @locked
    def __delitem__(self, key: KT) -> None:
        if key in self.kept:
            del self.kept[key]
            del self.slow[key]
        super().__delitem__(key)

    @locked
    def forget_kept(self) -> int:
        """Remove the lower form of all values that have both; return how many."""
        keys = list(self.kept)
        self.kept.clear()
        for key in keys:
            discard(self.slow, key)
        return len(keys)
