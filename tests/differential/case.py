"""What a case is, and the parts of its text that both generators write."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

HEADER = """\
import contextlib
import copy
import functools
import itertools
import math
import operator
import pickle
import warnings

import dask
import dask.array as da
import numpy as np
"""

FLOATS = ("f8", "f8", "f4", "f4", "f2")
INTEGERS = ("i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")
DTYPES = (*FLOATS, *INTEGERS, "?")
"""Those of chunks, as often as they are drawn."""


@dataclass(frozen=True)
class Case:
    """One program to be computed by plain dask and by gpusched."""

    kind: str
    """``functions`` or ``programs``: the generator that has written it."""
    seed: int
    source: str
    """A module with ``main(observe)``, and its inputs in a dictionary ``DATA``."""
    scheduler: str
    """``sync``, ``threads`` or ``cluster`` (in this process)."""
    loose: bool = False
    """Whether it rounds in an order, or by functions, that NumPy's values do not fix."""
    unordered: bool = False
    """Whether its results depend on the order in which chunks are computed, except as a set."""
    scribble: bool = False
    """Whether results are written into between the two computations of each."""
    beside: bool = False
    """Whether each result is also computed by several threads at once."""
    config: dict[str, Any] = field(default_factory=dict)
    """Settings of gpusched's besides those that have every chunk fused."""
    magnitude: float = 0.0
    """Sum of the absolute values of its inputs, once they are known: sums round in units of it."""
    features: frozenset[str] = frozenset()
    """Tags of the constructs in it, for the report."""


BATCHES = {"gpusched.batching.least": 1, "gpusched.batching.tasks": 3}
"""Have the tasks of small graphs batched too."""


def settings(rng: random.Random) -> dict[str, Any]:
    """Draw settings under which results must be the same."""
    return dict(BATCHES) if rng.random() < 0.3 else {}


def scheduler(rng: random.Random) -> str:
    """Draw where a case is computed."""
    return rng.choice(("sync", "sync", "sync", "threads", "threads", "cluster"))


def literal(rng: random.Random, dtype: str) -> str:
    """Draw a number that goes well with chunks of a dtype, as text."""
    if rng.random() < 0.08:
        return rng.choice(("np.float32(0.5)", "np.float64(1.5)", "np.int8(3)", "np.uint8(2)",
                           "np.bool_(True)", "True", "np.float16(2)", "np.int64(2)"))  # fmt: skip
    if dtype[0] == "f":
        return rng.choice(("0.5", "2", "1", "0", "-1", "3", "0.25", "-0.0", "1.5", "-2.5"))
    return rng.choice(("1", "2", "3", "0", "5", "7"))


def data(rng: random.Random, dtype: str, shape: tuple[int, ...], *, special: bool, grid: bool,
         constant: bool = False) -> str:  # fmt: skip
    """Draw the text of a NumPy array.

    Parameters
    ----------
    special
        Whether a float array holds NaN, infinities, zeros of both signs and numbers beyond the
        range of small integers.
    grid
        Whether floats are small multiples of 1/4, whose sums are exact in any order.
    constant
        Whether all elements are equal, so that no result depends on the order of chunks.
    """
    seed = rng.randrange(1000)
    if constant:
        return f"np.full({shape}, {rng.choice((1, 2, 3))}, {dtype!r})"
    draw = f"np.random.default_rng({seed})"
    if dtype == "?":
        return f"{draw}.random({shape}) < 0.5"
    low = 0 if dtype[0] == "u" else -9
    if dtype[0] != "f" or grid:
        size = " / 4" if dtype[0] == "f" else ""
        text = f"np.asarray({draw}.integers({low}, 10, {shape}){size}, {dtype!r})"
    else:
        text = f"np.asarray({draw}.normal(size={shape}), {dtype!r})"
    if special and dtype[0] == "f":
        values = rng.sample(("np.nan", "np.inf", "-np.inf", "-0.0", "0.0", "300.0", "-70000.0"), 3)
        return f"sprinkled({text}, [{', '.join(values)}])"
    if special and dtype[0] in "iu":
        return f"sprinkled({text}, [np.iinfo({dtype!r}).max, np.iinfo({dtype!r}).min, 0])"
    return text


SPRINKLED = '''\
def sprinkled(array, values):
    """Return the array with special values in some places."""
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        flat[::3] = np.resize(np.asarray(values, array.dtype), flat[::3].shape)
    return flat.reshape(array.shape)
'''

SHAPES = ((12,), (7,), (1,), (4, 6), (5, 3), (6, 1), (2, 3, 4), (8, 8), (3, 2), (10, 4))
LARGE = ((5000,), (4097,), (70, 90), (1, 6000), (4100, 2), (3, 40, 50), (2, 2500))
"""Shapes with which kernels reach their inner loops and tiles."""
LARGER = 1000
"""Elements from which an array is large."""


def size(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a shape."""
    return math.prod(shape)


def chunks(rng: random.Random, shape: tuple[int, ...]) -> str:
    """Draw chunks for a shape, as text; a quarter are one chunk."""
    if rng.random() < 0.25:
        return str(shape)
    parts = (1, 1, 2) if size(shape) > LARGER else (1, 2, 3)
    return str(tuple(max(1, n // rng.choice(parts)) for n in shape))
