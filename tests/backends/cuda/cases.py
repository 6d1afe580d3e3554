"""Programs that every way of running CUDA kernels must get right, one per shape of loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.backends.cuda.memory import shifted
from tests.record.gaps import LAST, PUSH

Arrays = Callable[[], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Case:
    """A program, what it runs on, and how exact it must be."""

    name: str
    function: Callable[..., Any]
    arrays: Arrays
    ulp: int = 0


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return small whole numbers, whose sums are exact in any order."""
    low, high = (0, 2) if dtype == "bool" else (0, 9) if dtype[0] == "u" else (-8, 9)
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def _chain(a: Any, b: Any) -> Any:
    return (a + b) * 2.5 - a


def _two(dtype: str) -> tuple[np.ndarray, ...]:
    return numbers(9001, dtype=dtype), numbers(9001, dtype=dtype, seed=1)


def _complex() -> tuple[np.ndarray, ...]:
    parts = [numbers(5001, seed=k) for k in range(4)]
    return parts[0] + 1j * parts[1], parts[2] + 1j * parts[3]


def _flat() -> list[Case]:
    found = []
    # Tiles hold 2048 elements for two float32 inputs: around their borders, and unaligned.
    for size in (1, 3, 255, 2047, 2048, 2049, 4096, 5001):
        found.append(Case(f"flat-{size}", _chain, lambda n=size: (numbers(n), numbers(n, seed=1))))
    for offset in (1, 2, 3):

        def unaligned(offset: int = offset) -> tuple[np.ndarray, ...]:
            return shifted(numbers(4099), offset), numbers(4099, seed=1)

        found.append(Case(f"flat-unaligned-{offset}", _chain, unaligned))
    for dtype in ("float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint64"):
        found.append(Case(f"flat-{dtype}", lambda a, b: a * b + a, lambda d=dtype: _two(d)))
    halves = tuple(each.astype("f2") for each in _two("float32"))
    found.append(Case("flat-float16", lambda a, b: (a * b + 0.1) / 3 - a, lambda: halves))
    found.append(Case("flat-to-float16", lambda a: (a / 3).astype("f2"),
                      lambda: (np.linspace(-7e4, 7e4, 5001),)))  # fmt: skip
    for dtype in ("complex64", "complex128"):
        found.append(Case(f"flat-{dtype}", lambda a, b: (a * b + 2j, abs(a - b) > 3.1, a.conj()),
                          lambda d=dtype: tuple(z.astype(d) for z in _complex())))  # fmt: skip
    found.append(Case("flat-complex-sums", lambda a, b: ((a * b).sum(), a.real.sum()), _complex))
    found.append(Case("flat-bool", lambda a, b: a ^ b | a, lambda: _two("bool")))
    found.append(Case("flat-mixed-dtypes", lambda a, b, c: (a > b, np.where(c, a, b)),
                      lambda: (numbers(9001), numbers(9001, dtype="float64", seed=1),
                               numbers(9001, dtype="bool"))))  # fmt: skip
    found.append(
        Case(
            "flat-bytes-with-words",
            lambda a, m, k: (np.where(m, a, k), m),
            lambda: (numbers(9001), numbers(9001, dtype="bool"), numbers(9001, dtype="int16")),
        )
    )
    found.append(Case("flat-scalar-array", _chain, lambda: (numbers(5001), numbers(1, seed=1))))
    found.append(Case("flat-every-other", _chain, lambda: (numbers(3001)[::2], numbers(1501))))
    found.append(Case("flat-backwards", _chain, lambda: (numbers(3001)[::-1], numbers(3001))))
    found.append(Case("flat-two-outputs", np.modf, lambda: (numbers(5001) / 4,)))
    return found


