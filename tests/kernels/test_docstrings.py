"""The examples in the docstrings of user kernels run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import gpusched.kernels

MODULES = [m.name for m in pkgutil.walk_packages(gpusched.kernels.__path__, "gpusched.kernels.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    if name.startswith(("gpusched.kernels.simulation", "gpusched.kernels.decorator")):
        pytest.importorskip("greenlet", reason="the simulator's threads are greenlets")
    assert not doctest.testmod(importlib.import_module(name)).failed
