"""What every mapping of ours must do, whatever lies behind it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


def check_mapping(mapping: MutableMapping[Any, Any]) -> None:
    """Check that an empty mapping of text to text behaves as a dictionary."""
    model: dict[str, str] = {}
    for key in ("a", "b", "c"):
        mapping[key] = model[key] = key * 3
    mapping["b"] = model["b"] = "other"
    assert {key: mapping[key] for key in mapping} == model
    assert sorted(mapping) == sorted(mapping.keys()) == sorted(model)
    assert sorted(mapping.values()) == sorted(model.values())
    assert sorted(mapping.items()) == sorted(model.items())
    assert len(mapping) == 3
    assert "a" in mapping
    assert "x" not in mapping
    assert mapping.get("x") is None
    for missing in (lambda: mapping["x"], lambda: mapping.__delitem__("x")):
        with pytest.raises(KeyError):
            missing()
    del mapping["a"]
    assert "a" not in mapping
    assert len(mapping) == 2
    with pytest.raises(KeyError):
        mapping["a"]
    mapping.update(d="ddd", b="last")
    assert dict(mapping.items()) == {"b": "last", "c": "ccc", "d": "ddd"}
    mapping.clear()
    assert len(mapping) == 0
    assert list(mapping) == []


def check_different_keys_threadsafe(
    mapping: MutableMapping[Any, Any], threads: int = 4, rounds: int = 60
) -> None:
    """Check that threads with keys of their own do not disturb each other."""
    _in_threads(lambda number: _churn(mapping, number, rounds), threads)
    assert sorted(mapping) == sorted(f"kept-{number}" for number in range(threads))


def _churn(mapping: MutableMapping[Any, Any], number: int, rounds: int) -> None:
    mapping[f"kept-{number}"] = number
    for turn in range(rounds):
        key = f"{number}-{turn % 7}"
        mapping[key] = (number, turn, b"x" * 1000)
        assert mapping[key][:2] == (number, turn)
        assert key in mapping
        assert mapping[f"kept-{number}"] == number
        del mapping[key]
        assert key not in mapping


def _in_threads(function: Callable[[int], None], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(function, number) for number in range(threads)]:
            future.result()
