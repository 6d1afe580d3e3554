"""What a thread policy adds to a call: `python -m tests.benchmarks.threadsafe --help`.

Wrapped and plain calls are timed by turns, so that a slow moment of the machine is everybody's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from gpusched import threadsafe


class Thing:
    """What is wrapped: as little as can be called."""

    value = 1

    def method(self, x: int) -> int:
        return x

    def __getitem__(self, x: int) -> int:
        return x


def function(x: int) -> int:
    return x


@dataclass(frozen=True)
class Measured:
    """A call, wrapped and plain."""

    what: str
    wrapped: Callable[[int], Any]
    """Makes that many calls."""
    plain: Callable[[int], Any]
    number: int
    """Of calls a turn."""


def calls(target: Callable[[int], int]) -> Callable[[int], None]:
    """Return what calls a function so many times."""

    def repeat(number: int) -> None:
        for _ in range(number):
            target(1)

    return repeat


def method_calls(target: Any) -> Callable[[int], None]:
    def repeat(number: int) -> None:
        for _ in range(number):
            target.method(1)

    return repeat


def items(target: Any) -> Callable[[int], None]:
    def repeat(number: int) -> None:
        for _ in range(number):
            target[1]

    return repeat


def attributes(target: Any) -> Callable[[int], None]:
    def repeat(number: int) -> None:
        for _ in range(number):
            target.value  # noqa: B018

    return repeat


def measured(number: int) -> list[Measured]:
    """Return what is measured, with so many calls a turn of the cheap ones."""
    slow = max(number // 100, 10)
    thing, guarded = Thing(), threadsafe.wrap(Thing(), "lock(benchmark)")
    rows = [
        Measured(f"function, `{text}`", calls(threadsafe.wrap(function, text)), calls(function), n)
        for text, n in (
            ("lock", number), ("limit(n=4)", number), ("per_thread", number),
            ("per_device", number), ("one_thread", slow), ("process", slow),
        )
    ]  # fmt: skip
    return [
        *rows,
        Measured("method, `lock`", method_calls(guarded), method_calls(thing), number),
        Measured("item, `lock`", items(guarded), items(thing), number),
        Measured("attribute, `lock`", attributes(guarded), attributes(thing), number),
    ]


def seconds(repeat: Callable[[int], Any], number: int) -> float:
    """Return the seconds of one call."""
    started = perf_counter()
    repeat(number)
    return (perf_counter() - started) / number


def main() -> None:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=10_000, help="calls a turn")
    parser.add_argument("--turns", type=int, default=51)
    chosen = parser.parse_args()
    rows = measured(chosen.number)
    for row in rows:
        row.wrapped(10)
    times: dict[str, list[tuple[float, float]]] = {row.what: [] for row in rows}
    for _ in range(chosen.turns):
        for row in rows:
            plain, wrapped = seconds(row.plain, row.number), seconds(row.wrapped, row.number)
            times[row.what].append((wrapped, wrapped - plain))
    print("| call | wrapped | more than plain | least more |\n| --- | --- | --- | --- |")
    for what, found in times.items():
        wrapped, more = (1e6 * median(column) for column in zip(*found, strict=True))
        least = 1e6 * min(more for _, more in found)
        print(f"| {what} | {wrapped:.2f} us | {more:.2f} us | {least:.2f} us |")
    threadsafe.close()


if __name__ == "__main__":
    main()