def _nests() -> list[Case]:
    def pair(*shapes: Any) -> Arrays:
        return lambda: tuple(numbers(*s, seed=k) for k, s in enumerate(shapes))

    return [
        Case("row", _chain, pair((33, 64), (64,))),
        Case("row-not-a-multiple", _chain, pair((33, 63), (63,))),
        Case("column", _chain, pair((33, 64), (33, 1))),
        Case("outer-product", lambda a, b: a * b, pair((37, 1), (1, 52))),
        Case("inner-slice", lambda a: a[1:-1, 2:-2] + 1, pair((20, 40))),
        Case("inner-slice-of-3d", lambda a: a[1:, 1:-1, 2:-2] + 1, pair((5, 9, 40))),
        Case("middle-broadcast", lambda a, b: a * b[:, None, :], pair((4, 5, 48), (4, 48))),
        Case("transposed", lambda a, b: a + b.T, pair((40, 30), (30, 40))),
        Case("reversed-rows", lambda a: a[::-1, 3:] * 2, pair((9, 35))),
        Case("four-loops", lambda a, b: a[:, ::2, :, ::2] * b,
             pair((3, 4, 5, 12), (3, 1, 5, 1))),
        Case("wide", _chain, pair((2, 3000), (3000,))),
        Case("tall", _chain, pair((3000, 4), (4,))),
        Case("hillshade", lambda a: np.sqrt((a[2:, 1:-1] - a[:-2, 1:-1]) ** 2
                                            + (a[1:-1, 2:] - a[1:-1, :-2]) ** 2),
             pair((34, 66))),
        # Kernels of their own write the first and the last column.
        Case("gradient-of-rows", lambda a: np.gradient(a, axis=1), pair((20, 40))),
        Case("gradient-of-3d", lambda a: np.gradient(a, axis=2), pair((3, 4, 9))),
    ]  # fmt: skip


ELEMENTWISE = [*_flat(), *_nests()]


def _place(search: Any, a: Any, axis: Any) -> Any:
    """Return places along an axis; of several axes, along each."""
    return tuple([search(a, k) for k in axis]) if type(axis) is tuple else search(a, axis)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda a, axis: (a * a).sum(axis=axis),
    "min": lambda a, axis: a.min(axis=axis),
    "max": lambda a, axis: (a - 1).max(axis=axis),
    "any": lambda a, axis: (a > 7).any(axis=axis),
    "all": lambda a, axis: (a < 8).all(axis=axis),
    "argmax": lambda a, axis: _place(np.argmax, a * 2, axis),
    "argmin": lambda a, axis: _place(np.argmin, a + 1, axis),
    "prod": lambda a, axis: np.where(a > 7, 2, np.where(a < -7, -1, 1)).prod(axis=axis),
}
_SHAPES: list[tuple[tuple[int, ...], Any]] = [
    ((7,), None), ((5001,), None), ((30000,), None), ((50, 70), 1), ((3, 3000), 1), ((500, 8), 1),
    ((70, 50), 0), ((3000, 3), 0), ((3, 700), 0), ((9, 10, 20), (0, 2)), ((9, 10, 20), 1),
    ((6, 5, 7, 8), (1, 3)), ((6, 5, 7, 8), (0, 2)),
]  # fmt: skip


