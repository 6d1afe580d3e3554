"""Elementwise kernels: one flat loop, or rows of columns."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.emit.kernel import STILL, Access, Kernel
from gpusched.emit.skeleton.source_lines import Text, product, threads


def flat(kernel: Kernel) -> str:
    """Return the kernel over one loop: a tile of vectors for each block, then the rest.

    There are blocks enough for both, so that nothing loops.
    """
    text = Text(kernel)
    block = threads(kernel)
    span = block * text.width
    tile = span * text.unroll
    text.hoist(text.still)
    with text.block("if block_x() < vectors:"):
        text.write(f"i = block_x() * {tile} + thread_x() * {text.width}")
        _vectors(text, ["i", *(f"i + {u * span}" for u in range(1, text.unroll))])
    text.write(f"i = vectors * {tile} + block_x() * {block} + thread_x()")
    with text.block("if i < n0:"):
        _single(text, "i")
    return str(text)


def nest(kernel: Kernel) -> str:
    """Return the kernel over rows of columns.

    Along the grid's x go the columns of the innermost loop, along y the next loop, along z all
    others.  A thread has ``each`` rows, one below the other, and keeps its columns of what does
    not move with the rows.
    """
    text = Text(kernel)
    text.write("x = block_x() * threads_x() + thread_x()")
    if text.width > 1:
        with text.block("if x < vectors:"):
            text.write(f"i = x * {text.width}")
            _rows(text, vector=True)
    with text.block(f"if vectors == 0 and x < n{text.innermost}:"):
        _rows(text, vector=False)
    return str(text)


def _rows(text: Text, vector: bool) -> None:
    outer = list(range(text.innermost - 1))
    constant = [x for x in text.taken if STILL.issuperset(text.operands[x].access[:-1])]
    text.hoist([name for name in constant if name in text.still])
    columns = [name for name in constant if vector and name in text.moving]
    for name in columns:
        text.load(name, "i")
    if outer:
        text.write("z = block_z()")
        with text.block(f"while z < {product([f'n{k}' for k in outer])}:"):
            if len(outer) > 1:
                text.write("rest = z")
            text.decompose("rest" if len(outer) > 1 else "z", outer)
            text.enter(outer, "_z", text.operands)
            _each_row(text, vector, constant, columns)
            text.write("z += blocks_z()")
    else:
        _each_row(text, vector, constant, columns)


def _each_row(text: Text, vector: bool, constant: list[str], columns: list[str]) -> None:
    row = text.innermost - 1
    text.write(f"i{row} = (block_y() * threads_y() + thread_y()) * each")
    text.write(f"end = min(i{row} + each, n{row})")
    with text.block(f"while i{row} < end:"):
        text.enter([row], "_row", text.operands)
        text.hoist([name for name in text.still if name not in constant])
        if vector:
            _vectors(text, ["i"], loaded=columns)
        else:
            _single(text, "x")
        text.write(f"i{row} += 1")


def _vectors(text: Text, indices: list[str], loaded: Sequence[str] = ()) -> None:
    """Write all loads at `indices`, then all of `point`, then all stores."""
    numbered = len(indices) > 1
    suffixes = [str(u) if numbered else "" for u in range(len(indices))]
    for suffix, index in zip(suffixes, indices, strict=True):
        for name in text.moving:
            if name in loaded:
                continue
            if text.access(name) is Access.UNIT:
                text.load(name, index, suffix)
            else:
                text.write(f"{name}_v{suffix} = ({text.place(name, index)},)")
    for suffix in suffixes:
        for lane in range(text.width):
            results = [f"{name}_{suffix}{'_' * numbered}{lane}" for name in text.outputs]
            text.write(f"{', '.join(results)} = {text.lane(lane, suffix)}")
    for suffix, index in zip(suffixes, indices, strict=True):
        for name in text.outputs:
            results = [f"{name}_{suffix}{'_' * numbered}{lane}" for lane in range(text.width)]
            values = ", ".join(results) + "," * (len(results) == 1)
            place = text.offset(name, index)
            text.write(f"store{text.width}({text.current[name]}, {place}, ({values}))")


def _single(text: Text, index: str) -> None:
    results = [f"{name}_value" for name in text.outputs]
    text.write(f"{', '.join(results)} = point({text.values(index)})")
    for name, result in zip(text.outputs, results, strict=True):
        text.put(name, text.offset(name, index), result)
