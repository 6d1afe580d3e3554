"""A library that is not re-entrant, as many in C are: global state, and the GIL released within."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any


class FragileError(Exception):
    """What the library raises."""


class State:
    """Global state: who is inside. Counts what would corrupt a real library."""

    def __init__(self) -> None:
        self.inside = 0
        self.overlaps = 0
        self.most = 0
        self.entries = 0
        self.deleted = 0
        self.threads: set[int] = set()
        self._exact = threading.Lock()

    def enter(self) -> None:
        with self._exact:
            self.inside += 1
            self.entries += 1
            self.most = max(self.most, self.inside)
            self.overlaps += self.inside > 1
            self.threads.add(threading.get_ident())
        # Lets other threads run, as a call that releases the GIL does.
        os.sched_yield()

    def leave(self) -> None:
        with self._exact:
            self.inside -= 1


state = State()


def reset() -> State:
    """Start to count anew."""
    state.__init__()  # type: ignore[misc]
    return state


class Inside:
    """Within a call of the library."""

    def __enter__(self) -> None:
        state.enter()

    def __exit__(self, *exception: object) -> None:
        state.leave()


def add(first: int, second: int) -> int:
    """Add two numbers."""
    with Inside():
        return first + second


def fail() -> None:
    with Inside():
        raise FragileError("as asked")


def count_to(end: int) -> Iterator[int]:
    """Yield numbers, doing something of the library's for each."""
    for number in range(end):
        with Inside():
            pass
        yield number


class File:
    """A handle: attributes, properties, special methods, a context manager and an iterator."""

    kind = "fragile"

    def __init__(self, size: int = 3) -> None:
        """Open it."""
        with Inside():
            self.values = list(range(size))
            self.closed = False

    @property
    def size(self) -> int:
        """Number of values."""
        with Inside():
            return len(self.values)

    @size.setter
    def size(self, size: int) -> None:
        with Inside():
            self.values = list(range(size))

    def read(self, index: int = 0, *, scale: int = 1) -> int:
        """Return a value."""
        with Inside():
            return self.values[index] * scale

    def part(self, start: int) -> File:
        """Return another handle."""
        other = File(0)
        other.values = self.values[start:]
        return other

    def parts(self) -> dict[str, File]:
        return {"all": self, "rest": self.part(1)}

    def pair(self) -> tuple[File, int]:
        return self, self.size

    def same(self, other: Any) -> bool:
        return other is self

    def __len__(self) -> int:
        with Inside():
            return len(self.values)

    def __getitem__(self, index: int) -> int:
        with Inside():
            return self.values[index]

    def __setitem__(self, index: int, value: int) -> None:
        with Inside():
            self.values[index] = value

    def __iter__(self) -> Iterator[int]:
        for index in range(len(self.values)):
            yield self[index]

    def __contains__(self, value: int) -> bool:
        with Inside():
            return value in self.values

    def __add__(self, other: File) -> File:
        both = File(0)
        both.values = self.values + other.values
        return both

    def __iadd__(self, value: int) -> File:
        self.values.append(value)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.values == other.values

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exception: object) -> None:
        with Inside():
            self.closed = True

    def __repr__(self) -> str:
        return f"File({len(self.values)})"


class Leaky(File):
    """A file that is closed where it is deleted."""

    def part(self, start: int) -> File:
        return File(0)

    def __del__(self) -> None:
        with Inside():
            state.deleted += 1


def open_file(size: int = 3) -> File:
    """Open a file."""
    return File(size)
