"""Segmented reductions: each thread has one place along the other axes, and joins its elements.

No two threads write to the same results, so that there are no atomic operations, and a result
depends on its values and labels only. The results hold what changes nothing before the launch.
"""

from __future__ import annotations

from gpusched.emit import generate
from gpusched.emit.kernel import Kernel
from gpusched.emit.skeleton.lanes import lanes
from gpusched.emit.skeleton.source_lines import Text


def segmented(kernel: Kernel) -> str:
    """Return the kernel where threads along x go over the loops that stay.

    Neighbours have neighbouring places of the innermost loop, which they read and write together
    where that loop stays.
    """
    text = Text(kernel)
    level = kernel.loops.index("reduce")
    with lanes(text, level):
        text.write(f"i{level} = 0")
        with text.block(f"while i{level} < n{level}:"):
            _join(text, level)
            text.write(f"i{level} += 1")
    return str(text)


def _join(text: Text, level: int) -> None:
    """Write the joining of one element to the results of its label."""
    last = len(text.kernel.loops) - 1
    text.move([level], "_row")
    if level == last:
        text.move_units(last)
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
