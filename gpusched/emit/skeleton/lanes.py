"""Lanes: each thread has one place along all loops but one, and joins its elements one by one.

Scans write each total. Segmented reductions join an element to the result of its label, which holds
what changes nothing before the launch: no two threads write to the same results, so that there are
no atomic operations, and a result depends on its values and labels only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpusched.emit import generate
from gpusched.emit.generate import first_total, joined_total, loaded, stored
from gpusched.emit.kernel import Kernel
from gpusched.emit.skeleton.source_lines import Text, product


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
    kept = [k for k in range(text.innermost + 1) if k != level]
    text.write("element = block_x() * threads_x() + thread_x()")
    with text.block(f"while element < {product([f'n{k}' for k in kept])}:"):
        if kept:
            text.write("rest = element")
            text.decompose("rest", kept)
            text.enter(kept, "_element", text.operands)
            if text.innermost in kept:
                text.move_units(text.operands)
        yield
        text.write("element += blocks_x() * threads_x()")


def scanned(kernel: Kernel) -> str:
    """Return the kernel where threads along x go over the loops that are not scanned.

    Neighbours have neighbouring places of the innermost loop, which they read and write together
    where that loop is not the scanned one.
    """
    text = Text(kernel)
    level = kernel.loops.index("scan")
    with lanes(text, level):
        for k, output in enumerate(kernel.outputs):
            text.write(f"total{k} = {first_total(output)}")
        text.write(f"i{level} = 0")
        with text.block(f"while i{level} < n{level}:"):
            text.enter([level], "_row", text.operands)
            if level == text.innermost:
                text.move_units(text.operands)
            _join(text, f"i{level} == 0")
            text.write(f"i{level} += 1")
    return str(text)


def _join(text: Text, is_first: str) -> None:
    """Write the joining of one element to the totals, and the results."""
    _compute(text)
    for k, (name, output) in enumerate(zip(text.outputs, text.kernel.outputs, strict=True)):
        value = loaded(output, f"value{k}")
        text.write(f"total{k} = {joined_total(output, f'total{k}', value, is_first)}")
        text.put(name, "0", stored(output, f"total{k}"))


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
            _join_labelled(text, level)
            text.write(f"i{level} += 1")
    return str(text)


def _join_labelled(text: Text, level: int) -> None:
    """Write the joining of one element to the results of its label."""
    text.enter([level], "_row", text.inputs)
    if level == text.innermost:
        text.move_units(text.inputs)
    text.write(f"label = {text.label('0')}")
    with text.block("if label >= 0:"):
        text.move_gathered()
        _compute(text)
        for k, (name, output) in enumerate(zip(text.outputs, text.kernel.outputs, strict=True)):
            text.write(f"total{k} = {text.element(name, f'label * {name}_s{level}')}")
            joined = generate.combine(output, f"total{k}", f"value{k}")
            text.put(name, f"label * {name}_s{level}", joined)


def _compute(text: Text) -> None:
    """Write the call of `point` for one element."""
    values = [text.element(name, "0") for name in text.taken] + text.parameters
    results = [f"value{k}" for k in range(len(text.outputs))]
    text.write(f"{', '.join(results)} = point({', '.join(values)})")
