"""Values: every generated kernel and operation against NumPy, in units in the last place."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np

from gpusched.emit.operations import OPERATIONS
from tests.backends.cuda.cases import ELEMENTWISE, REDUCTIONS
from tests.backends.cuda.runtimes import GpuHostRuntime
from tests.emit.test_operations import CASES, fuses, ufunc_of
from tests.record import recording

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
    """Return the largest distance of each operation from NumPy, and the one that is allowed."""
    recording.BACKENDS["gpu"] = GpuHostRuntime().get
    cases = [(n, d) for n, d in CASES if d in ("float32", "float64") and fuses(n, d)]
    bits = 10 if rehearsal else 22
    rows = [
        {"operation": name, "dtype": dtype, **_farthest(name, dtype, bits)}
        for name, dtype in (cases[: 2 * _REHEARSED] if rehearsal else cases)
    ]
    over = [row for row in rows if row.get("ulp", 0) > row["allowed"] or "error" in row]
    return {"Operations that are farther than allowed": over, "Distance from NumPy in ULP": rows}


def _farthest(name: str, dtype: str, bits: int) -> dict[str, Any]:
    ufunc, allowed = ufunc_of(name), OPERATIONS[name].ulp
    generator = np.random.default_rng(0)
    arrays = [_samples(generator, dtype, 1 << bits) for _ in range(ufunc.nin)]
    try:
        with np.errstate(all="ignore"):
            found = recording.record(lambda *a: ufunc(*a), *arrays, backend="gpu").result
            wanted = ufunc(*arrays)
    except Exception as error:  # noqa: BLE001  The report is about it.
        traceback.print_exc()
        return {
            "ulp": float("inf"),
            "allowed": allowed,
            "error": f"{type(error).__name__}: {error}",
        }
    firsts = [r[0] if isinstance(r, tuple) else r for r in (found, wanted)]
    return {"ulp": _distance(*firsts), "allowed": allowed}


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


def _distance(found: Any, wanted: Any) -> float:
    """Return the most units in the last place between two arrays; infinite where one is NaN."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if wanted.dtype.kind != "f":
        return float(np.count_nonzero(found != wanted))
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(all="ignore"):
        spacing = np.maximum(np.spacing(np.abs(wanted)), np.finfo(wanted.dtype).tiny)
        distance = np.abs(found - wanted) / spacing
    distance = np.where(same, 0, np.where(np.isfinite(distance), distance, np.inf))
    return float(np.ceil(distance.max(initial=0)))


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
