"""Views of what reductions are computed for are recorded when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusched.plan.expression import UnrecordableError
from gpusched.record import chunk
from gpusched.record.chunk import LazyChunk
from gpusched.record.record import Recorder
from tests.record.recording import check, record
from tests.tiers import exhaustive

Values = list[Any]
Step = Callable[[Values], None]
"""A step of a program: it takes some of the values there are, and may append one."""


def reduction(rng: np.random.Generator) -> Step:
    name = rng.choice(["sum", "mean", "var", "std", "max", "min", "any", "prod", "cumsum"])
    which, along, keep = int(rng.integers(100)), int(rng.integers(5)), bool(rng.integers(2))

    def step(values: Values) -> None:
        a = values[which % len(values)]
        axis = None if along == 4 or not a.ndim else along % a.ndim
        if name == "cumsum":
            values.append(np.cumsum(a, axis=axis or 0))
        else:
            values.append(getattr(np, name)(a, axis=axis, keepdims=keep and axis is not None))

    return step


def arithmetic(rng: np.random.Generator) -> Step:
    ufunc = getattr(np, rng.choice(["add", "subtract", "multiply", "true_divide", "maximum"]))
    one, other = map(int, rng.integers(100, size=2))
    ignored = bool(rng.integers(4) == 0)

    def step(values: Values) -> None:
        with np.errstate(**({"all": "ignore"} if ignored else {})):
            values.append(ufunc(values[one % len(values)], values[other % len(values)]))

    return step


def function(rng: np.random.Generator) -> Step:
    """A call that kernels do, or one that asks for values in the midst of the program."""
    kind, which = int(rng.integers(4)), int(rng.integers(100))

    def step(values: Values) -> None:
        a = values[which % len(values)]
        match kind:
            case 0:
                values.append(np.sqrt(abs(a)))
            case 1:
                values.append(np.where(a > 0, a, 1))
            case 2:
                values.append(np.sort(a, axis=None))
            case 3:
                values.append(a.astype(np.float32))

    return step


def item(rng: np.random.Generator) -> Any:
    start, stop = (None if n > 3 else int(n) for n in rng.integers(-4, 6, size=2))
    step = int(rng.choice([-2, -1, 1, 1, 1, 2]))
    number = int(rng.integers(-4, 4))
    kinds = [None, ..., slice(start, stop, step), slice(None), number, np.int64(number)]
    return kinds[int(rng.choice(6, p=[0.2, 0.2, 0.25, 0.25, 0.05, 0.05]))]


def indexing(rng: np.random.Generator) -> Step:
    which, index = int(rng.integers(100)), tuple(item(rng) for _ in range(rng.integers(4)))
    given = index[0] if len(index) == 1 else index

    def step(values: Values) -> None:
        values.append(values[which % len(values)][given])

    return step


def turning(rng: np.random.Generator) -> Step:
    which, kind, axis, other = map(int, rng.integers(100, size=4))

    def step(values: Values) -> None:
        a = values[which % len(values)]
        first, second = axis % 4 - 2, other % 4 - 2
        match kind % 8:
            case 0:
                values.append(a.T)
            case 1:
                values.append(np.swapaxes(a, first, second))
            case 2:
                values.append(np.moveaxis(a, first, second))
            case 3:
                values.append(np.expand_dims(a, first))
            case 4:
                values.append(np.squeeze(a))
            case 5:
                values.append(np.flip(a, first))
            case 6:
                axes = list(range(a.ndim))[::-1]
                values.append(np.transpose(a, axes))
                axes.reverse()  # What has been recorded does not see this.
            case 7:
                values.append(np.broadcast_to(a, (2, *a.shape)))

    return step


def changing(rng: np.random.Generator) -> Step:
    which, other, mask = int(rng.integers(100)), int(rng.integers(100)), bool(rng.integers(2))

    def step(values: Values) -> None:
        a = values[which % len(values)]
        if mask:
            a[a > 1] = 1
        else:
            a += values[other % len(values)]

    return step


def forgetting(rng: np.random.Generator) -> Step:
    which = int(rng.integers(100))
    return lambda values: values.pop(which % len(values)) if len(values) > 2 else None


STEPS = [*[reduction] * 7, *[arithmetic] * 6, *[function] * 2, *[indexing] * 5, *[turning] * 5,
         changing, forgetting]  # fmt: skip
SHAPES = [(3, 4, 5), (4, 6), (1, 1), (7,), (1, 5), (0, 3), (2, 0), (2, 150)]
DTYPES = ["f8", "f4", "f8", "i8", "i2", "u4", "?", "c16", "f2"]


def program(rng: np.random.Generator, arrays: list[np.ndarray]) -> Callable[..., Any]:
    """Return a function of arrays: random steps, and some of what they give in the end.

    Few of them raise: it ends with the first one that does.
    """
    steps: list[Step] = []
    values = [each.copy() for each in arrays]
    for _ in range(rng.integers(2, 16)):
        step = STEPS[rng.integers(len(STEPS))](rng)
        try:
            step(values)
        except Exception:  # noqa: BLE001  Whatever it is, the recording is to raise it.
            if rng.integers(12):
                continue
        steps.append(step)
    shown = rng.integers(100, size=rng.integers(1, 5)).tolist()

    def run(*given: Any) -> Any:
        values = list(given)
        for step in steps:
            step(values)
        made = values[len(given) :] or values
        return tuple(made[k % len(made)] for k in shown)

    return run


def operands(rng: np.random.Generator) -> list[np.ndarray]:
    shape = SHAPES[rng.integers(len(SHAPES))]
    found = []
    for _ in range(rng.integers(1, 3)):
        array = rng.normal(0, 3, shape)
        if rng.integers(3) == 0:
            array[rng.random(shape) < 0.2] = rng.choice([0.0, -0.0, np.nan, np.inf])
        with np.errstate(all="ignore"):
            array = array.astype(DTYPES[rng.integers(len(DTYPES))])
        if rng.integers(4) == 0:
            array = np.asfortranarray(array)
        found.append(array[::-1] if rng.integers(4) == 0 else array)
    return found


def outcome(function: Callable[[], Any]) -> Any:
    """Return what a call gives, its error, or that it cannot be recorded."""
    try:
        return function()
    except UnrecordableError:
        return None
    except Exception as error:  # noqa: BLE001  It is compared.
        return type(error), str(error)


def assert_bits(found: Any, expected: Any) -> None:
    """Assert that two outcomes are the same, bit by bit."""
    if not isinstance(expected, tuple) or isinstance(expected[0], type):
        assert found == expected
        return
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


def recorded(seed: int) -> Any:
    """Return what comes of recording a random program, which runs twice."""
    rng = np.random.default_rng(seed)
    arrays = operands(rng)
    run = program(rng, arrays)

    def result() -> Any:
        found = record(run, *arrays, backend="python")
        assert_bits(found.run(*arrays), found.result)
        return found.result

    return outcome(result)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [*range(0, 60, 15), *exhaustive(*range(60, 1500, 15))])
def test_programs_give_the_bits_of_views_recorded_at_once(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do errors, and what cannot be recorded."""
    seeds = range(first, first + 15)
    found = list(map(recorded, seeds))
    monkeypatch.setattr(chunk, "waits_for_reductions", lambda *_: False)
    for seed, each in zip(seeds, found, strict=True):
        assert_bits(each, recorded(seed))
    assert sum(isinstance(each, tuple) for each in found) > 5


