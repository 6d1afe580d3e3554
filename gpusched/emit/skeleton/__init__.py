"""The loops around `point` on a GPU, as Python source: which threads compute which elements.

A kernel's arguments are those of `generate.arguments`, then ``vectors``, how many vectors (tiles,
in a flat loop) a row holds, or 0 where the arrays at hand are not aligned for 16-byte accesses,
and ``each``, the rows of one thread of a nest.
The same text runs in plain Python under a simulator, where ``load4`` is a tuple of four reads.
"""

from __future__ import annotations

from dataclasses import replace

from gpusched.emit import editions, generate
from gpusched.emit.kernel import Kernel, Output
from gpusched.emit.skeleton.elementwise import flat, nest
from gpusched.emit.skeleton.lanes import scanned, segmented
from gpusched.emit.skeleton.reduction import reduce_inner, reduce_outer


def source(kernel: Kernel) -> str:
    """Return the whole text of a kernel for CUDA."""
    if kernel.edition is not None:
        return editions.with_loops(kernel.edition, "cuda", loops(kernel))
    point = generate.point_source(replace(kernel, tests=()))
    around = loops(kernel)
    header = generate.header(kernel, f"{kernel.name}, for CUDA")
    return f"{header}\n\n\n{generate.helper_source(point + around)}{point}\n\n\n{around}\n"


def counted(kernel: Kernel) -> Kernel:
    """Return a kernel as GPUs have it: behind each three moments is how many values there are.

    Examples
    --------
    >>> from gpusched.emit.kernel import MOMENTS, Access, Input, Output
    >>> from gpusched.emit.skeleton import counted
    >>> unit, still = (Access.UNIT,), (Access.BROADCAST,)
    >>> outputs = (Output(0, "float64", still, MOMENTS, "float64"),) * 3
    >>> found = counted(Kernel((Input("float64", unit),), (), (), outputs, ("reduce",)))
    >>> [output.combine for output in found.outputs], counted(found) is found
    (['moments', 'moments', 'moments', 'add'], True)
    """
    one = generate.literal(1, "int64")
    outputs = [*kernel.outputs]
    for k in reversed(kernel.moments):
        behind = outputs[k + 3] if len(outputs) > k + 3 else outputs[k]
        if behind.combine != "add" or behind.value != one:
            outputs.insert(k + 3, Output(one, "int64", outputs[k].access, "add", "int64"))
    return kernel if len(outputs) == len(kernel.outputs) else replace(kernel, outputs=(*outputs,))


def loops(kernel: Kernel) -> str:
    """Return the source of the kernel function."""
    if kernel.segmented:
        return segmented(kernel)
    if kernel.scanned:
        return scanned(kernel)
    if "reduce" in kernel.loops:
        return reduce_inner(kernel) if kernel.loops[-1] == "reduce" else reduce_outer(kernel)
    return flat(kernel) if len(kernel.loops) == 1 else nest(kernel)