def _reductions() -> list[Case]:
    found = []
    for word, function in _REDUCTIONS.items():
        for shape, axis in _SHAPES:

            def reduce(a: Any, f: Any = function, axis: Any = axis) -> Any:
                return f(a, axis)

            name = f"{word}-{'x'.join(map(str, shape))}-{axis}"
            found.append(Case(name, reduce, lambda s=shape: (numbers(*s),)))
    for dtype in ("float16", "float64", "int8", "int32", "uint8", "int64"):
        found.append(
            Case(f"sum-{dtype}", lambda a: a.sum(), lambda d=dtype: (numbers(5003, dtype=d),))
        )
        found.append(
            Case(
                f"max-{dtype}", lambda a: a.max(axis=1), lambda d=dtype: (numbers(50, 67, dtype=d),)
            )
        )
    for word, ufunc in (("or", np.bitwise_or), ("and", np.bitwise_and), ("xor", np.bitwise_xor)):
        for axis in (0, 1):
            found.append(
                Case(f"bits-{word}-{axis}", lambda a, f=ufunc, axis=axis: f.reduce(a | 1, axis),
                     lambda d=("uint8", "int64")[axis]: (numbers(70, 50, dtype=d),))
            )  # fmt: skip
    found.append(Case("sum-of-strided", lambda a: a[::2, 1:-1].sum(), lambda: (numbers(60, 80),)))
    found.append(Case("sum-unaligned", lambda a: a.sum(), lambda: (shifted(numbers(5003), 1),)))
    found.append(Case("sum-with-row", lambda a, b: (a * b).sum(axis=0),
                      lambda: (numbers(50, 30), numbers(30, seed=1))))  # fmt: skip
    found.append(Case("two-results", lambda a: (a.sum(), a.max()), lambda: (numbers(30000),)))

    def with_nan() -> tuple[np.ndarray, ...]:
        return (np.where(numbers(60, 40) > 7, np.nan, numbers(60, 40)),)

    for axis in (None, 0, 1):
        found.append(Case(f"first-nan-{axis}", lambda a, k=axis: (a.argmin(axis=k), a.sum(axis=k)),
                          with_nan))  # fmt: skip
    for dtype in ("float16", "float64", "int8", "uint16", "int64", "bool"):
        found.append(Case(f"argmax-{dtype}", lambda a: (a.argmax(), (a | a).argmin(axis=0))
                          if a.dtype.kind != "f" else (a.argmax(), (a * 2).argmin(axis=0)),
                          lambda d=dtype: (numbers(300, 70, dtype=d),)))  # fmt: skip
    found.append(Case("nan-propagates", lambda a: (a.min(axis=0), a.max(axis=0)), with_nan))
    return found


def _segments() -> list[Case]:
    labels = np.random.default_rng(3).integers(0, 6, 70)
    cases: list[tuple[str, Callable[..., Any], tuple[int, ...], str]] = [
        ("rows", lambda a: np.add.reduceat(a * a, [2, 9, 40], axis=0), (70, 50), "float32"),
        ("columns", lambda a: np.maximum.reduceat(a + 1, [0, 64], axis=1), (50, 70), "float64"),
        ("middle", lambda a: np.minimum.reduceat(a, [3, 4, 5], axis=1), (5, 9, 20), "int16"),
        ("truth", lambda a: np.logical_or.reduceat(a > 7, [1, 5], axis=0), (9, 33), "int8"),
        ("strided", lambda a: np.add.reduceat(a[:, ::2], [0, 3], axis=0), (9, 33), "uint8"),
        ("one-row", lambda a: np.multiply.reduceat(a, [0], axis=0), (1, 33), "int32"),
        ("bincount", lambda a: np.bincount(labels, a, minlength=9), (70,), "float32"),
    ]
    return [
        Case(f"segments-{name}", function, lambda s=shape, d=dtype: (numbers(*s, dtype=d),))
        for name, function, shape, dtype in cases
    ]


def _with_gaps(a: Any) -> Any:
    return np.where(a > 3, a, a.dtype.type(np.nan))


def _scans() -> list[Case]:
    cases: list[tuple[str, Callable[..., Any], tuple[int, ...], str]] = [
        ("rows", lambda a: np.cumsum(a * 2 - 1, axis=0), (33, 1056), "float32"),
        ("middle", lambda a: np.cumsum(a, axis=1), (32, 5, 40), "int16"),
        ("two", lambda a: (np.cumsum(a, 0), np.maximum.accumulate(a, 0)), (9, 1030), "float64"),
        ("strided", lambda a: np.cumsum(a[:, ::-2], axis=0), (7, 2100), "uint8"),
        ("halves", lambda a: np.cumprod(a / 3, axis=0), (5, 1040), "float16"),
        ("truth", lambda a: np.logical_or.accumulate(a > 7, axis=0), (9, 1033), "int8"),
        ("columns", lambda a: np.cumsum(a.T, axis=0) * 2, (1100, 9), "int32"),
        ("filled", lambda a: PUSH(_with_gaps(a), None, 0), (33, 1056), "float32"),
        ("filled-near", lambda a: PUSH(_with_gaps(a), 2, 0) - 1, (9, 1033), "float64"),
        ("filled-columns", lambda a: PUSH(_with_gaps(a).T, 3), (300, 9), "float32"),
        ("last", lambda a: LAST(_with_gaps(a), 0) * 2, (9, 1033), "float32"),
    ]
    return [
        Case(f"scan-{name}", function, lambda s=shape, d=dtype: (numbers(*s, dtype=d),))
        for name, function, shape, dtype in cases
    ]