def row(a: Any) -> Any:
    return np.mean(a, axis=0)[None]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x.var(axis=0)[None], y.var(axis=0)[..., None]),
        lambda x, y: (row(x), np.expand_dims((y - 1).sum(axis=0), -1), (x * y).max(axis=0)),
        lambda x, y: (row(x), np.sqrt(np.square(y).mean(axis=0)), np.flip(y.min(axis=0))),
    ],
)
def test_reductions_after_views_join_those_before(function: Callable[..., Any]) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 50, 6))
    found = check(function, x, y, ulp=32, scale=10, backend="python")
    assert [any(launch.loops.reduced) for launch in found.launches].count(True) == 1


def test_what_one_call_is_given_is_computed_together() -> None:
    x = np.random.default_rng(0).normal(size=(50, 6))

    def function(x: Any) -> Any:
        return np.stack([x.mean(axis=0), np.square(x).sum(axis=0), x.max(axis=0)])

    found = check(function, x, ulp=32, scale=10, backend="python")
    assert [any(launch.loops.reduced) for launch in found.launches].count(True) == 1


def test_only_what_a_view_shows_is_computed() -> None:
    found = check(
        lambda x: (x - x.mean(axis=0))[:1], np.random.default_rng(0).random((90, 4)), ulp=8, scale=1
    )
    assert [launch.outputs[0].result_shape for launch in found.launches] == [(4,), (1, 4)]


def test_what_nothing_reads_is_not_computed() -> None:
    def function(x: Any) -> Any:
        x.mean(axis=0)[None]
        return x + 1

    assert len(check(function, np.ones((4, 5))).launches) == 1


def refused_index(x: Any) -> Any:
    x[5]
    return x


def refused_axis(x: Any) -> Any:
    np.squeeze(x, 0)
    return x


@pytest.mark.parametrize("refused", [refused_index, refused_axis])
def test_what_numpy_refuses_is_refused_at_once(refused: Callable[[Any], Any]) -> None:
    row = np.ones(4)
    with pytest.raises((IndexError, ValueError)) as expected:
        refused(row)
    with pytest.raises(expected.type) as found:
        record(lambda x: refused(x.mean(axis=0)), np.ones((2, 4)))
    assert str(found.value) == str(expected.value)


def test_a_view_that_could_not_be_recorded_is_still_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise MemoryError

    def function(x: Any) -> Any:
        found = x.mean(axis=0)[1:]
        if isinstance(x, LazyChunk):
            with monkeypatch.context() as patch, pytest.raises(MemoryError):  # noqa: PT012
                patch.setattr(Recorder, "flush", fails)
                len(found)
        return found

    check(function, np.ones((2, 4)), backend="python")


def test_lists_may_change_after_a_call() -> None:
    def function(x: Any) -> Any:
        axes, to = [0, 1], (x - 1).mean(axis=0)
        found = np.transpose(to, axes)
        axes.reverse()
        return found

    check(function, np.random.default_rng(0).random((3, 4, 5)), backend="python", ulp=2)


def test_an_array_that_a_view_shows_does_not_change() -> None:
    def function(x: Any) -> Any:
        total = x.sum(axis=0)
        view = total[1:]
        total += 1
        return view

    with pytest.raises(UnrecordableError, match="changes a chunk in place"):
        record(function, np.ones((2, 4)))
