"""Users' functions that write arrays to parts of a new one."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from gpusched.store.statistics import Statistics

from .examining import why_unsafe
from .mapping import compare

pytestmark = pytest.mark.usefixtures("everything_fused", "no_compiler")

VALUES = np.random.default_rng(5).normal(size=(5, 6)) * 4


def compared(function: Any, values: np.ndarray = VALUES) -> Statistics:
    """Compare what a function makes of two chunks, and return the counts of the fused run."""
    return compare(function, values, values + 1)


def stencil(x: Any) -> Any:
    out = np.zeros_like(x)
    out[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return out


def stacked(x: Any) -> Any:
    out = np.empty((*x.shape, 3), dtype=x.dtype)
    out[..., 0] = x + 1
    out[..., 1] = x * 2
    out[..., 2] = x.min(axis=1)[:, None]
    return out[..., 0] - out[..., 1] * out[..., 2]


def written_over(x: Any) -> Any:
    out = x.copy()
    out[:3] = x[:3] * 2
    out[2:, 1] = x[0, 0]
    out[-1] = x[0] - 1
    out[0, 0] = 7
    out += 1
    return out


def computed_before(x: Any) -> Any:
    out = x * 2 + 1
    before = (out - x).max()
    out[:, 2:4] = before
    out[1:] = x[:-1] + before
    return out + before


def ends(x: Any) -> Any:
    out = np.full(x.shape, 1.5)
    out[0], out[-1] = x[0] * 2, x[-1] / 2
    return out * x


def loops(x: Any) -> Any:
    out = np.ones((4, *x.shape[1:]))
    for k in range(4):
        out[k] = x[k] - x[k + 1]
    return out


def numbers(x: Any) -> Any:
    out = np.zeros((2, 6))
    out[0] = np.arange(6)
    out[1, 1:3] = np.array([2.5, -0.0])
    return out[0] * x + out[1]


def of_other_dtypes(x: Any) -> Any:
    out = np.zeros(x.shape, "i4")
    out[1:] = x[1:]
    out[0] = x[0] > 0
    return out


def in_more_axes(x: Any) -> Any:
    out = np.zeros((2, *x.shape))
    out[0] = x[None]
    out[1, :, 1:] = x[:1, 1:]
    return out.sum(axis=0)


def two_names(x: Any) -> Any:
    out = np.zeros_like(x)
    shown = out[1:]
    out[2] = x[0]
    return shown + 1


def its_own_parts(x: Any) -> Any:
    out = x.copy()
    out[1:] = out[:-1]
    out[:, 0] = x[:, 1]
    return out


FUSED = [stencil, stacked, written_over, computed_before, ends, loops, numbers, of_other_dtypes,
         in_more_axes, two_names, its_own_parts]  # fmt: skip


@pytest.mark.parametrize("function", FUSED)
def test_they_are_fused(function: Any) -> None:
    assert why_unsafe(function) is None
    counts = compared(function)
    assert not counts.breaks
    assert counts.fused_tasks == 2
    for dtype in ("f4", "f2", "i4", "u1", "bool", "c16", ">f8", "O"):
        compared(function, (VALUES * 10).astype("i8").astype(dtype))
    compared(function, np.asfortranarray(VALUES))
    compared(function, VALUES[::-1])


def other_lengths(x: Any) -> Any:
    out = np.zeros_like(x)
    out[1:3] = x
    return out


def no_such_place(x: Any) -> Any:
    out = np.zeros_like(x)
    out[10] = x[0]
    return out


def lists_and_gaps(x: Any) -> Any:
    out = np.zeros_like(x)
    out[::2] = x[::2]
    out[[1, 3]] = x[1]
    return out


def loses_imaginary_parts(x: Any) -> Any:
    out = np.zeros(x.shape)
    out[:] = x * 1j
    return out


def of_several_numbers(x: Any) -> Any:
    return x * np.full(x.shape, [1, 2, 3, 4, 5, 6])


def of_no_length(x: Any) -> Any:
    return x * np.zeros(-1)


def of_objects(x: Any) -> Any:
    out = np.empty(x.shape, dtype=object)
    out[:] = x
    return out


@pytest.mark.parametrize("function", [other_lengths, no_such_place, lists_and_gaps,
                                      loses_imaginary_parts,
                                      of_several_numbers, of_no_length,
                                      of_objects])  # fmt: skip
def test_others_run_as_they_are(function: Any) -> None:
    assert not compared(function).fused_tasks


def test_its_input_is_left_alone() -> None:
    def function(x: Any) -> Any:
        x[1:] = x[:-1] * 2
        return x

    assert why_unsafe(function) is not None


def test_results_share_no_memory() -> None:
    def function(x: Any) -> Any:
        out = np.zeros((2, 2))
        out[0] = x[0, :2]
        return out

    x = da.from_array(VALUES, chunks=(5, 3))
    first, second = x.map_blocks(function, chunks=(2, 2)).persist(scheduler="sync").dask.values()
    assert not np.shares_memory(first, second)


PLACES = ("0", "-1", "1:3", ":, 1", "1:, :2", "..., -1", "2, 3", "4:1", "...", ":", "1:-1, 1:-1",
          "1:3, ...", "np.int64(2)", "-3:-1, 0", "slice(2, None)", "..., 1:2, 2:3", "(0, 5)",
          ":, ::-1", "True")  # fmt: skip
WHOLES = ("np.zeros_like(x)", "x.copy()", "x * 2", "np.full(x.shape, -0.0)",
          "np.where(x > 0, x, 1)",
          "np.zeros(x.shape, 'f4')", "np.ones(x.shape, 'i2')", "x.T.copy().T")  # fmt: skip


def program(rng: np.random.Generator) -> Any:
    """Return a random function."""
    lines = [f"out = {rng.choice(WHOLES)}"]
    for _ in range(rng.integers(1, 5)):
        place = rng.choice(PLACES)
        values = (f"(y * 2)[{place}]", f"y[{place}]", "y[0, 0]", "y[:1, :1]", "y[0]", "y", "3",
                  "y[:, :1]", "y.max()", f"(y + 1)[{place}][None]")  # fmt: skip
        lines.append(f"out[{place}] = {rng.choice(values)}")
        if rng.random() < 0.2:
            lines.append(rng.choice(["out += 1", "y = out * 2", "out[out > 1] = 0", "x = x + 1"]))
    lines.append(f"return {rng.choice(['out', 'out * 2', 'out[1:] - out[:-1]', 'out + x'])}")
    names: dict[str, Any] = {"np": np, "__name__": __name__}
    exec("def f(x):\n    y = x - 1\n" + "".join(f"    {line}\n" for line in lines), names)
    return names["f"]


@pytest.mark.parametrize("seed", range(16))
def test_random_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(8):
        order = rng.choice(["C", "F"])
        compared(program(rng), np.array(rng.choice([-1.5, -0.0, 0.5, 2, 300], (5, 6)), order=order))
