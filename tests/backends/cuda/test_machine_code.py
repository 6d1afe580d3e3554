"""What the machine code for each kind of GPU must and must not contain; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda compiles; it is in the extra cuda13")

from gpusched.backends.cuda.compiler import disassembler
from gpusched.backends.cuda.runtime import compile_for
from gpusched.emit.floatingpoint import IS_X86
from gpusched.emit.kernel import EXACT, FAST, Kernel
from gpusched.plan.overrides import applied
from gpusched.store.handles import CompiledKernel
from tests.backends.cuda.sass import FLOAT64, SPILLS, count, read
from tests.emit.test_operations import ufunc_of
from tests.record import recording

try:
    disassembler()
except FileNotFoundError as reason:
    pytest.skip(str(reason), allow_module_level=True)

KINDS = [(8, 0), (9, 0), (10, 0)]


def kernels(function: Callable[..., Any], *arrays: np.ndarray) -> list[Kernel]:
    """Return the kernels of a program, without compiling for a GPU."""
    found: list[Kernel] = []

    def remember(kernel: Kernel) -> CompiledKernel:
        found.append(kernel)
        return recording.reference(kernel)

    recording.BACKENDS["remember"] = remember
    try:
        recording.record(function, *arrays, backend="remember")
    finally:
        del recording.BACKENDS["remember"]
    return found


def black_scholes(s: Any, k: Any, t: Any) -> Any:
    root = np.sqrt(t) * 0.3
    d1 = (np.log(s / k) + (0.02 + 0.045) * t) / root
    return s * (1 + np.tanh(0.8 * d1)) - k * np.exp(-0.02 * t) * (1 + np.tanh(0.8 * (d1 - root)))


def array(dtype: str, *shape: int) -> np.ndarray:
    return np.ones(shape or (64,), dtype)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "chain": (lambda a, b: np.clip(((a + b) * a - b) / 3.5, 0, 7), [array("f4")] * 2),
    "black-scholes": (black_scholes, [array("f4")] * 3),
    "broadcast": (lambda a, b: a * b + a, [array("f4", 8, 64), array("f4", 64)]),
    "mask": (lambda a, b: np.where(a > b, a, b), [array("f4")] * 2),
    "uint8": (lambda a: a * np.uint8(3) + a, [array("u1")]),
    "int16": (lambda a: a * np.int16(3) + a, [array("i2")]),
    "bool": (lambda a, b: a & b, [array("?")] * 2),
    "maximum": (lambda a: a.max(), [array("f4")]),
}
VECTORS = dict.fromkeys(PROGRAMS, (1, 1)) | {"maximum": (1, 0)}
"""Least number of 16-byte loads and stores."""


@pytest.mark.parametrize("cc", KINDS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
@pytest.mark.parametrize("name", PROGRAMS)
def test_accesses_are_wide_and_registers_suffice(name: str, cc: tuple[int, int]) -> None:
    function, arrays = PROGRAMS[name]
    (kernel,) = kernels(function, *arrays)
    compiled = compile_for(kernel, cc)
    found = read(compiled)
    loads, stores = VECTORS[name]
    assert count(found, "LDG.E.128") >= loads
    assert count(found, "STG.E.128") >= stores
    assert not count(found, *SPILLS)
    assert not count(found, *FLOAT64), "float64 in a float32 kernel"


@pytest.mark.parametrize("cc", KINDS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
def test_float64_is_found_where_it_is(cc: tuple[int, int]) -> None:
    (kernel,) = kernels(lambda a: a * 3.5 + a, array("f8"))
    found = read(compile_for(kernel, cc))
    assert count(found, *FLOAT64)
    assert count(found, "LDG.E.128")


MATHEMATICS = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "cbrt", "sqrt",
    "floor", "rint", "absolute", "sign", "reciprocal",
]  # fmt: skip


# `logaddexp` is not among them: it is computed in float64, since its two parts may cancel.
BINARY = ["power", "arctan2", "hypot", "floor_divide", "remainder", "nextafter"]
SPECIAL = ["erf", "erfc", "expit", "gamma"]


@pytest.mark.parametrize("name", [*MATHEMATICS, *BINARY, *SPECIAL])
def test_function_of_float32_stays_in_float32(name: str) -> None:
    function = ufunc_of(name)
    (kernel,) = kernels(lambda *a: function(*a), *[array("f4")] * function.nin)
    found = read(compile_for(kernel, (9, 0)))
    if name in ("sin", "cos", "tan"):
        # The reduction of huge arguments multiplies by digits of pi, with float64 or the stack.
        assert count(found, "DMUL", "DFMA", "DADD") <= 32
        return
    assert not count(found, *FLOAT64)
    assert not count(found, *SPILLS)


def test_products_and_sums_are_not_contracted() -> None:
    (kernel,) = kernels(lambda a, b: a * b + a, array("f4"), array("f4"))
    found = read(compile_for(kernel, (9, 0)))
    assert not count(found, "FFMA")
    assert count(found, "FMUL")
    assert count(found, "FADD")


@pytest.mark.parametrize(("dtype", "contracted"), [("f4", "FFMA.FTZ"), ("f8", "DFMA")])
def test_fast_mathematics_contracts_products_and_sums(dtype: str, contracted: str) -> None:
    (kernel,) = kernels(lambda a, b: a * b + a, array(dtype), array(dtype))
    exact, fast = (read(compile_for(applied(kernel, mode), (9, 0))) for mode in (EXACT, FAST))
    assert count(fast, contracted)
    assert not count(exact, contracted)
    assert count(fast, "FADD", "DADD") < count(exact, "FADD", "DADD")


def test_fast_mathematics_takes_fewer_steps_for_quotients_and_roots() -> None:
    (kernel,) = kernels(lambda a, b: np.sqrt(a / b), array("f4"), array("f4"))
    exact, fast = (read(compile_for(applied(kernel, mode), (9, 0))) for mode in (EXACT, FAST))
    assert len(fast) < 0.6 * len(exact)


def test_sum_of_float32_widens_once_per_group_of_vectors() -> None:
    first, *_ = kernels(lambda a: (a * a).sum(), array("f4"))
    found = read(compile_for(first, (9, 0)))
    assert count(found, "FADD") > count(found, "DADD") > 0
    assert count(found, "LDG.E.128") >= 4


def test_symbol_is_the_kernels_name() -> None:
    (kernel,) = kernels(lambda a, b: np.exp(a) * b, array("f4"), array("f4"))
    one = compile_for(kernel, (9, 0))
    assert one.name == kernel.name
    assert f".entry {kernel.name}(" in one.ptx()
    assert f'@"{kernel.name}"' in one.llvm()
    assert one.cubin.startswith(b"\x7fELF")


@pytest.mark.skipif(not IS_X86, reason="is about x86's instructions, which NumPy uses")
@pytest.mark.parametrize(("source", "target"), [("f4", "i1"), ("f8", "i8")])
def test_floats_that_no_integer_holds_are_compared_first(source: str, target: str) -> None:
    """NVIDIA's instruction would give the nearest integer, as the emulated GPU's does not."""
    (kernel,) = kernels(lambda a: a.astype(target), array(source))
    text = compile_for(kernel, (9, 0)).ptx()
    kind = source.replace("f4", "f32").replace("f8", "f64")
    assert f".lt.{kind}" in text
    assert "selp" in text
