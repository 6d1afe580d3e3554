"""Comparisons that raise nothing for NaN give what LLVM's own do, on every kind of processor."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from gpusched.backends import flags, silent_nans  # noqa: F401  numba sets LLVM up

NUMBERS = [1.0, -2.0, 0.0, np.inf, -np.inf, np.nan]
LANES = {"float": 4, "double": 2}
TYPES = {"float": "float32", "double": "float64"}
COMPARISONS = [f"{order}{name}" for order in "ou" for name in ("lt", "le", "gt", "ge")]
EXTREMES = ["minimum", "maximum", "minnum", "maxnum"]
REDUCTIONS = ["fminimum", "fmaximum", "fmin", "fmax"]


def module(kind: str, result: str, instruction: str, declared: str = "") -> str:
    """Return a function from two arrays to what an instruction makes of their first numbers."""
    whole = result.replace("i1", "i8")
    kept = f"zext {result} %found to {whole}" if whole != result else f"freeze {result} %found"
    return str(llvm.parse_assembly(f"""
    define void @call(ptr %a, ptr %b, ptr %out) {{
      %x = load {kind}, ptr %a, align 4
      %y = load {kind}, ptr %b, align 4
      %found = {instruction}
      %kept = {kept}
      store {whole} %kept, ptr %out, align 1
      ret void
    }}
    {declared}
    """))  # fmt: skip


def called(text: str) -> Callable[..., np.ndarray]:
    """Return a module's function, as one of arrays to an array of so many numbers."""
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten()
    )
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    address = engine.get_function_address("call")
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(address)

    def call(a: np.ndarray, b: np.ndarray, size: int, dtype: Any) -> np.ndarray:
        out = np.zeros(size, dtype)
        function(a.ctypes.data, b.ctypes.data, out.ctypes.data)
        return out

    call.engine = engine  # type: ignore[attr-defined]
    return call


def cases(kind: str) -> list[tuple[str, bool]]:
    """Return modules for all that is replaced, and whether each returns booleans."""
    found = []
    for lanes in (1, LANES[kind]):
        whole, bits = (f"<{lanes} x {each}>" if lanes > 1 else each for each in (kind, "i1"))
        short = silent_nans._short(whole)
        found += [(module(whole, bits, f"fcmp {name} {whole} %x, %y"), True)
                  for name in COMPARISONS]  # fmt: skip
        for name in EXTREMES:
            function = f"@llvm.{name}.{short}"
            call = f"call {whole} {function}({whole} %x, {whole} %y)"
            declared = f"declare {whole} {function}({whole}, {whole})"
            found.append((module(whole, whole, call, declared), False))
    for name in REDUCTIONS:
        function = f"@llvm.vector.reduce.{name}.{short}"
        call = f"call {kind} {function}({whole} %x)"
        found.append((module(whole, kind, call, f"declare {kind} {function}({whole})"), False))
    return found


@pytest.mark.parametrize(("constrained", "masks"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("kind", LANES)
def test_results_are_the_same(
    kind: str, constrained: bool, masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if constrained and not silent_nans.CONSTRAINED:
        pytest.skip("a processor without such comparisons")
    monkeypatch.setattr(silent_nans, "CONSTRAINED", constrained)
    monkeypatch.setattr(silent_nans, "HAS_MASKS", masks)
    pairs = np.array(list(itertools.product(NUMBERS, NUMBERS)), TYPES[kind])
    lanes = LANES[kind]
    arrays = [tuple(np.resize(column[k:], lanes) for column in pairs.T) for k in range(len(pairs))]
    for text, boolean in cases(kind):
        changed = silent_nans.replaced(text)
        assert ("constrained" if constrained else "fcmp ord") in changed
        one, other = called(text), called(changed)
        for a, b in arrays:
            expected, found = (f(a, b, lanes, "i1" if boolean else a.dtype) for f in (one, other))
            np.testing.assert_array_equal(found, expected, text)
