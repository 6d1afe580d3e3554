"""The machine code of every benchmark's kernels, and what they should take; no GPU is needed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda compiles; it is in the extra cuda13")

from gpusched.backends.cuda.compiler import disassembler
from gpusched.emit.generate import defined_functions
from gpusched.emit.kernel import Access, Kernel
from tests.backends.cuda.sass import (
    FLOAT64,
    SPILLS,
    WIDE_LOAD,
    WIDE_STORE,
    busiest,
    count,
    parse,
)
from tests.benchmarks import roofline

try:
    disassembler()
except FileNotFoundError as reason:
    pytest.skip(str(reason), allow_module_level=True)

KINDS = [(8, 0), (9, 0), (10, 0)]
CASES = [("float32", name) for name in roofline.WORKS_WITH_KERNELS]
CASES += [("float64", name) for name in ("black-scholes-erf", "square-sum", "standardise")]
LEAST_SHARE = 0.8
"""Of the GPU's bandwidth that kernels which are bound by bytes elsewhere are to reach."""


def by_columns(kernel: Kernel) -> bool:
    """Return whether each thread reduces a column of its own, element by element."""
    return "reduce" in kernel.loops and not kernel.reduces_innermost


def dtypes(kernel: Kernel) -> set[str]:
    return {i.dtype for i in kernel.inputs} | {s.dtype for s in kernel.statements}


@pytest.mark.parametrize("cc", KINDS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
@pytest.mark.parametrize(("dtype", "name"), CASES)
def test_accesses_are_wide_and_registers_suffice(
    name: str, dtype: str, cc: tuple[int, int]
) -> None:
    for kernel in roofline.kernels(name, dtype):
        found = roofline.machine_code(kernel, cc)
        assert not count(found, *SPILLS), kernel.name
        # Complex numbers, as the Mandelbrot set's function has them, are Python's.
        if "float64" not in dtypes(kernel) and not defined_functions(kernel):
            # Sums of float32 are joined in float64, once for several vectors.
            joined = sum(output.combine == "add" for output in kernel.outputs)
            assert count(found, "DMUL", "DFMA", "DSETP", "MUFU.RCP64H") == 0, kernel.name
            assert not count(found, *FLOAT64) or joined, kernel.name
        # Those of the widest dtype; the others' vectors have as many elements, in fewer bytes.
        units = [o for o in kernel.operands if o.access[-1] is Access.UNIT]
        widest = max((np.dtype(o.dtype).itemsize for o in units), default=0)
        units = [o for o in units if np.dtype(o.dtype).itemsize == widest]
        strided = any(o.access[-1] is Access.STRIDED for o in kernel.operands)
        if by_columns(kernel):
            # Several rows are under way at once instead.
            assert count(busiest(found), "LDG") >= 4 * len(kernel.inputs) // 2, kernel.name
        elif units and not strided:
            stores = sum(o in kernel.outputs for o in units)
            assert count(found, WIDE_LOAD) >= len(units) - stores, kernel.name
            assert count(found, WIDE_STORE) >= stores, kernel.name


CHEAP = ["clip", "square-sum", "heat"]  # Moments are of float64, whose instructions bound them.


@pytest.mark.parametrize("gpu", roofline.GPUS)
def test_cheap_kernels_are_bound_by_bytes(gpu: str) -> None:
    """What their instructions take leaves nearly all of the bandwidth."""
    device = roofline.GPUS[gpu]
    for name in CHEAP:
        for kernel, bytes_ in roofline.kernels(name, "float32").items():
            found = roofline.estimate(kernel, bytes_, device)
            assert found.bandwidth >= LEAST_SHARE * device.bandwidth, (kernel.name, found)


@pytest.mark.parametrize("name", ["black-scholes-tanh", "black-scholes-erf"])
def test_fast_mathematics_takes_fewer_instructions(name: str) -> None:
    ((kernel, bytes_),) = roofline.kernels(name, "float32").items()
    exact = roofline.estimate(kernel, bytes_, roofline.GPUS["H200"])
    fast = roofline.estimate(roofline.applied(kernel, "fast"), bytes_, roofline.GPUS["H200"])
    assert bytes_ == 36
    assert fast.instructions < 0.8 * exact.instructions


def test_the_loop_with_the_most_loads_is_found() -> None:
    text = """
        /*0000*/  MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/  LDG.E.128 R4, [R2.64] ;
        /*0020*/  FADD R4, R4, R5 ;
        /*0030*/  @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0040*/  LDG.E R4, [R2.64] ;
        /*0050*/  @P0 BRA `(.L_x_1) ;
        /*0060*/  EXIT ;
"""
    found = parse(text)
    assert [each.name for each in busiest(found)] == ["LDG.E.128", "FADD", "BRA"]
    assert [each.target for each in found] == [None, None, None, 1, None, 4, None]
