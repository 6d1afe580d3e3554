"""Generated source: golden files in git, rewritten only by ``GPUSCHED_REGENERATE=1 pytest``."""

from __future__ import annotations

import ast
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.lib.stride_tricks import sliding_window_view

from gpusched.backends import cpu, elf
from gpusched.emit import hostloops
from gpusched.emit.generate import helper_source
from tests.record.gaps import LAST, PUSH
from tests.record.recording import record

GOLDEN = Path(__file__).parent / "golden"
X = np.ones((8, 6), "float32")
Y = np.ones((8, 6), "float32") * 2
Z = X + 1j * Y
ROWS = np.ones((1024, 1024), "float32")


def black_scholes(s: Any, k: Any, t: Any) -> Any:
    d1 = (np.log(s / k) + (0.03 + 0.045) * t) / (0.3 * np.sqrt(t))
    d2 = d1 - 0.3 * np.sqrt(t)
    return s * (scipy.special.erf(d1 * 0.70710678) + 1) / 2 - k * np.exp(-0.03 * t) * d2


CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "clip_chain": (lambda a, b: np.clip(((a + b) * a - b) / 2, 0, 7), [X, Y]),
    "square_sum": (lambda a, b: ((a - b) ** 2).sum(), [X, Y]),
    "column_mean": (lambda a: (a * 3 + 7.5).sum(axis=0), [X]),
    "row_maximum": (lambda a: (a * 3).max(axis=1), [X[:, ::2]]),
    "broadcast_row": (lambda a, b: (a - b) / 3.5, [X, Y[0]]),
    "stencil": (lambda z: (z[1:-1, 2:] - z[1:-1, :-2]) ** 2, [X]),
    "floor_divide": (lambda a, b: a // b % 3, [X, Y]),
    "two_outputs": (lambda a: (a + 1, a > 2), [X]),
    "column_moments": (lambda a: np.var(a, axis=0), [X]),
    "row_moments": (lambda a: np.var(a, axis=1), [X]),
    "column_places": (lambda a: np.argmax(a * 2, axis=0), [X]),
    "row_places": (lambda a: np.argmin(a * 2, axis=1), [X]),
    "halves": (lambda a, b: (a * b + 0.1, (a > b) * a), [X.astype("f2"), Y.astype("f2")]),
    "complex_product": (lambda a, b: a * b.conj() + 1j, [Z, Z]),
    "complex_sum": (lambda a: np.exp(a * 1j).mean(axis=0), [Z]),
    "half_sum": (lambda a: (a * a).sum(), [X.astype("f2")]),
    "running_total": (lambda a: np.cumsum(a * 2 - 1, axis=0), [X]),
    "running_product": (lambda a: np.cumprod(a / 3, axis=1), [X.astype("f2")]),
    "filled": (lambda a: PUSH(np.where(a > 3, np.nan, a), 2, 0), [X]),
    "last_number": (lambda a: LAST(np.where(a > 3, np.nan, a), 1), [X]),
    "labelled_rows": (lambda a: np.add.reduceat(np.sqrt(a), [0, 1, 6], axis=0), [X]),
    "window_maxima": (lambda a: sliding_window_view(a, 4, 0).max(axis=-1), [X]),
    "window_sums": (lambda a: sliding_window_view(a, 4, 1).sum(axis=-1), [X]),
    "black_scholes": (black_scholes, [X, Y, X]),
}
if platform.machine() in ("x86_64", "AMD64"):
    CASES["streamed_rows"] = (lambda a, b: (a - b) / 3.5, [ROWS, ROWS[0]])


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    function, arrays = CASES[name]
    launches = record(function, *arrays).launches
    text = "\n\n".join(hostloops.source(launch.kernel.kernel) for launch in launches)
    path = GOLDEN / f"{name}.py"
    if os.environ.get("GPUSCHED_REGENERATE") == "1":
        path.write_text(text)
    assert text == path.read_text(), "run GPUSCHED_REGENERATE=1 pytest if this is meant"


@pytest.mark.skipif(not elf.SUPPORTED, reason="machine code is not kept on this platform")
@pytest.mark.parametrize("name", CASES)
def test_code_is_good_in_every_process(name: str) -> None:
    """Nothing in it raises an error, for which it would need the process that made it."""
    function, arrays = CASES[name]
    for launch in record(function, *arrays).launches:
        kernel = launch.kernel.kernel
        assert cpu.compile_code(kernel, hostloops.source(kernel), "<a kernel>") is not None


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.py")), ids=lambda p: p.stem)
def test_source_is_plain_python(path: Path) -> None:
    functions = [n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]
    assert {"point", "kernel"} <= set(functions)
    assert all(len(line) <= 120 for line in path.read_text().splitlines())


def test_names_are_stable_across_processes() -> None:
    launch = record(CASES["clip_chain"][0], X, Y).launches[0]
    golden = (GOLDEN / "clip_chain.py").read_text()
    assert golden.startswith(f"# {launch.kernel.name},")


def test_only_functions_that_are_called_are_written() -> None:
    text = (
        "def point(a):\n    return my_clip_float(a) + module.sign_float(a) + minimum_float(a, a)\n"
    )
    assert helper_source(text).startswith("def minimum_float(")
    assert helper_source(text).count("def ") == 1
