"""Lists that a function makes and changes: what is shown safe gives NumPy's results."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.graph.safety.examination import examined, kind_of
from gpusched.graph.safety.kinds import Kind
from tests.graph.examining import assert_as_numpy, assert_numpys, assert_safe, why_unsafe
from tests.record.recording import assert_same, record


def collects(x: Any) -> Any:
    parts = []
    for k in range(1, 4):
        parts.append(scaled(x, k))
    parts.extend([x, x + 1])
    parts.extend(x * k for k in (5, 6))
    parts += [x]
    parts[0] = x * 7
    last = parts[-1]
    return np.stack(parts).sum(axis=0) + np.concatenate([*parts, x]).max(axis=0) - last


def scaled(x: Any, by: Any) -> Any:
    return x * by


def index_of_lists(x: Any, axis: int = 1) -> Any:
    index = [slice(None)] * x.ndim
    index[axis] = slice(1, None)
    shape = list(x.shape)
    shape[axis] = 1
    return x[tuple(index)] + np.reshape(x[:, 0], tuple(shape)) * len(shape)


def tail(x: Any, take: Any = operator.getitem, axis: int = 1) -> Any:
    """As dask-array has it for the totals of blocks, some of which may be empty."""
    if x.shape[axis] == 0:
        shape = list(x.shape)
        shape[axis] = 1
        return np.full_like(x, 7, shape=tuple(shape))
    return operator.add(take(x, (slice(None), slice(-1, None))), 1)


def unpacks(x: Any) -> Any:
    pair = [x, x + 1]
    first, second = pair
    return scaled(*pair) + np.add(*[first, second]) - (max([x.ndim, 7]) if pair else 0)


def numbers(x: Any) -> Any:
    axes = [k for k in range(x.ndim) if k not in [1, 2]]
    rows = np.arange(x.shape[0])[:, None]
    return x.sum(axis=tuple(axes), keepdims=True) + rows * 2 if axes else x


def by_lists(x: Any, axis: Any, columns: Any, weights: Any) -> Any:
    kept = tuple([n if k not in axis else 1 for k, n in enumerate(x.shape)])
    y = np.moveaxis(x, axis, [-1]) if axis is not None else x
    return x[:, columns].sum(axis=axis[0], keepdims=True) * kept[0] + weights[0] * y.max()


def lists_of_lists(x: Any) -> Any:
    rows = [[x, x + 1], [x * 2]]
    rows[1].append(x * 3)
    total = 0
    for row in rows:
        total = total + sum(row)
    return total + rows[0][1]


def lists_of_functions(x: Any) -> Any:
    def both() -> Any:
        return [x, x + 1]

    several = both()
    several.append(x * 2)
    return sum(several) + len(both())


def adds_to_a_list(x: Any) -> Any:
    parts = other = [x]
    parts += [x + 1]
    return sum(parts) * len(other) if len(parts) == 2 else parts[7]


def puts_lists_into_lists(x: Any) -> Any:
    parts: Any = []
    for _ in range(3):
        parts = [(parts,)]
    return x


SAFE = [collects, index_of_lists, tail, numbers, adds_to_a_list, unpacks,
        puts_lists_into_lists]  # fmt: skip


@pytest.mark.parametrize("function", SAFE)
def test_safe(function: Any) -> None:
    assert_safe(function)


def test_the_shape_of_something_like_an_array() -> None:
    assert_safe(tail, np.ones((3, 0)))


def changes_by_an_operator(x: Any) -> Any:
    y = x * 2
    shown = operator.getitem(y, slice(1, None))
    y += 1
    return shown


def test_lists_of_numbers_as_arguments() -> None:
    x, given = np.arange(12.0).reshape(3, 4), ([1], [0, 2], [0.5, 2.0])
    assert examined(by_lists, [Kind.OTHER, *map(kind_of, given)], {}).reason is None
    found = record(lambda a: by_lists(a, *given), x, backend="python")
    assert_same(found.result, by_lists(x, *given))
    appends = examined(lambda x, n: n.append(x) or x, [Kind.OTHER, kind_of([1])], {})
    assert appends.reason is not None


def returns_a_list(x: Any) -> Any:
    parts = [x]
    parts.append(x + 1)
    return parts


def changes_what_it_is_given(x: Any) -> Any:
    def change(parts: Any) -> Any:
        parts.append(x)
        return x

    parts = [x]
    change(parts)
    return sum(parts)


def test_a_shape_is_what_a_list_was() -> None:
    def fills(x: Any) -> Any:
        shape = [3, 1]
        new = np.full_like(x, 7, shape=shape)
        shape[0] = 1
        return new

    assert_safe(fills)


def changes_what_a_function_reads(x: Any) -> Any:
    parts = [x]

    def total() -> Any:
        return sum(parts)

    parts.append(x)
    return total()


def changes_while_it_loops(x: Any) -> Any:
    parts = [x]
    for part in parts:
        if len(parts) < 4:
            parts.append(part + 1)
    return sum(parts)


def lists_from_functions(x: Any) -> Any:
    def several(y: Any, n: int) -> Any:
        found = [y]
        for k in range(n):
            add(found, y * k)
        return found

    def add(found: Any, y: Any) -> None:
        found.append(y)

    both = [several(x, 2), several(x + 1, 3)]
    for each in both:
        add(each, x)
    return sum(both[0]) + sum(both[1]) * len(both[0])


def changes_another_name(x: Any) -> Any:
    parts = [1]
    other = [parts]
    other[0].append(x)
    return np.reshape(x, parts)


def puts_methods_of_lists_into_lists(x: Any) -> Any:
    parts: Any = []
    for _ in range(3):
        parts = [parts.append]
    return x


def decides_by_what_is_added(x: Any) -> Any:
    parts = [x]
    parts += [x]
    return x if len(parts) == 1 else print(x)


def takes_what_is_added(x: Any) -> Any:
    y, numbers = x + 1, [1]
    numbers += [y]
    shown, last = y.T, numbers[1]
    last += 1
    return shown


def puts_a_list_into_itself(x: Any) -> Any:
    parts: Any = []
    parts.append(parts)
    return print(x) if parts[0] else x


def puts_a_list_into_its_own_item(x: Any) -> Any:
    first: Any = []
    second = [first]
    first.append(second)
    return print(x) if first[0][0] else x


def changes_one_of_two(x: Any) -> Any:
    first, second = [1], [2]
    either = first if x.ndim > 1 else second
    first.append(x)
    return x if len(either) == 1 else print(x)


UNSAFE = [
    changes_another_name,
    changes_one_of_two,
    changes_what_it_is_given,
    decides_by_what_is_added,
    lists_from_functions,
    lists_of_functions,
    lists_of_lists,
    puts_a_list_into_itself,
    puts_a_list_into_its_own_item,
    puts_methods_of_lists_into_lists,
    takes_what_is_added,
    lambda x: [x, x].index(x) + x,
    lambda x: [x, x + 1].remove(x) or x,
    lambda x: [x].append(print) or x,
    lambda x: x * max(x.shape, key=print),
    lambda x: x * max([1, 2], key=print),
]


@pytest.mark.parametrize("function", UNSAFE)
def test_not_shown_safe(function: Any) -> None:
    assert why_unsafe(function) is not None


STOPS = {
    returns_a_list: "returns a list",
}


@pytest.mark.parametrize("function", STOPS)
def test_what_lazy_chunks_do_not_know_ends_the_recording(function: Any) -> None:
    assert_numpys(function, STOPS[function])


NUMPYS = [changes_what_a_function_reads, changes_while_it_loops, lambda x: [x, x + 1].pop()]


@pytest.mark.parametrize("function", NUMPYS)
def test_what_is_recorded_is_numpys(function: Any) -> None:
    assert_numpys(function)


STATEMENTS = [
    "l.append(y)", "l.append(y + 1)", "m.append(l)", "m = [l, n]", "m = l", "l = m", "l, m = m, l",
    "n.append(2)", "n = [0, 1]", "n += [1]", "n[0] = 1", "n = list(y.shape)", "n.extend(y.shape)",
    "l.extend([y, z])", "l.extend(m)", "l.extend(v * 2 for v in tuple(l))", "l += [z]", "l += l",
    "l = l + [z]", "l = l * 2", "l = [*l, z]", "l = [v + 1 for v in l]", "l = list(l)",
    "l = [y]", "l = []", "m = []", "l = l[1:]", "l = m[0]", "m[0] = l", "l[0] = y", "l[-1] = z",
    "y = l[0]", "y = l[-1]",
    "y += 1", "y = z", "y = y.T.T", "z = f(y, z)", "l = g(l)", "y = h(l)", "f = lambda u, v: u - v",
    "h = lambda u: sum(u)", "h = lambda u: sum(u) + len(l)", "a = l.append",
    "a(z)", "y = sum(l)", "z = np.stack(l).max(axis=0)", "z = z * len(l)", "y = f(*l)",
    "y, z = l", "t = tuple(l)", "y = t[0]", "z = sum(t)", "y = y if l else z",
    "y = y + 1 if 1 in n else y", "z = z * max(n)", "y = y.sum(axis=tuple(n))", "o = l if n else m",
    "o = l if y.ndim > 1 else m", "o.append(z)", "z = sum(o)", "z = z + len(o)", "l = o",
    "i = iter_of(l)", "y = y * n[-1]", "n = [k for k in range(2) if k in n]",
    "z = z + [k for k in n][0]", "z = sum(v * k for v, k in zip(l, n))", "p = zip(l, n)",
    "z = sum(v * k for v, k in p)", "z = z + np.arange(3)[n[0]:][0]", "l = [y] * 3",
    "x += 1", "z = reduce(np.add, l)", "z = reduce(f, l)", "l.append(l[0])", "l = [(l,)]",
    "m += [l]", "l = l[0][0]", "y = y if len(l) == 2 else never()", "y = y if l else never()",
    "z = z if len(m) == 1 else never()", "z = z if len(o) == 2 else never()",
    "z = z if len(m[0]) == 2 else never()", "z = never() if m[0] else z",
]  # fmt: skip


def never() -> None:
    """Raise: a function that is recorded runs it only if NumPy does."""
    raise AssertionError


@st.composite
def functions(draw: st.DrawFn) -> str:
    """Return a function that changes lists which have several names."""
    body = draw(st.lists(st.sampled_from(STATEMENTS), min_size=2, max_size=9))
    loop = draw(st.integers(0, len(body)))
    lines = ["y = x + 1", "z = x * 3", "l = [y, x]", "m = [z]", "n = [1]", "o = l", "t = (y,)",
             "f = lambda u, v: u + v", "g = lambda u: u", "h = sum", "a = m.append", "p = ()",
             *body[:loop]]  # fmt: skip
    if body[loop:]:
        lines += ["for _ in range(2):", *(f"    {line}" for line in body[loop:])]
    lines.append("return y - z + len(l) + 0 * x")  # Which is an array in any case.
    return "def made(x):\n" + "".join(f"    {line}\n" for line in lines)


@given(functions())
def test_what_is_shown_safe_is_numpys(text: str) -> None:
    names: dict[str, Any] = {"np": np, "reduce": reduce, "iter_of": iter}
    names["never"] = never
    exec(text, names)
    assert_as_numpy(names["made"])
