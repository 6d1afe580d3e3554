"""Syntax trees in threads, where collecting garbage lets other threads in."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gpusched.emit.parsing import parse, parse_expression, source_of


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collect garbage all the time, and watch it in Python, as distributed's workers do."""

    def watch(phase: str, info: dict[str, Any]) -> None:
        sum(range(20))

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(10)
    gc.callbacks.append(watch)
    yield
    gc.callbacks.remove(watch)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def test_threads_may_parse_at_once(collecting: None) -> None:
    """With `ast.parse` itself some of them raise SystemError."""
    text = "def f(x):\n" + "    return (((x + 1) * 2) - (x / 3))\n" * 20

    def work(number: int) -> int:
        parse_expression("((x + 1) * 2)")
        return len(parse(text).body)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(40))) == [1] * 40


def test_threads_may_ask_for_the_source_of_classes_at_once(collecting: None) -> None:
    """Python looks for them in a tree: with `inspect.getsource` some raise SystemError."""
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(source_of, [Future] * 12))
    assert all(each.startswith("class Future") for each in found)


def test_an_error_has_its_place_and_ends_the_turn() -> None:
    with pytest.raises(SyntaxError) as caught:
        parse("a = ", "mine.py")
    assert (caught.value.filename, caught.value.lineno) == ("mine.py", 1)
    assert parse("").body == []