def _taken() -> list[Case]:
    labels = np.random.default_rng(4).integers(-6, 6, 70)

    def rows(a: Any, m: Any) -> Any:
        return (a - m[labels]) * 2

    def columns(a: Any, m: Any) -> Any:
        return a - m[:, labels] > 0

    cases: list[tuple[str, Callable[..., Any], Any, Any, str]] = [
        ("rows", rows, (70, 50), (6, 50), "float32"),
        ("rows-in-vectors", rows, (70, 64), (6, 64), "float64"),
        ("columns", columns, (50, 70), (50, 6), "int16"),
        ("middle", columns, (5, 70, 20), (5, 6, 20), "int32"),
        ("flat", rows, (70,), (6,), "float64"),
        ("truth", lambda a, m: a | m[labels], (70, 33), (6, 33), "bool"),
        ("sum-of-rows", lambda a, m: rows(a, m).sum(axis=1), (70, 50), (6, 50), "float32"),
        ("sum-of-columns", lambda a, m: rows(a, m).sum(axis=0), (70, 50), (6, 50), "float32"),
        ("max", lambda a, m: (a - m[:, labels]).max(axis=1), (50, 70), (50, 6), "int32"),
        ("sum-across", lambda a, m: (a - m[:, labels]).sum(axis=0), (50, 70), (50, 6), "int64"),
    ]
    return [
        Case(f"taken-{name}", function,
             lambda a=a, m=m, d=d: (numbers(*a, dtype=d), numbers(*m, dtype=d, seed=1)))
        for name, function, a, m, d in cases
    ]  # fmt: skip


def _windows() -> list[Case]:
    cases: list[tuple[str, Callable[..., Any], Any, str]] = [
        ("sum-rows", lambda w: w.sum(axis=-1), 0, "float32"),
        ("sum-columns", lambda w: w.sum(axis=-1), 1, "float64"),
        ("max-rows", lambda w: w.max(axis=-1), 0, "int16"),
        ("max-columns", lambda w: abs(w).max(axis=-1), 1, "int32"),
        ("all-columns", lambda w: (w > 0).all(axis=-1), 1, "float32"),
        ("sum-both", lambda w: w.sum(axis=(-1, 1)), 0, "int64"),
    ]
    return [
        Case(f"windows-{name}", lambda a, f=f, k=axis: f(sliding_window_view(a, 5, k)),
             lambda d=dtype: (numbers(50, 70, dtype=d),))
        for name, f, axis, dtype in cases
    ]  # fmt: skip


def _searched() -> list[Case]:
    edges = np.array([-5, -1, 0, 0, 3, 7], "float32")
    flat, rows = (lambda: (numbers(4099), edges)), (lambda: (numbers(60, 70), numbers(70), edges))
    return [
        Case("search-flat", lambda a, b: np.digitize(a * 2, b), flat),
        Case("search-rows", lambda a, r, b: np.searchsorted(b, a - r) * 2, rows),
        Case("search-sum", lambda a, r, b: np.digitize(a + r, b).sum(axis=1), rows),
        Case("search-sum-of-columns", lambda a, r, b: np.digitize(a + r, b).sum(axis=0), rows),
    ]


def _selected() -> list[Case]:
    several = np.array([0.25, 0.8])
    lanes = lambda: (numbers(9, 70),)  # noqa: E731
    return [
        Case("median-of-rows", lambda a: np.median(a * 2, axis=1), lanes),
        Case("quantiles-of-columns", lambda a: np.quantile(a, several, axis=0), lanes),
        Case("quantile-of-all", lambda a: np.nanquantile(a, 0.3), lanes),
    ]


REDUCTIONS = [
    *_reductions(),
    *_segments(),
    *_scans(),
    *_searched(),
    *_selected(),
    *_taken(),
    *_windows(),
]
