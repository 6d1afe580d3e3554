"""Values: every generated kernel and operation against NumPy, in units in the last place."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np

from gpusched.emit.operations import OPERATIONS
from tests.backends.cuda.cases import ELEMENTWISE, REDUCTIONS
from tests.backends.cuda.runtimes import GpuHostRuntime
from tests.emit.test_operations import CASES, fuses, ufunc_of
from tests.gpu_report.steps.attempts import or_error
from tests.record import recording
from tests.vectormath.test_vectormath import TRUE

_REHEARSED = 6
"""Of each kind, in a rehearsal."""


def kernels(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return which of the tests' kernels give NumPy's values on this GPU."""
    recording.BACKENDS["gpu"] = GpuHostRuntime().get
    few = _REHEARSED if rehearsal else None
    rows = []
    for case in [*ELEMENTWISE[:few], *REDUCTIONS[:few]]:
        try:
            recording.check(case.function, *case.arrays(), backend="gpu", ulp=case.ulp)
        except Exception as error:  # noqa: BLE001  The report is about it.
            traceback.print_exc()
            rows.append({"kernel": case.name, "error": f"{type(error).__name__}: {error}"[:300]})
    count = len(ELEMENTWISE[:few]) + len(REDUCTIONS[:few])
    summary = {"kernels": count, "as NumPy": count - len(rows), "not": len(rows)}
    return {"Kernels against NumPy": [summary], "Kernels that differ": rows}


def ulp(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the largest distance of each operation from NumPy, and the one that is allowed.

    What is allowed is the distance from the true value. Where the one from NumPy's is larger, the
    true value of the farthest decides.
    """
    recording.BACKENDS["gpu"] = GpuHostRuntime().get
    cases = [(n, d) for n, d in CASES if d in ("float32", "float64") and fuses(n, d)]
    bits = 10 if rehearsal else 22
    rows = [
        {"operation": name, "dtype": dtype, **or_error(partial(_farthest, name, dtype, bits))}
        for name, dtype in (cases[: 2 * _REHEARSED] if rehearsal else cases)
    ]
    over = [row for row in rows if row.get("from the true value", row.get("from NumPy", np.inf))
            > row.get("allowed", 0)]  # fmt: skip
    return {"Operations that are farther than allowed": over, "Distance in ULP": rows}


def _farthest(name: str, dtype: str, bits: int) -> dict[str, Any]:
    ufunc, allowed = ufunc_of(name), OPERATIONS[name].ulp
    generator = np.random.default_rng(0)
    arrays = [_samples(generator, dtype, 1 << bits) for _ in range(ufunc.nin)]
    if name == "ldexp":
        arrays[1] = generator.integers(-200, 200, 1 << bits, dtype="i4")
    with np.errstate(all="ignore"):
        found = recording.record(lambda *a: ufunc(*a), *arrays, backend="gpu").result
        wanted = ufunc(*arrays)
        firsts = [np.asarray(r[0] if isinstance(r, tuple) else r) for r in (found, wanted)]
        distances = _distances(*firsts)
    row = {"from NumPy": float(np.ceil(distances.max(initial=0))), "allowed": allowed}
    if row["from NumPy"] > allowed and name in _TRUE:
        worst = np.argsort(distances)[-_CHECKED:]
        row["from the true value"] = max(
            _from_true(name, firsts[0][k], [a[k] for a in arrays]) for k in worst
        )
    return row


_CHECKED = 200
"""Of the elements that are the farthest from NumPy's, how many are compared with the true ones."""


def _to_base(base: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: mpmath.log(mpmath.power(base, x) + mpmath.power(base, y), base)


_TRUE: dict[str, Callable[..., Any]] = {
    **TRUE, "rad2deg": mpmath.degrees, "degrees": mpmath.degrees,
    "deg2rad": mpmath.radians, "radians": mpmath.radians,
    "logaddexp": _to_base(mpmath.e), "logaddexp2": _to_base(mpmath.mpf(2)),
}  # fmt: skip


def _from_true(name: str, found: Any, operands: list[Any]) -> float:
    """Return the distance from the true value in units in the last place.

    Of logarithms of sums these are the larger operand's, as where the result is near zero.
    """
    with mpmath.workprec(200):
        true = _TRUE[name](*(mpmath.mpf(float(x)) for x in operands))
        error = float(abs(mpmath.mpf(float(found)) - true))
        sizes = [abs(found.dtype.type(float(true)))]
    if name.startswith("logaddexp"):
        sizes += map(abs, operands)
    unit = max(float(np.spacing(max(sizes))), float(np.finfo(found.dtype).tiny))
    return float(np.ceil(error / unit * 100) / 100)


def _samples(generator: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Return numbers of moderate size, numbers of every exponent, and the edges."""
    info = np.finfo(dtype)
    half = generator.standard_normal(count // 2) * 4
    exponents = generator.uniform(info.minexp, info.maxexp, count - count // 2)
    with np.errstate(all="ignore"):
        wide = np.exp2(exponents) * generator.choice([-1, 1], len(exponents))
    found = np.concatenate([half, wide]).astype(dtype)
    edges = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny]
    found[: len(edges)] = edges
    return found


def _distances(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the units in the last place between two arrays; infinite where one is NaN."""
    if wanted.dtype.kind != "f":
        return (found != wanted).astype(float)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    spacing = np.maximum(np.spacing(np.abs(wanted)), np.finfo(wanted.dtype).tiny)
    apart = np.abs(found - wanted) / spacing
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def subnormals(rehearsal: bool) -> dict[str, list[dict[str, Any]]]:
    """Return whether numbers below the normal ones survive in CuPy's kernels and in ours."""
    import cupy

    recording.BACKENDS["gpu"] = GpuHostRuntime().get
    x, one, zero = np.full(10_000, 1e-40, "f4"), np.float32(1), np.float32(0)
    ours = recording.record(lambda a: a * one + zero, x, backend="gpu").result
    theirs = (cupy.asarray(x) * one + zero).get()
    rows = [
        {"who": "CuPy, unfused", "1e-40 in float32": "kept" if theirs.any() else "taken for 0"},
        {"who": "gpusched, fused", "1e-40 in float32": "kept" if np.any(ours) else "taken for 0"},
    ]
    return {"Subnormal numbers": rows}
