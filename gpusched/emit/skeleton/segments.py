"""Segmented reductions: each thread has one place along the other axes, and joins its elements.

No two threads write to the same results, so that there are no atomic operations, and a result
depends on its values and labels only. The results hold what changes nothing before the launch.
"""

from __future__ import annotations

from gpusched.emit import generate
from gpusched.emit.kernel import Access, Input, Kernel, Output
from gpusched.emit.skeleton.text import Text, product


def segmented(kernel: Kernel) -> str:
    """Return the kernel where threads along x go over the loops that stay.

    Neighbours have neighbouring places of the innermost loop, which they read and write together
    where that loop stays.
    """
    text = Text(kernel)
    level, last = kernel.loops.index("reduce"), len(kernel.loops) - 1
    kept = [k for k in range(last + 1) if k != level]
    text.write("element = block_x() * threads_x() + thread_x()")
    with text.block(f"while element < {product([f'n{k}' for k in kept])}:"):
        if kept:
            text.write("rest = element")
            text.decompose("rest", kept)
            text.move(kept, "_element", outputs=True)
            _move_units(text, kept)
        text.write(f"i{level} = 0")
        with text.block(f"while i{level} < n{level}:"):
            _join(text, level)
            text.write(f"i{level} += 1")
        text.write("element += blocks_x() * threads_x()")
    return str(text)


def _move_units(text: Text, kept: list[int]) -> None:
    """Write pointers to the elements of the innermost loop, for arrays side by side."""
    last = len(text.kernel.loops) - 1
    if last not in kept:
        return
    operands: list[tuple[str, Input | Output]] = [*text.inputs, *text.outputs]
    for name, operand in operands:
        if operand.access[last] is Access.UNIT:
            text.write(f"{name}_unit = shift({text.pointers[name]}, i{last})")
            text.pointers[name] = f"{name}_unit"


def _join(text: Text, level: int) -> None:
    """Write the joining of one element to the results of its label."""
    last = len(text.kernel.loops) - 1
    text.move([level], "_row")
    if level == last:
        units = [name for name, i in text.inputs if i.access[last] is Access.UNIT]
        for name in units:
            text.write(f"{name}_unit = shift({text.pointers[name]}, i{level})")
            text.pointers[name] = f"{name}_unit"
    text.write(f"label = {text.label('0')}")
    with text.block("if label >= 0:"):
        text.move_gathered("")
        values = [text.element(name, "0") for name, _ in text.taken()] + text.parameters
        results = [f"value{k}" for k in range(len(text.outputs))]
        text.write(f"{', '.join(results)} = point({', '.join(values)})")
        for k, (name, output) in enumerate(text.outputs):
            text.write(f"total{k} = {text.so_far(name, f'label * {name}_s{level}')}")
            joined = generate.combine(output, f"total{k}", f"value{k}")
            text.put(name, f"label * {name}_s{level}", joined)
