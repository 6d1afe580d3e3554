"""Private names of dask and dask-array: a test names each that has moved."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator
from threading import Barrier, Thread
from typing import Any

import dask
import dask.array as da
import distributed.client
import numpy as np
import pytest

import gpusched
from gpusched.graph import hook
from gpusched.graph.frontends import adapter, counterparts
from gpusched.graph.frontends.counterparts import (
    Exchange,
    _named,
    _table,
    alike,
    counterpart,
    digest_of,
)
from gpusched.graph.programs.program import Program
from gpusched.store import processors
from gpusched.store.statistics import reset_statistics, statistics

MOVED = "has moved or changed upstream: see gpusched/graph/frontends/adapter.py"


@pytest.fixture(autouse=True)
def _package() -> None:
    pytest.importorskip("dask_array")


def modules() -> Iterator[str]:
    yield from adapter.PACKAGE
    for name, (other, _) in adapter.REWRITTEN.items():
        for each in (name.partition(adapter.INSIDE)[0], other):
            yield each.rpartition(".")[0]


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


def test_threads_that_compute_properties_of_expressions_do_not_wait_for_each_other() -> None:
    from dask_array._expr import ArrayExpr

    both = Barrier(2)

    class Other(ArrayExpr):  # type: ignore[misc]
        chunks = ((1,),)

    class Shaped(ArrayExpr):  # type: ignore[misc]
        @property
        def shape(self) -> Any:
            both.wait(timeout=10)
            return other.shape

    class Chunked(ArrayExpr):  # type: ignore[misc]
        @property
        def chunks(self) -> Any:
            both.wait(timeout=10)
            return ((other.ndim,),)

    # dask does not name objects of classes that are made in a function.
    shaped, chunked, other = map(object.__new__, (Shaped, Chunked, Other))
    found: dict[str, Any] = {}
    threads = [
        Thread(target=lambda: found.update(ndim=shaped.ndim), daemon=True),
        Thread(target=lambda: found.update(shape=chunked.shape), daemon=True),
    ]
    with gpusched.enable():
        for each in threads:
            each.start()
        for each in threads:
            each.join(timeout=10)
    assert found == {"ndim": 1, "shape": (1,)}, "cached properties have locks, as up to Python 3.11"


@pytest.mark.parametrize("name", list(adapter.REWRITTEN))
def test_functions_written_again_are_those_that_were_compared(name: str) -> None:
    other, digest = adapter.REWRITTEN[name]
    found = digest_of(_named(name.partition(adapter.INSIDE)[0]), _named(other))
    assert _named(name) in _table(), f"{name} {MOVED}"
    assert found == digest, (
        f"{name} or {other} {MOVED}. Compare the two; if they still do the same for every chunk, "
        f"write {found!r} in adapter.py, and take the entry out if not"
    )


@pytest.mark.parametrize("group", adapter.TOGETHER)
def test_whole_reductions_are_exchanged(group: tuple[str, ...]) -> None:
    functions = list(map(_named, group))
    assert [each for each in functions if counterpart(each) is each] == [], MOVED


@pytest.mark.parametrize(
    "name",
    [
        "_chunk.getitem", "_chunk.astype", "_core_utils._enforce_dtype", "_core_utils.finalize",
        "_core_utils.getter", "_core_utils.concatenate3", "_overlap._trim", "_shuffle._getitem",
        "linalg._tensordot._tensordot",
        "reductions._common.chunk_max", "reductions._common._nanmin_skip",
    ],
)  # fmt: skip
def test_copies_are_recognised(name: str) -> None:
    function = _named(f"dask_array.{name}")
    original = counterpart(function)
    assert original is not function, f"dask_array.{name} {MOVED}"
    assert original.__module__.startswith("dask.array")
    assert original.__name__ == function.__name__


@pytest.mark.slow
@pytest.mark.parametrize("axis", [None, 0, (0, 1), (0, 2)])
@pytest.mark.parametrize("name", ["mean", "var", "nanmean", "nanvar", "std"])
def test_exchanged_reductions_give_the_same(name: str, axis: object) -> None:
    import dask_array

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

    exchange = Exchange(lambda function: second if function is first else function)
    (step,) = exchange.value(compose(partial(first, scale=3), np.negative)).funcs
    assert (step.func, step.keywords) == (second, {"scale": 3})
    task = Task("x", partial(np.add, 1), TaskRef("y"), where=first)
    assert exchange.value(task).kwargs["where"] is second
    same = Task("x", partial(np.add, 1), TaskRef("y"))
    assert exchange.value(same) is same


def test_nothing_is_compared_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dask_array")
    monkeypatch.setattr(counterparts, "_table", lambda: pytest.fail("it was compared"))
    monkeypatch.setattr(counterparts, "alike", lambda *args: pytest.fail("it was compared"))
    assert counterpart(first) is first


def test_dask_array_itself_is_left_to_dask() -> None:
    from gpusched.graph.frontends.layered import has_arrays

    x = da.ones(4, chunks=2)
    from dask.base import collections_to_expr

    assert not has_arrays(collections_to_expr([x]))


def test_functions_of_masked_chunks_stay_the_packages_own() -> None:
    import dask_array

    values = np.ma.masked_less(np.arange(12.0).reshape(3, 4), 5, copy=False)
    values.fill_value = 7
    x = dask_array.from_array(values, chunks=2)
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = x.rechunk((3, 2)).compute(scheduler="sync")
    plain = x.rechunk((3, 2)).compute(scheduler="sync")
    np.testing.assert_array_equal(found.filled(), plain.filled())
    assert found.fill_value == plain.fill_value


def test_a_fused_function_is_given_its_only_block_along_axes_that_it_reduces() -> None:
    import dask_array

    x = dask_array.from_array(np.ones((1, 1, 30)), chunks=(1, 1, 10))
    mean = dask_array.blockwise(
        lambda block: block.mean(axis=(0, 1)), (2,), x, (0, 1, 2), dtype=x.dtype
    )
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = (mean * 2 + 1).compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.full(30, 3.0))


@pytest.mark.parametrize(("shape", "index"), [((4, 3), "i"), ((), "i"), ((6,), "")])
def test_an_index_of_other_axes_is_refused_as_without_gpusched(shape: Any, index: str) -> None:
    import dask_array

    x = dask_array.from_array(np.ones(6), chunks=3)
    other = dask_array.from_array(np.ones(shape), chunks=-1)
    wrong = dask_array.blockwise(np.add, "i", x, "i", other, index, dtype=float, align_arrays=False)
    for switched in (gpusched.disable(), gpusched.enable()):
        with switched, pytest.raises(ValueError, match=f"Index string .*{index}"):
            wrong.compute(scheduler="sync")


def test_the_hook_goes_with_what_is_sent_to_a_scheduler() -> None:
    import dask_array

    x = dask_array.ones((4, 4), chunks=2) * 2 + 1
    with gpusched.enable():
        sent = pickle.dumps(dask.base.collections_to_expr([x]).optimize())
    with gpusched.disable():
        tasks = pickle.loads(sent).__dask_graph__()
        plain = dask.base.collections_to_expr([x]).optimize().__dask_graph__()
    assert sum(isinstance(getattr(t, "func", None), Program) for t in tasks.values()) == 4
    assert not any(isinstance(getattr(t, "func", None), Program) for t in plain.values())


def test_collections_of_an_optimised_graph_have_their_own_chunks() -> None:
    xa = pytest.importorskip("dask_array")
    x = xa.from_array(np.arange(24.0).reshape(6, 4), chunks=(3, 2))
    overlapped = x.map_overlap(lambda block: block * 2, depth=1, boundary="reflect", dtype=float)
    parts = xa.concatenate([x[:3], x[3:] * 3]).rechunk(2)
    with gpusched.enable():
        for each in (overlapped, parts):
            (found,) = dask.optimize(each)
            np.testing.assert_array_equal(
                found.compute(scheduler="sync"), each.compute(scheduler="sync")
            )


def test_graphs_that_are_not_to_be_optimised_are_not() -> None:
    import dask_array

    x = dask_array.ones((4, 4), chunks=2) * 2 + 1
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        x.compute(optimize_graph=False, scheduler="sync")
        assert gpusched.statistics().fused_tasks == 0
        x.compute(scheduler="sync")
        assert gpusched.statistics().fused_tasks == 4
    gpusched.reset_statistics()


def test_moved_modules_are_not_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "dask_array._overlap"
    function = _named(f"{name}._trim")
    monkeypatch.setitem(sys.modules, name, None)
    assert counterpart(function) is function


def test_a_front_end_whose_names_have_moved_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    import dask_array

    from gpusched.graph.frontends import fused_expressions

    fused_expressions._warned.clear()
    monkeypatch.setitem(sys.modules, "dask_array.io._from_array", None)
    x = dask_array.ones((4, 4), chunks=2) * 2 + 1
    with gpusched.enable(), pytest.warns(UserWarning, match="dask_array.*Array without fusion"):
        found = x.compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.full((4, 4), 3.0))


def test_a_dask_without_the_entry_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dask.base, adapter.ENTRY)
    with pytest.warns(UserWarning, match="array expressions are computed without fusion"):
        hook.install()


def test_tasks_that_do_not_know_their_keys_are_fused() -> None:
    import dask_array

    values = np.random.default_rng(0).random((40, 5))
    x = dask_array.from_array(values, chunks=(10, 5))
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        x._chunks = ((np.nan,) * 4, (5,))
        q, r = dask_array.linalg.tsqr(x * 2 + 1)
        product = q.compute(scheduler="sync") @ r.compute(scheduler="sync")
    np.testing.assert_allclose(product, values * 2 + 1)


@pytest.mark.parametrize("masked", [False, True])
def test_arrays_that_optimise_themselves_have_the_functions_that_are_known(masked: bool) -> None:
    import dask_array

    values = np.random.default_rng(0).random((12, 10))
    x = dask_array.from_array(np.ma.masked_less(values, 0.5) if masked else values, chunks=(4, 5))
    means = ((x * 2 + 1).mean(axis=0) - 1).to_delayed
    expected = dask.compute(*means().tolist(), scheduler="sync")
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = dask.compute(*means().tolist(), scheduler="sync")
        own = [reason for _, reason in gpusched.statistics().breaks if "your function" in reason]
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        np.testing.assert_allclose(one, other)
    assert bool(own) == masked


def _odd() -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((24, 24))
    values[0, :4] = np.nan, np.inf, -np.inf, -0.0
    return values


EXCHANGED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "histogram2d": lambda da, x, y: da.histogram2d(
        x.ravel(), y.ravel(), bins=[5, 4], range=((-2, 2), (-1, 1))
    )[0],
    "histogramdd, weights": lambda da, x, y: da.histogramdd(
        [x.ravel(), y.ravel(), abs(x).ravel()],
        bins=[[-1.0, 0.0, 0.5, 2.0]] * 3,
        weights=(y * 2 + 1).ravel(),
        density=True,
    )[0],
    "matmul": lambda da, x, y: (y * 2 + 1) @ (y - 1),
    "matmul, integers": lambda da, x, y: (y * 9).astype("i2") @ (y * 5).astype("i2"),
    "matmul, several": lambda da, x, y: da.stack([y * 2 + 1, y]) @ da.stack([y - 1, y + 3]),
    "tensordot": lambda da, x, y: da.tensordot(y * 2 + 1, y - 1, axes=([0], [1])),
    "dot, complex": lambda da, x, y: da.dot(y * 2j + 1, y - 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [(8, 24), (7, 5), (24, 24), ((24, 0), (1, 23))])
@pytest.mark.parametrize("name", list(EXCHANGED))
def test_exchanged_functions_give_the_same_without_a_break(name: str, chunks: Any) -> None:
    import dask_array

    program, x, y = EXCHANGED[name], _odd(), np.random.default_rng(1).standard_normal((24, 24))
    lazy = program(
        dask_array,
        dask_array.from_array(x, chunks=chunks),
        dask_array.from_array(y, chunks=chunks),
    )
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        found = lazy.compute(scheduler="sync")
    breaks = [str(reason) for _, reason in gpusched.statistics().breaks]
    assert not [reason for reason in breaks if "your function" in reason]
    gpusched.reset_statistics()
    plain = lazy.compute(scheduler="sync")
    assert found.dtype == plain.dtype
    np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found, program(np, x, y), rtol=1e-9, atol=1e-9)


def test_singular_values_of_products_are_exchanged() -> None:
    import dask_array

    y = np.random.default_rng(1).standard_normal((24, 6))
    x = dask_array.from_array(y, chunks=(8, 6))
    gpusched.reset_statistics()
    with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
        _, found, _ = dask.compute(*dask_array.linalg.svd(x * 2 + 1), scheduler="sync")
    breaks = [str(reason) for _, reason in gpusched.statistics().breaks]
    assert not [reason for reason in breaks if "your function" in reason]
    gpusched.reset_statistics()
    np.testing.assert_allclose(found, np.linalg.svd(y * 2 + 1)[1], rtol=1e-9)


def test_functions_made_inside_others_are_exchanged_with_their_names_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dask.array.routines import _chunk_sum

    (name,) = [name for name in adapter.REWRITTEN if adapter.INSIDE in name]
    assert _table()[_named(name)] is _chunk_sum
    outside = _named(name.partition(adapter.INSIDE)[0])

    def other(a: Any) -> Any:
        def _chunk_sum(a: Any) -> Any:
            return a

        return _chunk_sum(a)

    monkeypatch.setattr(sys.modules[outside.__module__], outside.__name__, other)
    _table.cache_clear()
    try:
        assert _chunk_sum not in _table().values()
    finally:
        _table.cache_clear()


def _cut(documented: bool, last: int) -> Any:
    def cut(x: Any) -> Any:
        """Return a part."""
        return x[(slice(None, None), None, sorted([2, 1], key=lambda y: -y)[0])]

    described = cut

    def cut(x: Any) -> Any:  # type: ignore[no-redef]
        return x[(slice(None, None), None, sorted([2, 1], key=lambda y: -y)[0])]

    same = cut

    def cut(x: Any) -> Any:  # type: ignore[no-redef]
        return x[(slice(None, None), None, sorted([2, 1], key=lambda y: -y)[1])]

    return described if documented else (same, cut)[last]


def test_documentation_does_not_count() -> None:
    documented = _cut(True, 0)
    assert alike(documented, _cut(False, 0))
    assert not alike(documented, _cut(False, 1))


def test_documentation_that_the_code_uses_counts() -> None:
    def made(text: str) -> Any:
        names: dict[str, Any] = {}
        exec(f"def joined(x):\n    {text!r}\n    return x, {text!r}", names)
        return names["joined"]

    assert alike(made("sum"), made("sum"))
    assert not alike(made("sum"), made("prod"))


def test_an_axis_of_dask_array_may_have_no_chunk() -> None:
    package = pytest.importorskip("dask_array")
    x = package.from_array(np.ones((1, 6)), chunks=(1, 3)) + 1
    program = package.coarsen(np.sum, x, {0: 2}, trim_excess=True)
    with gpusched.disable():
        expected = program.compute(scheduler="sync")
    with gpusched.enable():
        found = program.compute(scheduler="sync")
    assert found.shape == expected.shape


def test_dask_array_need_not_know_what_a_users_function_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It calls the function without axes to find out, if anybody wants to know."""
    package = pytest.importorskip("dask_array")
    monkeypatch.setattr(processors, "interpreted", lambda: True)
    x = package.from_array(np.arange(96.0).reshape(8, 12), chunks=(4, 6))

    def spread(block: Any, axis: Any) -> Any:
        return block.max(axis=axis) - block.min(axis=axis)

    coarse = package.coarsen(spread, x * 2 + 1, {0: 2, 1: 3})
    for program in (coarse, coarse[::-1], coarse.map_blocks(np.negative, dtype=float)):
        with gpusched.disable():
            expected = program.compute(scheduler="sync")
        with gpusched.enable(), dask.config.set({"gpusched.fusion.minimum-elements": 0}):
            reset_statistics()
            np.testing.assert_array_equal(program.compute(scheduler="sync"), expected)
        assert statistics().fused_tasks == statistics().tasks > 0
