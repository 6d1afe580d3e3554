"""Private names of dask and dask-array: a test names each that has moved."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import dask
import dask.array as da
import distributed.client
import numpy as np
import pytest

from gpusched.graph.frontends import adapter
from gpusched.graph.frontends.alike import alike
from gpusched.graph.frontends.counterparts import (
    REWRITTEN,
    TOGETHER,
    Exchange,
    _named,
    counterparts,
    digest_of,
)

MOVED = "has moved or changed upstream: see gpusched/graph/frontends/adapter.py"


@pytest.fixture(autouse=True)
def _package() -> None:
    pytest.importorskip("dask_array")


def modules() -> Iterator[str]:
    yield from adapter.PACKAGE
    for name, others in adapter.COUNTERPARTS.items():
        yield name
        yield from others


@pytest.mark.parametrize("name", sorted(set(modules())))
def test_modules_are_where_they_were(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError as error:
        pytest.fail(f"{name} {MOVED} ({error})")


@pytest.mark.parametrize("name", ["dask.base", "dask.delayed", distributed.client.__name__])
def test_computing_enters_through_one_function(name: str) -> None:
    module = importlib.import_module(name)
    entered = getattr(module, adapter.ENTRY, None)
    assert entered is adapter.entered_through(), f"{name}.{adapter.ENTRY} {MOVED}"
    assert hasattr(entered, "__gpusched__")


def test_front_end_has_the_kinds_of_expressions_that_are_told_apart() -> None:
    import dask_array

    x = dask_array.ones((4, 4), chunks=2)
    (end,) = [e for e in adapter.front_ends() if e.collection.__module__.startswith("dask_array")]
    assert isinstance(x, end.collection), MOVED
    assert isinstance(x.expr, end.array), MOVED
    assert end.is_blockwise((x + 1).expr), MOVED
    assert not end.is_blockwise(x.expr)
    assert isinstance((x + 1 - 2).optimize().expr, end.fused), MOVED
    assert end.is_number(dask_array.from_array(np.array(2)).expr), MOVED
    assert not end.is_number(dask_array.from_array(np.ones(2)).expr)


@pytest.mark.parametrize("name", list(REWRITTEN))
def test_functions_written_again_are_those_that_were_compared(name: str) -> None:
    other, digest = REWRITTEN[name]
    found = digest_of(_named(name), _named(other))
    assert found == digest, (
        f"{name} or {other} {MOVED}. Compare the two; if they still do the same for every chunk, "
        f"write {found!r} in counterparts.py, and take the entry out if not"
    )


@pytest.mark.parametrize("group", TOGETHER)
def test_whole_reductions_are_exchanged(group: tuple[str, ...]) -> None:
    pairs = counterparts()
    assert [name for name in group if _named(name) not in pairs] == [], MOVED


@pytest.mark.parametrize(
    "name",
    [
        "_chunk.getitem", "_chunk.astype", "_core_utils._enforce_dtype", "_core_utils.finalize",
        "_core_utils.getter", "_core_utils.concatenate3", "_overlap._trim", "_shuffle._getitem",
        "reductions._common.chunk_max", "reductions._common._nanmin_skip",
    ],
)  # fmt: skip
def test_copies_are_recognised(name: str) -> None:
    function = _named(f"dask_array.{name}")
    original = counterparts().get(function)
    assert original is not None, f"dask_array.{name} {MOVED}"
    assert original.__module__.startswith("dask.array")
    assert original.__name__ == function.__name__


@pytest.mark.slow
@pytest.mark.parametrize("axis", [None, 0, (0, 1), (0, 2)])
@pytest.mark.parametrize("name", ["mean", "var", "nanmean", "nanvar", "std"])
def test_exchanged_reductions_give_the_same(name: str, axis: object) -> None:
    import dask_array

    import gpusched

    values = np.random.default_rng(0).standard_normal((6, 7, 8))
    values[0, 0] = np.nan if name.startswith("nan") else 1
    x = dask_array.from_array(values, chunks=(3, 4, 5))
    lazy = getattr(dask_array, name)(x, axis=axis, split_every=2)
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = lazy.compute(scheduler="sync")
    np.testing.assert_allclose(found, lazy.compute(scheduler="sync"), rtol=1e-12)
    np.testing.assert_allclose(found, getattr(np, name)(values, axis=axis), rtol=1e-12)


def first(x: object, scale: float = 2.0) -> object:
    """Return what `second` does, whose text is another one."""
    return np.sin(x) * scale  # type: ignore[operator]


def second(x: object, scale: float = 2.0) -> object:
    return np.sin(x) * scale  # type: ignore[operator]


def other_default(x: object, scale: float = 2.5) -> object:
    return np.sin(x) * scale  # type: ignore[operator]


def other_constant(x: object, scale: float = 2.0) -> object:
    return np.sin(x) * scale * 1.0  # type: ignore[operator]


def other_function(x: object, scale: float = 2.0) -> object:
    return np.cos(x) * scale  # type: ignore[operator]


def test_only_the_same_code_is_alike() -> None:
    assert alike(first, second)
    for other in (other_default, other_constant, other_function, np.sin, None):
        assert not alike(first, other)


def test_names_from_outside_count() -> None:
    def made(scale: float) -> object:
        return lambda x: x * scale

    assert alike(made(2.0), made(2.0))
    assert not alike(made(0.0), made(-0.0))
    namespaces = [{"inner": inner} for inner in (first, second, other_function)]
    for space in namespaces:
        exec("def outer(x):\n    return inner(x)", space)
    assert alike(namespaces[0]["outer"], namespaces[1]["outer"])
    assert not alike(namespaces[0]["outer"], namespaces[2]["outer"])


def test_functions_inside_others_are_exchanged() -> None:
    from functools import partial

    from dask._task_spec import Task, TaskRef
    from toolz import compose

    exchange = Exchange({first: second})
    (step,) = exchange.value(compose(partial(first, scale=3), np.negative)).funcs
    assert (step.func, step.keywords) == (second, {"scale": 3})
    task = Task("x", partial(np.add, 1), TaskRef("y"), where=first)
    assert exchange.value(task).kwargs["where"] is second
    same = Task("x", partial(np.add, 1), TaskRef("y"))
    assert exchange.value(same) is same


def test_nothing_is_compared_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dask_array")
    assert counterparts() == {}


def test_dask_array_itself_is_left_to_dask() -> None:
    from gpusched.graph.frontends.layered import has_arrays

    x = da.ones(4, chunks=2)
    from dask.base import collections_to_expr

    assert not has_arrays(collections_to_expr([x]))
