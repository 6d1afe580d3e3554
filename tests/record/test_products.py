"""Products, and their sums along the axes of one operand, are kernels with NumPy's values."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from gpusched.record.products import Subscripts
from tests.record.recording import assert_same, check_error, outcome, record
from tests.tiers import every

DTYPES = ["f8", "f4", "i4", "i8", "u1", "?", "f2", "c8"]
LABELS = "ijk"
LENGTHS = {"i": 4, "j": 3, "k": 1}


def any_operands(draw: random.Random) -> tuple[list[str], list[np.ndarray]]:
    whole = draw.sample(LABELS, draw.randint(1, 3))
    groups = [whole, *(draw.sample(whole, draw.randint(0, len(whole)))
                       for _ in range(draw.randint(1, 2)))]  # fmt: skip
    draw.shuffle(groups)
    arrays = []
    for group in groups:
        shape = tuple(LENGTHS[label] for label in group)
        values = np.random.default_rng(draw.randrange(1 << 30)).normal(size=shape) * 3
        array = np.asarray(values).astype(draw.choice(DTYPES if draw.random() < 0.5 else ["f8"]))
        arrays.append(draw.choice([lambda a: a, np.asfortranarray, lambda a: a[::-1]])(array)
                      if array.ndim else array)  # fmt: skip
    return ["".join(group) for group in groups], arrays


def any_call(draw: random.Random) -> tuple[Any, list[np.ndarray]]:
    groups, arrays = any_operands(draw)
    labels = sorted(set("".join(groups)))
    result = draw.sample(labels, draw.randint(0, len(labels)))
    subscripts = ",".join(groups) + draw.choice([f"->{''.join(result)}", f" -> {''.join(result)}",
                                                 ""])  # fmt: skip
    options = draw.choice([{}, {}, {"optimize": True}, {"dtype": "f8"}, {"dtype": "f4"}])
    if draw.random() < 0.4 and len(arrays) == 2:
        first, second = groups
        shared = [label for label in first if label in second]
        axes = [first.index(n) for n in shared], [second.index(n) for n in shared]
        if draw.random() < 0.3:
            axes = tuple(
                [[k - len(each) for k in ks] for ks, each in zip(axes, groups, strict=True)]
            )
        return lambda *given: np.tensordot(*[x * 2 for x in given], axes=axes), arrays
    return lambda *given: np.einsum(subscripts, given[0] + given[0], *given[1:], **options), arrays


def any_matrices(draw: random.Random) -> tuple[Any, list[np.ndarray]]:
    """Return a product of vectors, matrices and stacks of them, of axes that may not fit."""
    function = draw.choice([np.matmul, np.vecdot, np.matvec, np.vecmat, np.dot, np.inner,
                            lambda a, b: a @ b, np.add.outer, np.hypot.outer])  # fmt: skip
    n, k, m = 4, draw.choice([1, 3]), draw.choice([1, 1, 5])
    loops = [tuple(draw.choice([1, 2]) for _ in range(draw.choice([0, 0, 1, 2]))) for _ in "ab"]
    cores = draw.choice(
        [
            ((n, k), (k, m)),
            ((n, k), (k,)),
            ((k,), (k, m)),
            ((k,), (k,)),
            ((n, k), (m, k)),
            ((n, k), ()),
            ((n, 3), (2,)),
            ((0, k), (k,)),
        ]
    )
    arrays = []
    for before, core in zip(loops, cores, strict=True):
        values = np.random.default_rng(draw.randrange(1 << 30)).normal(size=before + core) * 3
        array = np.asarray(values).astype(draw.choice(DTYPES if draw.random() < 0.5 else ["f8"]))
        turns = draw.random() < 0.3 and array.ndim
        arrays.append(np.asfortranarray(array)[::-1] if turns else array)
    first = draw.random() < 0.5

    def call(a: Any, b: Any) -> Any:
        return function(a + a, b) if first else function(a, b * 2)

    return call, arrays


@pytest.mark.parametrize("any_of", [any_call, any_matrices])
@pytest.mark.parametrize("seed", every(8, range(40)))
def test_any_sums_of_products_are_numpys(seed: int, any_of: Any) -> None:
    launched = 0
    for k in range(40):
        draw = random.Random(f"{seed}-{k}")
        function, arrays = any_of(draw)
        expected = outcome(function, *arrays)
        done = outcome(partial(record, function, backend="python"), *arrays)
        if isinstance(expected, type):
            assert done is expected
            continue
        assert type(done.result) is type(expected)
        assert done.result.dtype == expected.dtype and done.result.shape == expected.shape
        rtol = 1e-2 if expected.dtype == "f2" else 1e-5
        np.testing.assert_allclose(done.result, expected, rtol=rtol, atol=10 * rtol, err_msg=str(k))
        launched += bool(done.plan.launches)
    assert launched > 10


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: np.einsum("ij,i->j", x * 2 + 1, w),
        lambda x, w: np.tensordot(x * 2 + 1, w, axes=((0,), (0,))),
        lambda x, w: np.tensordot(w, x * 2 + 1, axes=1),
        lambda x, w: np.einsum("i,ij,i", w, x, w),
    ],
)
def test_weights_are_read_with_what_they_are_for(function: Any) -> None:
    x, w = np.linspace(0, 1, 20).reshape(5, 4), np.linspace(1, 2, 5)
    done = record(function, x, w, backend="python")
    np.testing.assert_allclose(done.result, function(x, w), rtol=1e-14)
    assert len(done.plan.launches) == 1


@pytest.mark.parametrize("function", [
    lambda x: np.tensordot(x + x, x, axes=((0, 1), (0, 1))),
    lambda x: np.tensordot(x[:1, 0] + x[:1, 0], x[0, :1], axes=1),
    lambda x: np.tensordot(-x[:1, :1], x[3:, 3:], axes=2),
])  # fmt: skip
def test_products_along_all_axes_are_arrays_without_axes(function: Any) -> None:
    x = np.linspace(3, 0, 16).reshape(4, 4)
    found = record(function, x, backend="python").result
    assert type(found) is np.ndarray and found.flags.writeable
    assert_same(found, function(x), 2)


def test_products_of_matrices_are_left_to_blas() -> None:
    x = np.linspace(0, 1, 20).reshape(5, 4)
    done = record(lambda x: np.einsum("ij,kj->ik", x, x), x, backend="python")
    assert not done.plan.launches


@pytest.mark.parametrize("function", [
    lambda x, w: np.einsum("ij,k->ijk", x * 2 + 1, w),
    lambda x, w: np.einsum("ij,ik->ijk", x, x),
    lambda x, w: np.einsum("i,j,kl", w, w, x) - 1,
    lambda x, w: np.tensordot(w, x * 2 + 1, axes=0),
])  # fmt: skip
def test_products_that_are_not_added_up_are_one_kernel(function: Any) -> None:
    x, w = np.linspace(0, 1, 20).reshape(5, 4), np.arange(-2, 3)
    for given in (x, np.asfortranarray(x), x[::-1]):
        done = record(function, given, w, backend="python")
        assert_same(done.result, function(given, w))
        assert len(done.plan.launches) == 1


def test_no_errors_are_reported_where_numpy_reports_none() -> None:
    def function(x: Any, w: Any) -> Any:
        return np.einsum("ij,ij->i", x, w)

    x, w = np.array([[np.inf, 1e308], [1e308, 2.0]]), np.array([[0.0, 10], [1, 1]])
    with np.errstate(all="raise"):
        expected, done = function(x, w), record(function, x, w, backend="python")
    np.testing.assert_array_equal(done.result, expected)


@pytest.mark.parametrize("axes", [2, ((0,), (5,)), ((0, 0), (0, 0)), ((0,), (0, 1)), 1.5, (0,)])
def test_errors_are_numpys(axes: Any) -> None:
    def function(x: Any) -> Any:
        return np.tensordot(x[0] * 2, x[1], axes=axes)

    check_error(function, np.ones((5, 4)))


def test_labels_are_numpys() -> None:
    assert Subscripts.of("ba").result == "ab"
    assert Subscripts.of("ij,ji").result == ""
    assert Subscripts.of("ij,j->ij").whole() == "ij"
