"""A pytest plugin that runs a share of another project's tests, more of those that use dask."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

OTHERS = 5
"""Of tests that do not mention dask, one is run where so many of the others are."""

_USES_DASK = re.compile(r"dask|\bda\.|chunk|lazy", re.IGNORECASE)


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "run each n-th test that mentions dask, and of the others a fifth of that"
    parser.addoption("--every", type=int, default=1, help=told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every = config.getoption("--every")
    if every == 1:
        return
    using = [item for item in items if uses_dask(item)]
    found = set(using)
    others = [item for item in items if item not in found]
    chosen = {*using[::every], *others[:: every * OTHERS]}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def uses_dask(item: pytest.Item) -> bool:
    """Return whether a test mentions dask: in its name, its source, or a fixture's source."""
    if _USES_DASK.search(item.nodeid):
        return True
    functions = [getattr(item, "function", None), *_fixtures(item)]
    return any(map(_mentions_dask, functions))


def _fixtures(item: pytest.Item) -> Iterable[Any]:
    found = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return [each.func for definitions in found.values() for each in definitions]


@cache
def _mentions_dask(function: Any) -> bool:
    try:
        return bool(_USES_DASK.search(inspect.getsource(function)))
    except (OSError, TypeError):  # It has no source.
        return False
