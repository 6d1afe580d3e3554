"""Random `dask.array.reduction` with functions of the user's, whose state changes in between."""

from __future__ import annotations

from random import Random
from typing import Any

import dask.array as da
import numpy as np
import pytest

import gpusched
from tests.tiers import every

CHUNK = ["q.sum(axis=axis, keepdims=True)", "(q * K[0]).max(axis=axis, keepdims=True)",
         "np.abs(q).sum(axis=axis, keepdims=keepdims)", "q.min(axis=axis, keepdims=True) + A[0]",
         "np.where(q > 1, q, K[1]).sum(axis=axis, keepdims=True)", "q", "np.sort(q, axis=0)",
         "np.prod(q % 3 + 1, axis=axis, keepdims=True)"]  # fmt: skip
COMBINE = ["q.sum(axis=axis, keepdims=True)", "q.max(axis=axis, keepdims=True) * 2", "q",
           "np.minimum(q, K[0]).sum(axis=axis, keepdims=True)"]  # fmt: skip
AGGREGATE = ["q.sum(axis=axis, keepdims=keepdims) / K[0]", "q.max(axis=axis, keepdims=keepdims)",
             "np.sqrt(abs(q).sum(axis=axis, keepdims=keepdims)) + A[1]",
             "q.mean(axis=axis, keepdims=keepdims) * D['k']",
             "np.median(q, axis=axis, keepdims=keepdims)"]  # fmt: skip
CHANGES = ["K[0] = 5", "K[1] = 2.5", "A[0] = -1", "D['k'] = 7", "A[:] = 4", "K[:] = [1, 1]"]


def any_program(draw: Random) -> tuple[str, str, np.ndarray, tuple[tuple[int, ...], ...]]:
    """Return lines that make a reduction ``r`` of ``a``, a change, values and their chunks."""
    lines = []
    for name, bodies in (("chunk", CHUNK), ("combine", COMBINE), ("aggregate", AGGREGATE)):
        default = draw.choice(["", ", K=K"])
        lines.append(f"def {name}(q, axis, keepdims{default}): return {draw.choice(bodies)}")
    combine = draw.choice(["combine", "combine", "None"])
    options = f"axis={draw.choice(['0', '-1', '(0, 1)', 'None'])}, dtype=float"
    options += draw.choice(["", ", keepdims=True"]) + draw.choice(["", ", split_every=2"])
    before = draw.choice(["a", "a + 1", "a[::-1] * 2"])
    lines.append(f"r = da.reduction({before}, chunk, aggregate, combine={combine}, {options})")
    lines.append(draw.choice(["", "r = r * 2 + 1", "r = r - r.max()"]))
    shape = draw.choice([(6, 4), (5, 3), (8, 1)])
    chunks = tuple(_lengths(draw, n) for n in shape)
    values = np.array([draw.randint(-3, 6) for _ in range(shape[0] * shape[1])]).reshape(shape)
    values = values.astype(draw.choice(["f8", "f4", "i4", "u1", "?"]))
    return (
        "\n".join(lines),
        draw.choice(CHANGES),
        np.asarray(values, order=draw.choice("CF")),
        chunks,
    )


def _lengths(draw: Random, total: int) -> tuple[int, ...]:
    found: list[int] = []
    while sum(found) < total:
        found.append(min(draw.choice([1, 2, 3]), total - sum(found)))
    return tuple(found)


def outcomes(program: str, change: str, values: np.ndarray, chunks: Any) -> list[Any]:
    """Return what is computed, what is after a change, and what is of functions defined again."""
    space: dict[str, Any] = {"np": np, "da": da, "K": [2, 3], "D": {"k": 3}}
    space |= {"A": np.array([1.5, 2.0]), "a": da.from_array(values, chunks=chunks)}
    found = []
    for line in (program, change, program):
        exec(line, space)
        try:
            found.append(space["r"].compute(scheduler="sync"))
        except (ValueError, IndexError, TypeError) as error:
            found.append(type(error))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("everything_fused", "no_compiler")
@pytest.mark.parametrize("seed", every(16, range(32)))
def test_any_tree_reductions_are_dasks(seed: int) -> None:
    draw = Random(seed)
    for _ in range(5):
        program = any_program(draw)
        with gpusched.disable():
            expected = outcomes(*program)
        for ours, dasks in zip(outcomes(*program), expected, strict=True):
            if isinstance(dasks, type):
                assert ours is dasks, program
                continue
            assert ours.dtype == dasks.dtype and ours.shape == dasks.shape, program
            np.testing.assert_allclose(ours, dasks, 1e-5, 1e-5, err_msg=str(program))
