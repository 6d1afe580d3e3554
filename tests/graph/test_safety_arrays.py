"""Arrays that functions read from outside: they are given as chunks are, and may change."""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.graph import disable, enable
from gpusched.graph.programs.payload import pack
from gpusched.graph.programs.program import Program
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep
from gpusched.store.statistics import reset_statistics, statistics

pytestmark = pytest.mark.usefixtures("everything_fused", "no_compiler")

VALUES = np.arange(24.0).reshape(4, 6)
OUTSIDE = np.arange(6.0)


@pytest.fixture(autouse=True)
def outside() -> Iterator[None]:
    """Have the module's array as it was."""
    before = OUTSIDE.copy()
    yield
    OUTSIDE[:] = before


def blocks(function: Callable[[Any], Any]) -> Any:
    (made,) = dask.optimize(
        (da.from_array(VALUES, chunks=(2, 6)) - 1).map_blocks(function, dtype=float)
    )
    return made


def computed(x: Any) -> Any:
    try:
        return (x() if callable(x) else x).compute(scheduler="sync").tolist()
    except Exception as error:  # noqa: BLE001  which is compared
        return type(error)


def reads_global(x: Any) -> Any:
    return x * OUTSIDE + 1


def reads_default(x: Any, more: Any = OUTSIDE) -> Any:
    return np.sqrt(x * x) + more


class Holds:
    def __init__(self) -> None:
        self.table = np.linspace(0, 1, 6)
        self.place = 3

    def __call__(self, x: Any) -> Any:
        return x * self.table - self.table[self.place]


def closed(*arrays: Any) -> Callable[[Any], Any]:
    first, last = arrays[0], arrays[-1]
    return lambda x: (x - first) * last


def together(*arrays: Any) -> Callable[[Any], Any]:
    return lambda x: arrays[0] * x + arrays[1]


PLACES, OF = np.arange(5.0), np.arange(5.0) ** 2


def interpolates(x: Any) -> Any:
    return np.interp(x, PLACES, OF) + 1


def calls(x: Any) -> Any:
    return reads_global(x) + reads_default(x, OUTSIDE)


FUSED: dict[str, Callable[[], Any]] = {
    "a global": lambda: reads_global,
    "a default": lambda: reads_default,
    "an attribute": Holds,
    "two": lambda: closed(np.arange(6.0), np.arange(12.0).reshape(2, 6)),
    "a column": lambda: closed(np.arange(2.0)[:, None]),
    "single precision": lambda: closed(np.arange(6, dtype="f4"), np.arange(6, dtype="i2")),
    "no axes": lambda: closed(np.array(3.0)),
    "a view": lambda: closed(np.arange(12.0)[::-2]),
    "in a tuple": lambda: together(np.arange(6.0), np.ones(6)),
    "in both": lambda: calls,
    "a table": lambda: interpolates,
    "a reduction": lambda: (lambda g: lambda x: x - g.mean() + g.max(axis=0))(np.arange(6.0)),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str) -> None:
    function = FUSED[name]()
    found = blocks(function)
    expected = np.concatenate([function(VALUES[k : k + 2] - 1) for k in (0, 2)])
    np.testing.assert_allclose(computed(found), expected, rtol=1e-14)
    assert statistics().fused_tasks == 2
    assert not statistics().breaks


def two_read(x: Any) -> Any:
    return x.map_blocks(reads_global, dtype=float).map_blocks(reads_default, dtype=float)


def test_one_array_of_two_functions_is_read_once() -> None:
    x = two_read(da.from_array(VALUES, chunks=(2, 6)))
    expected = reads_default(reads_global(VALUES))
    np.testing.assert_allclose(computed(x), expected)
    assert statistics().launches == 2
    assert statistics().bytes_read == VALUES.nbytes + 2 * OUTSIDE.nbytes


def returns_it(x: Any) -> Any:
    return OUTSIDE


def returns_a_view(x: Any) -> Any:
    return np.broadcast_to(OUTSIDE[None, ::-1], x.shape)


def changes_it(x: Any) -> Any:
    table = OUTSIDE
    table += 1
    return x * table


def assigns(x: Any) -> Any:
    OUTSIDE[0] = x[0, 0]
    return x * OUTSIDE


def writes_into_it(x: Any) -> Any:
    np.add(x[0], 1, out=OUTSIDE)
    return x * OUTSIDE


def asks_it(x: Any) -> Any:
    return x * 2 if float(OUTSIDE[1]) > 0 else x


def is_it(x: Any) -> Any:
    return x * 2 if OUTSIDE.base is None else x


