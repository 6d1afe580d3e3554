"""Lanes: each thread has one place along all loops but one; scans join its elements one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpusched.emit.kernel import Kernel
from gpusched.emit.skeleton.source_lines import Text, product
from gpusched.emit.totals import joined, loaded, start, stored


@contextmanager
def lanes(text: Text, level: int) -> Iterator[None]:
    """Write the loop of a thread over its places along all loops but one, and move operands there.

    Parameters
    ----------
    text
        The kernel.
    level
        The other loop, which is written within the context.
    """
    last = len(text.kernel.loops) - 1
    kept = [k for k in range(last + 1) if k != level]
    text.write("element = block_x() * threads_x() + thread_x()")
    with text.block(f"while element < {product([f'n{k}' for k in kept])}:"):
        if kept:
            text.write("rest = element")
            text.decompose("rest", kept)
            text.move(kept, "_element", outputs=True)
            if last in kept:
                text.move_units(last, outputs=True)
        yield
        text.write("element += blocks_x() * threads_x()")


def scanned(kernel: Kernel) -> str:
    """Return the kernel where threads along x go over the loops that are not scanned.

    Neighbours have neighbouring places of the innermost loop, which they read and write together
    where that loop is not the scanned one.
    """
    text = Text(kernel)
    level, last = kernel.loops.index("scan"), len(kernel.loops) - 1
    with lanes(text, level):
        for k, (_, output) in enumerate(text.outputs):
            text.write(f"total{k} = {start(output)}")
        text.write(f"i{level} = 0")
        with text.block(f"while i{level} < n{level}:"):
            text.move([level], "_row", outputs=True)
            if level == last:
                text.move_units(last, outputs=True)
            _join(text)
            text.write(f"i{level} += 1")
    return str(text)


def _join(text: Text) -> None:
    """Write the joining of one element to the totals, and the results."""
    values = [text.element(name, "0") for name, _ in text.taken()] + text.parameters
    results = [f"value{k}" for k in range(len(text.outputs))]
    text.write(f"{', '.join(results)} = point({', '.join(values)})")
    for k, (name, output) in enumerate(text.outputs):
        value = loaded(output, f"value{k}")
        text.write(f"total{k} = {joined(output, f'total{k}', value)}")
        text.put(name, "0", stored(output, f"total{k}"))
