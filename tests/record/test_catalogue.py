"""What is known of functions is in one table, whose names stand for functions that exist."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable

import numpy as np
import pytest
from dask.array import chunk
from dask.utils import methodcaller

from gpusched.graph.functions.known import computes, known, pieces
from gpusched.graph.placement.cupycalls import moves_elements
from gpusched.record.catalogue import IMPLIED, METHODS, NAMES, TRAITS, has, own
from gpusched.record.recorded import one_of


def test_traits_are_explained() -> None:
    assert set(NAMES) <= set(TRAITS)
    assert {each for kinds in (IMPLIED, *IMPLIED.values()) for each in kinds} <= set(TRAITS)
    with pytest.raises(ValueError, match="no such traits of functions: slow"):
        own("slow")(lambda: None)


def test_implied_traits_imply_no_more() -> None:
    for trait, implied in IMPLIED.items():
        further = set().union(*(IMPLIED.get(each, ()) for each in implied))
        assert further <= set(implied), trait


@pytest.mark.parametrize("trait", NAMES)
def test_names_are_those_of_functions(trait: str) -> None:
    for module, names in NAMES[trait].items():
        each = names.split()
        assert each == sorted(set(each)), f"{trait} {module}: in order, each once"
        place = np.ndarray if module == METHODS else importlib.import_module(module)
        missing = [name for name in each if not hasattr(place, name)]
        assert not missing, f"{trait} {module}: {missing}"


@pytest.mark.parametrize("function", [operator.inv, operator.invert, operator.__inv__])
def test_other_names_of_an_operator_are_recorded(function: Callable[..., object]) -> None:
    assert known(function) and computes(function)


def test_functions_that_cannot_be_hashed_are_unknown() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: np.ndarray) -> np.ndarray:
            return x

    assert not has(Unhashable(), "view") and computes(Unhashable())


def test_our_own_functions_say_what_they_are() -> None:
    assert has(pieces, "view") and has(one_of, "elementwise")
    assert moves_elements(methodcaller("reshape")) and not moves_elements(methodcaller("sum"))
    assert has(chunk.getitem, "moves") and has(chunk.sum, "lean")
