"""A pytest plugin that runs a share of another project's tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, help="run each n-th test only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every = config.getoption("--every")
    config.hook.pytest_deselected(items=[t for k, t in enumerate(items) if k % every])
    items[:] = items[::every]
