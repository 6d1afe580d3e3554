"""What every mapping of ours must do, whatever is behind it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, ItemsView, KeysView, MutableMapping, ValuesView
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


def check_mapping(mapping: MutableMapping[Any, Any], changes: int = 200) -> None:
    """Check that an empty mapping behaves as a dictionary of text.

    Each of some random changes, always the same ones, is made to a dictionary too.
    """
    assert isinstance(mapping, MutableMapping)
    _check_content(mapping, {})
    _check_every_method(mapping)
    model: dict[str, str] = {}
    chance = random.Random(3)
    for number in range(changes):
        change = chance.choice(CHANGES)
        key = chance.choice("abcdef")
        assert change(mapping, key, str(number)) == change(model, key, str(number))
        assert len(mapping) == len(model)
        assert (key in mapping) == (key in model)
        if number % 20 == 0:
            _check_content(mapping, model)
    _check_content(mapping, model)
    mapping.clear()
    _check_content(mapping, {})


def check_different_keys_threadsafe(
    mapping: MutableMapping[Any, Any], threads: int = 4, rounds: int = 60
) -> None:
    """Check that threads with keys of their own do not disturb each other."""
    _in_threads(lambda number: _churn(mapping, number, rounds), threads)
    assert sorted(mapping) == sorted(f"kept-{number}" for number in range(threads))


def check_same_key_threadsafe(mapping: MutableMapping[Any, Any], rounds: int = 100) -> None:
    """Check that a thread which reads a key sees only what two others set it to, or nothing."""
    turns = {
        0: lambda number: mapping.__setitem__("key", "first"),
        1: lambda number: mapping.__setitem__("key", "second"),
        2: lambda number: mapping.pop("key", None),
        3: lambda number: _check_one_of(mapping, ("first", "second", None)),
    }
    _in_threads(lambda number: [turns[number](turn) for turn in range(rounds)], len(turns))
    mapping["key"] = "last"
    _check_content(mapping, {"key": "last"})


def _check_one_of(mapping: MutableMapping[Any, Any], values: tuple[Any, ...]) -> None:
    assert mapping.get("key") in values


def _check_content(mapping: MutableMapping[Any, Any], model: dict[str, str]) -> None:
    views = mapping.keys(), mapping.values(), mapping.items()
    for view, kind in zip(views, (KeysView, ValuesView, ItemsView), strict=True):
        assert isinstance(view, kind)
        assert len(view) == len(model)
    assert bool(mapping) == bool(model)
    assert sorted(mapping) == sorted(model)
    assert sorted(mapping.items()) == sorted(model.items())
    # Walked through in any order, but in the same by all.
    order = list(mapping)
    assert list(mapping.keys()) == order
    assert list(mapping.values()) == [model[key] for key in order]
    for key, value in model.items():
        assert mapping[key] == value
        assert key in mapping
        assert value in mapping.values()
        assert (key, value) in mapping.items()
        assert (key, "another") not in mapping.items()
    for stranger in ("missing", object(), 1.5):
        _check_missing(mapping, stranger)
    assert mapping == model


def _check_missing(mapping: MutableMapping[Any, Any], key: Any) -> None:
    assert key not in mapping
    assert key not in mapping.keys()  # noqa: SIM118
    assert mapping.get(key) is None
    assert mapping.pop(key, "default") == "default"
    actions: list[Callable[[], Any]] = [
        lambda: mapping[key],
        lambda: mapping.__delitem__(key),
        lambda: mapping.pop(key),
    ]
    for action in actions:
        with pytest.raises(KeyError) as caught:
            action()
        assert caught.value.args[0] is key


def _check_every_method(mapping: MutableMapping[Any, Any]) -> None:
    mapping.update({"a": "1"}, b="2")
    mapping.update(iter([("c", "3"), ("a", "4")]))
    assert mapping.setdefault("a", "5") == "4"
    assert mapping.setdefault("d", "6") == "6"
    _check_content(mapping, {"a": "4", "b": "2", "c": "3", "d": "6"})
    assert mapping.pop("b") == "2"
    _check_missing(mapping, "b")
    key, value = mapping.popitem()
    assert (key, value) in {("a", "4"), ("c", "3"), ("d", "6")}
    _check_missing(mapping, key)
    with pytest.raises(TypeError):
        mapping[[]]
    mapping.clear()
    with pytest.raises(KeyError):
        mapping.popitem()


def _set(mapping: MutableMapping[Any, Any], key: str, value: str) -> None:
    mapping[key] = value


def _delete(mapping: MutableMapping[Any, Any], key: str, value: str) -> bool:
    try:
        del mapping[key]
    except KeyError:
        return False
    return True


CHANGES: list[Callable[[MutableMapping[Any, Any], str, str], Any]] = [
    _set,
    _delete,
    lambda mapping, key, value: mapping.get(key),
    lambda mapping, key, value: mapping.pop(key, value),
    lambda mapping, key, value: mapping.setdefault(key, value),
    lambda mapping, key, value: mapping.update({key: value, "a": value}),
]


def _churn(mapping: MutableMapping[Any, Any], number: int, rounds: int) -> None:
    mapping[f"kept-{number}"] = number
    for turn in range(rounds):
        key = f"{number}-{turn % 7}"
        mapping[key] = (number, turn, b"x" * 1000)
        assert mapping[key][:2] == (number, turn)
        mapping[key] = (number, turn, "again")
        assert mapping[key] == (number, turn, "again")
        assert key in mapping
        assert key in list(mapping)
        assert mapping[f"kept-{number}"] == number
        del mapping[key]
        _check_missing(mapping, key)


def _in_threads(function: Callable[[int], object], threads: int) -> None:
    together = threading.Barrier(threads)

    def start(number: int) -> None:
        together.wait()
        function(number)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(start, number) for number in range(threads)]:
            future.result()