def iterates(x: Any) -> Any:
    return sum(float(k) * x for k in OUTSIDE)


class Own(np.ndarray):
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.asarray(each) for each in inputs]
        return getattr(ufunc, method)(*plain, **kwargs) + 1


AS_THEY_ARE: dict[str, Callable[[], Any]] = {
    "is returned": lambda: returns_it,
    "a view is returned": lambda: returns_a_view,
    "is changed": lambda: changes_it,
    "is assigned to": lambda: assigns,
    "is written to": lambda: writes_into_it,
    "decides": lambda: asks_it,
    "is asked": lambda: is_it,
    "is gone through": lambda: iterates,
    "objects": lambda: closed(np.array([1.5, 2, 3, 4, 5, 6], dtype=object)),
    "a derived class": lambda: closed(np.arange(6.0).view(Own)),
    "masked": lambda: closed(np.ma.array(np.arange(6.0), mask=[1, 0, 0, 0, 0, 1])),
    "of another shape": lambda: closed(np.arange(4.0)),
    "strides of half an element": lambda: closed(
        np.frombuffer(bytes(100), dtype="f8,f4", count=6)["f0"]
    ),
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_as_they_are(name: str) -> None:
    found = {}
    before = OUTSIDE.copy()
    for fuses in (False, True):
        OUTSIDE[:] = before
        with enable() if fuses else disable():
            found[fuses] = computed(lambda: blocks(AS_THEY_ARE[name]())), OUTSIDE.tolist()
    assert found[True] == found[False]


def _shape(held: Any) -> None:
    held.array.shape = 2, 6


def _dtype(held: Any) -> None:
    held.array.dtype = np.int64


def _objects(held: Any) -> None:
    held.array.dtype = np.dtype([("f", "f8")])


def _resize(held: Any) -> None:
    held.array.resize((3, 2), refcheck=False)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "its contents": lambda held: held.array.fill(7.0),
    "another": lambda held: setattr(held, "array", np.full(12, 3.0)),
    "another dtype": lambda held: setattr(held, "array", np.full(12, 3, dtype="f4")),
    "a number": lambda held: setattr(held, "array", 2.0),
    "a list": lambda held: setattr(held, "array", [1.0] * 12),
    "another class": lambda held: setattr(held, "array", np.arange(12.0).view(Own)),
    "its shape": _shape,
    "its dtype": _dtype,
    "its fields": _objects,
    "its size": _resize,
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Setting the dtype:DeprecationWarning")
def test_it_may_change_after_its_graph_was_optimised(name: str) -> None:
    found = {}
    for fuses in (False, True):
        held = types.SimpleNamespace(array=np.arange(12.0))

        def function(x: Any, held: Any = held) -> Any:
            return x * 2 + np.sum(x * held.array[:6])

        with enable() if fuses else disable():
            x = blocks(function)
            results = [computed(x)]
            CHANGES[name](held)
            found[fuses] = [*results, computed(x), computed(lambda: blocks(function))]
    assert found[True] == found[False]
    assert found[True][0] != found[True][1] or name == "its size"


def test_another_function_of_its_task_may_change_it() -> None:
    def change(x: Any) -> Any:
        OUTSIDE[:] += 1
        return x

    found = []
    for fuses in (False, True):
        OUTSIDE[:] = 1.0
        x = da.from_array(VALUES, chunks=(2, 6))
        made = x.map_blocks(change, dtype=float).map_blocks(reads_global, dtype=float) * 2
        with enable() if fuses else disable():
            found.append(computed(made))
    assert found[0] == found[1]


def test_a_program_is_sent_with_what_is_in_it_then() -> None:
    """As plain dask sends functions."""
    held = np.arange(6.0)
    step = ProgramStep(partial(closed(held)), (Register(0),), {}, recorded=True)
    program = Program((step,), 1)
    for _ in range(2):
        np.testing.assert_array_equal(
            pickle.loads(pickle.dumps(program))(VALUES), (VALUES - held) * held
        )
        held *= -3


def test_it_is_pickled_again_only_if_that_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = []

    def counted(*args: Any) -> bytes:
        packed.append(args)
        return pack(*args)

    monkeypatch.setattr("gpusched.graph.programs.program.pack", counted)
    held = types.SimpleNamespace(array=np.arange(6.0), factor=2.0)
    step = ProgramStep(lambda x: x * held.array * held.factor, (Register(0),), {}, recorded=True)
    program = Program((step,), 1)
    for _ in range(5):
        pickle.dumps(program)
    assert len(packed) == 1
    held.array[2] = 7.0
    pickle.dumps(program)
    held.factor = 3.0
    pickle.dumps(program)
    pickle.dumps(program)
    assert len(packed) == 3
    held.array = np.array([[1.0]], dtype=object)
    pickle.dumps(program)
    held.array[0, 0] = 2.0
    pickle.dumps(program)
    assert len(packed) == 5


def adds(held: Any) -> Callable[[Any], Any]:
    def changed(x: Any) -> Any:
        held.array += 1
        held.offset += 1
        return x

    return changed


def sent(*steps: ProgramStep) -> list[Program]:
    """Return what three tasks call in another process."""
    packed = pickle.dumps(Program(steps, 1))
    return [pickle.loads(packed) for _ in range(3)]


def test_what_one_function_of_a_task_changes_another_one_reads() -> None:
    """Plain dask unpickles the functions of one task together, and those of each task anew."""
    held = types.SimpleNamespace(array=np.arange(6.0), offset=1.0)

    def reads(x: Any) -> Any:
        return x * held.array + held.offset

    first = ProgramStep(reads, (Register(0),), {}, recorded=True)
    change = ProgramStep(adds(held), (Register(1),))
    last = ProgramStep(reads, (Register(2),), {}, recorded=True)
    expected = (VALUES * np.arange(6.0) + 1) * np.arange(1.0, 7) + 2
    for program in sent(first, change, last):
        np.testing.assert_array_equal(program(VALUES), expected)


def test_whoever_changes_a_result_changes_no_array_from_outside() -> None:
    held = np.arange(6.0)
    step = ProgramStep(lambda x: held, (Register(0),), {}, recorded=True)
    for program in sent(step):
        found = program(VALUES)
        assert found.tolist() == list(range(6))
        found += 1


def increased(x: Any) -> Any:
    x += 1
    return x


def test_what_runs_before_anything_is_changed_is_recorded_once_for_all_tasks() -> None:
    held = types.SimpleNamespace(array=np.arange(6.0), offset=1.0)
    steps = (
        ProgramStep(lambda x: x * held.array + held.offset, (Register(0),), {}, recorded=True),
        ProgramStep(adds(held), (Register(1),)),
    )
    reset_statistics()
    for program in sent(*steps):
        np.testing.assert_array_equal(program(VALUES), VALUES * np.arange(6.0) + 1)
    assert statistics().recordings == 1


@pytest.mark.parametrize("several", [False, True])
def test_whoever_changes_a_view_within_a_task_changes_no_array_from_outside(several: bool) -> None:
    held = np.arange(6.0)
    change = (lambda x: increased(x[0])) if several else increased
    steps = (
        ProgramStep(lambda x: (held[:3], x) if several else held[:3], (Register(0),), {}, True),
        ProgramStep(change, (Register(1),)),
    )
    for program in sent(*steps):
        assert program(VALUES).tolist() == [1, 2, 3]


def test_programs_that_read_arrays_are_not_kept() -> None:
    reset_statistics()
    x = da.from_array(VALUES, chunks=(2, 6))
    for k in range(2):
        found = x.map_blocks(closed(np.full(6, float(k))), dtype=float) + 1
        assert computed(found) == ((VALUES - k) * k + 1).tolist()
    assert statistics().recordings == 2


CODES = np.random.default_rng(8).integers(0, 5, (6, 40)).astype("u1")


def looked_up(table: np.ndarray) -> Any:
    x = da.from_array(CODES, chunks=(3, 40))
    return x.map_blocks(lambda codes: table[codes], dtype=float) ** 2 + 1


def test_a_table_that_is_looked_up_is_part_of_the_kernel() -> None:
    table = np.linspace(0, 1, 256)
    np.testing.assert_array_equal(computed(looked_up(table)), table[CODES] ** 2 + 1)
    assert statistics().launches == 2
    assert not statistics().breaks


def test_places_beyond_a_table() -> None:
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        looked_up(np.arange(4.0)).compute(scheduler="sync")
    assert statistics().launches == 0


def test_a_program_in_a_program_that_is_sent_is_each_tasks_own() -> None:
    """As `dask.optimize` leaves them, when what it returns is computed."""
    held = types.SimpleNamespace(array=np.arange(6.0), offset=1.0)

    def reads(x: Any) -> Any:
        return x * held.array + held.offset

    change = ProgramStep(adds(held), (Register(0),))
    inner = Program((change, ProgramStep(reads, (Register(1),), {}, recorded=True)), 1)
    expected = VALUES * np.arange(1.0, 7) + 2
    for program in sent(ProgramStep(inner, (Register(0),))):
        np.testing.assert_array_equal(program(VALUES), expected)
