"""What the works' kernels take on GPUs, from their bytes and machine code: no GPU is needed.

`python -m tests.benchmarks.roofline --help`.  A kernel takes as long as the slowest of moving its
bytes, issuing its instructions, and the units that have few lanes (S. Williams, A. Waterman and
D. Patterson, "Roofline", Communications of the ACM 52(4), 2009).  The estimate leaves out latency:
it is the least that a kernel can take, not what it will.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gpusched.backends.cuda.runtime import compile_for
from gpusched.backends.devices import HOST
from gpusched.emit.kernel import EXACT, FAST, Access, Kernel
from gpusched.emit.skeleton.source_lines import width
from gpusched.plan.overrides import applied
from gpusched.plan.plan import Launch
from gpusched.store.handles import CompiledKernel
from tests.backends.cuda import sass
from tests.benchmarks import names
from tests.benchmarks.works import WORKS
from tests.benchmarks.works.base import several
from tests.record import recording

FEW = 32
"""Kernels that move so many times fewer bytes than the largest of their program are left out."""
CHUNK = 16_000_000
"""Elements of the chunk that times are estimated for."""


@dataclass(frozen=True)
class Gpu:
    """Figures of a GPU from its maker's data sheet."""

    cc: tuple[int, int]
    bandwidth: float
    """Bytes a second."""
    lanes: float
    """Instructions of single threads a second: 128 a clock and multiprocessor."""
    double: float
    """Those of float64 a second."""


GPUS = {
    # 108 multiprocessors at 1.41 GHz, 9.7 teraflops of float64 (two an instruction).
    "A100": Gpu((8, 0), 2.039e12, 108 * 128 * 1.41e9, 4.85e12),
    # 132 at 1.98 GHz, 34 teraflops.
    "H100": Gpu((9, 0), 3.35e12, 132 * 128 * 1.98e9, 17e12),
    "H200": Gpu((9, 0), 4.8e12, 132 * 128 * 1.98e9, 17e12),
    # 148 at 1.965 GHz, 40 teraflops.
    "B200": Gpu((10, 0), 8e12, 148 * 128 * 1.965e9, 20e12),
}
SPECIAL = 8
"""Lanes of other instructions to one of ``MUFU``: 16 a clock and multiprocessor."""

WORKS_WITH_KERNELS = [
    "black-scholes-tanh", "black-scholes-erf", "clip", "square-sum", "axis-statistics",
    "standardise", "heat", "softmax", "terrain", "pairwise", "dense", "mandelbrot",
]  # fmt: skip
"""Works whose chunks become kernels, by name."""
ENDLESS = "mandelbrot"
"""Goes round a loop for each element, as often as the element says: nothing to estimate."""


@dataclass(frozen=True)
class Estimate:
    """One kernel on one GPU, for an element of those it goes through."""

    bytes: float
    instructions: float
    bound: str
    """``bytes``, ``instructions``, ``special functions`` or ``float64``."""
    seconds: float

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds


def kernels(name: str, dtype: str) -> dict[Kernel, float]:
    """Return the kernels of a work's program on one chunk, and the bytes that an element moves.

    Nothing is computed. Kernels of a few numbers, such as the means of columns, are left out: they
    take as long as their launch.
    """
    work = WORKS[name]
    program = work.programs.get("gpusched") or work.program_of("numpy")

    def remember(kernel: Kernel) -> CompiledKernel:
        return CompiledKernel(kernel, lambda *arguments: None)

    recording.BACKENDS["remember"] = remember
    try:
        found = recording.record(
            lambda *arrays: several(program(names.numpy(), *arrays)),
            *work.inputs(1 << 16, dtype),
            backend="remember",
            device=replace(HOST, can=replace(HOST.can, begins=True)),  # As GPUs have it.
        )
    finally:
        del recording.BACKENDS["remember"]
    most = max(total(launch) for launch in found.launches)
    launches = [launch for launch in found.launches if total(launch) * FEW >= most]
    return {replace(each.kernel.kernel, streamed=False): moved(each) for each in launches}


def total(launch: Launch) -> int:
    """Return the bytes that a launch moves."""
    return launch.bytes_read + launch.bytes_written


def moved(launch: Launch) -> float:
    """Return the bytes that an element moves; views of one array count it once."""
    return total(launch) / math.prod(launch.loops.sizes)


def elements(kernel: Kernel, part: list[sass.Instruction]) -> int:
    """Return how many elements a part of a kernel's machine code goes through.

    It has as many loads of each input that moves with the elements.
    """
    wide = sass.count(part, sass.WIDE_LOAD)
    inner = kernel.loops[-1:] if len(kernel.loops) == 1 else ()
    moving = [
        i for i in kernel.inputs
        if i.access[-1] is not Access.BROADCAST and (inner or Access.STRIDED in i.access)
    ]  # fmt: skip
    passes = max(1, (wide or sass.count(part, "LDG")) // max(1, len(moving)))
    return passes * (width(kernel) if wide else 1)


@lru_cache(maxsize=256)
def machine_code(kernel: Kernel, cc: tuple[int, int]) -> list[sass.Instruction]:
    """Return a kernel's instructions for one kind of GPU."""
    return sass.read(compile_for(kernel, cc))


def estimate(kernel: Kernel, bytes_: float, gpu: Gpu) -> Estimate:
    """Return what an element takes at least."""
    part = sass.busiest(machine_code(kernel, gpu.cc))
    each = elements(kernel, part)
    special, double = sass.count(part, "MUFU"), sass.count(part, *sass.FLOAT64)
    instructions = len(part) / each
    times = {
        "bytes": bytes_ / gpu.bandwidth,
        "instructions": instructions / gpu.lanes,
        "special functions": special * SPECIAL / each / gpu.lanes,
        "float64": double / each / gpu.double,
    }
    bound = max(times, key=lambda name: times[name])
    return Estimate(bytes_, instructions, bound, times[bound])


def rows(gpu: Gpu, works: list[str], dtypes: list[str], mathematics: str) -> Any:
    """Yield the lines of the table."""
    for name in works:
        for dtype in dtypes:
            for kernel, bytes_ in kernels(name, dtype).items():
                found = estimate(applied(kernel, mathematics), bytes_, gpu)
                yield (
                    f"| {name} | {kernel.name} | {dtype} | {found.bytes:.1f} | "
                    f"{found.instructions:.1f} | {found.bound} | {found.bandwidth / 1e9:.0f} | "
                    f"{1e6 * CHUNK * found.seconds:.1f} |"
                )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.roofline")
    parser.add_argument(
        "works", nargs="*", help=f"of {', '.join(WORKS_WITH_KERNELS)} (default: all)"
    )
    parser.add_argument("--gpu", choices=GPUS, default="H200")
    parser.add_argument("--dtype", choices=("float32", "float64"), help="(default: both)")
    parser.add_argument("--fast", action="store_true", help="in the fast mode")
    options = parser.parse_args(arguments)
    dtypes = [options.dtype] if options.dtype else ["float32", "float64"]
    print(f"Estimated for one {options.gpu}, an element, and a chunk of {CHUNK:,}:\n")
    print("| work | kernel | dtype | bytes | instructions | bound by | GB/s | us |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    mode = FAST if options.fast else EXACT
    for row in rows(
        GPUS[options.gpu], options.works or sorted({*WORKS_WITH_KERNELS} - {ENDLESS}), dtypes, mode
    ):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
