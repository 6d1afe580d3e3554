"""Comparisons that replace LLVM's own give what these do, and raise no error for NaN."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from gpusched.backends import flags, silent_nans  # noqa: F401  numba sets LLVM up
from gpusched.backends.conversions import HAS_HALVES
from gpusched.emit.floatingpoint import IS_X86

NUMBERS = [1.0, -2.0, 0.0, np.inf, -np.inf, np.nan]
LANES = {"half": 8, "float": 4, "double": 2}
TYPES = {"half": "float16", "float": "float32", "double": "float64"}
SHORT = {"half": "f16", "float": "f32", "double": "f64"}
COMPARISONS = [f"{order}{name}" for order in "ou" for name in ("lt", "le", "gt", "ge")]
EXTREMES = ["minimum", "maximum", "minnum", "maxnum"]
REDUCTIONS = ["fminimum", "fmaximum", "fmin", "fmax"]
FE_INVALID = 1
"""The C library's bit."""


def module(kind: str, result: str, instruction: str, declared: str = "", before: str = "") -> str:
    """Return a function from two arrays to what an instruction makes of their first numbers.

    Others may come `before` it.
    """
    whole = result.replace("i1", "i8")
    kept = f"zext {result} %found to {whole}" if whole != result else f"freeze {result} %found"
    return str(llvm.parse_assembly(f"""
    define void @call(ptr %a, ptr %b, ptr %out) {{
      %x = load {kind}, ptr %a, align 4
      %y = load {kind}, ptr %b, align 4
      {before}
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


def cases(kind: str, lanes: int) -> list[tuple[str, bool]]:
    """Return modules for all that is replaced, and whether each returns booleans."""
    whole, bits = (f"<{lanes} x {each}>" if lanes > 1 else each for each in (kind, "i1"))
    short = f"v{lanes}{SHORT[kind]}" if lanes > 1 else SHORT[kind]
    found = [(module(whole, bits, f"fcmp {name} {whole} %x, %y"), True) for name in COMPARISONS]
    for name in EXTREMES:
        function = f"@llvm.{name}.{short}"
        call = f"call {whole} {function}({whole} %x, {whole} %y)"
        declared = f"declare {whole} {function}({whole}, {whole})"
        found.append((module(whole, whole, call, declared), False))
    for name in REDUCTIONS if lanes > 1 else []:
        function = f"@llvm.vector.reduce.{name}.{short}"
        call = f"call {kind} {function}({whole} %x)"
        found.append((module(whole, kind, call, f"declare {kind} {function}({whole})"), False))
    return found


def raises(call: Callable[..., np.ndarray], *arguments: Any) -> bool:
    """Return whether a call raises the processor's flag of invalid operations."""
    library = ctypes.CDLL(None)
    library.feclearexcept(FE_INVALID)
    call(*arguments)
    return bool(library.fetestexcept(FE_INVALID))


@pytest.mark.parametrize(("constrained", "masks"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize(
    ("kind", "lanes"),
    [(kind, lanes) for kind, most in LANES.items() for lanes in (1, most, 4 * most)],
)
def test_results_are_the_same_and_nan_raises_nothing(
    kind: str, lanes: int, constrained: bool, masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if constrained and not silent_nans.CONSTRAINED:
        pytest.skip("a processor without such comparisons")
    if kind == "half" and not HAS_HALVES:
        pytest.skip("a processor that has no float16")
    monkeypatch.setattr(silent_nans, "CONSTRAINED", constrained)
    monkeypatch.setattr(silent_nans, "HAS_MASKS", masks)
    pairs = np.array(list(itertools.product(NUMBERS, NUMBERS)), TYPES[kind])
    starts = range(0, len(pairs), lanes)
    arrays = [tuple(np.resize(column[k:], lanes) for column in pairs.T) for k in starts]
    for text, boolean in cases(kind, lanes):
        changed = silent_nans.replaced(text)
        assert changed != text
        wide = f"<{lanes} x {kind}>" in silent_nans.WIDE
        assert wide or ("constrained" in changed) is constrained
        one, other = called(text), called(changed)
        for a, b in arrays:
            given = a, b, lanes, "i1" if boolean else a.dtype
            np.testing.assert_array_equal(other(*given), one(*given), text)
            assert not (IS_X86 and raises(other, *given)), (text, a, b)


@pytest.mark.skipif(not silent_nans.WIDE, reason="a processor without such instructions")
@pytest.mark.parametrize(("kind", "lanes"), [("float", 16), ("double", 8)])
@pytest.mark.parametrize("name", COMPARISONS)
def test_the_less_or_greater_of_two_is_one_instruction(name: str, kind: str, lanes: int) -> None:
    whole, bits = f"<{lanes} x {kind}>", f"<{lanes} x i1>"
    numbers = np.array([*NUMBERS, -0.0], TYPES[kind])
    pairs = np.array(list(itertools.product(numbers, numbers)), TYPES[kind])
    starts = range(0, len(pairs), lanes)
    arrays = [tuple(np.resize(column[k:], lanes) for column in pairs.T) for k in starts]
    compared = f"%c = fcmp {name} {whole} %x, %y"
    for first, second in ("xy", "yx"):
        choice = f"select {bits} %c, {whole} %{first}, {whole} %{second}"
        used = f"{compared}\n      %chosen = {choice}\n      %w = uitofp {bits} %c to {whole}"
        alone = module(whole, whole, choice, before=compared)
        twice = module(whole, whole, f"fadd {whole} %chosen, %w", before=used)
        for text, kept in ((alone, False), (twice, True)):
            changed = silent_nans.replaced(text)
            # Of equal numbers, and of NaN, the others choose the first.
            exact = name in ("olt", "ogt", "ule", "uge")
            assert ("avx512" in changed) is exact
            assert ("constrained" in changed) is (kept or not exact)
            one, other = called(text), called(changed)
            for a, b in arrays:
                given = a, b, lanes, a.dtype
                assert other(*given).tobytes() == one(*given).tobytes(), (text, a, b)
                assert not raises(other, *given), (text, a, b)


@pytest.mark.parametrize("instruction", [
    "fcmp olt <vscale x 4 x float> %x, %y",
    "fcmp ugt bfloat %x, %y",
    "call float @llvm.minimumnum.f32(float %x, float %y)",
    "call nofpclass(nan) float @llvm.maxnum.f32(float %x, float %y)",
    "tail call nnan float @llvm.vector.reduce.fmax.v3f32(<3 x float> %x)",
    "call <4 x float> @llvm.vp.minnum.v4f32(<4 x float> %x)",
])  # fmt: skip
def test_there_is_no_kernel_of_other_comparisons(instruction: str) -> None:
    with pytest.raises(NotImplementedError):
        silent_nans.replaced(f"  %found = {instruction}\n")


@pytest.mark.parametrize("instruction", [
    "fcmp reassoc oeq <4 x float> %x, %y", "fcmp uno half %x, %y", "fadd float %x, %y",
    "call i32 @llvm.smin.i32(i32 %x, i32 %y)", "call i64 @llvm.vector.reduce.umax.v2i64(i64 %x)",
])  # fmt: skip
def test_what_raises_nothing_stays(instruction: str) -> None:
    text = f"  %found = {instruction}\n"
    assert silent_nans.replaced(text).strip() == text.strip()
