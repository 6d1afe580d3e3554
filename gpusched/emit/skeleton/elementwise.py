"""Elementwise kernels: one flat loop, or rows of columns."""

from __future__ import annotations

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
    text.hoist(text.still())
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
    last = len(kernel.loops) - 1
    text.write("x = block_x() * threads_x() + thread_x()")
    if text.width > 1:
        with text.block("if x < vectors:"):
            text.write(f"i = x * {text.width}")
            _rows(text, vector=True)
    with text.block(f"if vectors == 0 and x < n{last}:"):
        _rows(text, vector=False)
    return str(text)


def _rows(text: Text, vector: bool) -> None:
    last = len(text.kernel.loops) - 1
    outer = list(range(last - 1))
    constant = [name for name, i in text.taken() if STILL.issuperset(i.access[:-1])]
    text.hoist([name for name in constant if name in text.still()])
    columns = [name for name in constant if vector and name not in text.still()]
    for name, _ in text.inputs:
        if name in columns:
            text.load(name, "i")
    if outer:
        text.write("z = block_z()")
        with text.block(f"while z < {product([f'n{k}' for k in outer])}:"):
            if len(outer) > 1:
                text.write("rest = z")
            text.decompose("rest" if len(outer) > 1 else "z", outer)
            text.move(outer, "_z", outputs=True)
            _each_row(text, vector, constant, columns)
            text.write("z += blocks_z()")
    else:
        _each_row(text, vector, constant, columns)


def _each_row(text: Text, vector: bool, constant: list[str], columns: list[str]) -> None:
    row = len(text.kernel.loops) - 2
    text.write(f"i{row} = (block_y() * threads_y() + thread_y()) * each")
    text.write(f"end = min(i{row} + each, n{row})")
    with text.block(f"while i{row} < end:"):
        text.move([row], "_row", outputs=True)
        text.hoist([name for name in text.still() if name not in constant])
        if vector:
            _vectors(text, ["i"], loaded=columns)
        else:
            _single(text, "x")
        text.write(f"i{row} += 1")


def _vectors(text: Text, indices: list[str], loaded: list[str] | None = None) -> None:
    """Write all loads at `indices`, then all of `point`, then all stores."""
    numbered = len(indices) > 1
    suffixes = [str(u) if numbered else "" for u in range(len(indices))]
    for suffix, index in zip(suffixes, indices, strict=True):
        for name, operand in text.taken():
            moving = operand.access[-1] not in STILL
            if moving and name not in (loaded or ()):
                _load(text, name, index, suffix)
    for suffix in suffixes:
        for lane in range(text.width):
            results = [f"{name}_{suffix}{'_' * numbered}{lane}" for name, _ in text.outputs]
            text.write(f"{', '.join(results)} = {text.lane(lane, suffix)}")
    for suffix, index in zip(suffixes, indices, strict=True):
        for name, output in text.outputs:
            results = [f"{name}_{suffix}{'_' * numbered}{lane}" for lane in range(text.width)]
            _store(text, name, text.place(name, output, index), results)


def _load(text: Text, name: str, index: str, suffix: str) -> None:
    operand = dict(text.inputs)[name]
    if operand.access[-1] is Access.UNIT:
        text.load(name, index, suffix)
    else:
        element = text.element(name, text.place(name, operand, index))
        text.write(f"{name}_v{suffix} = ({element},)")


def _store(text: Text, name: str, index: str, results: list[str]) -> None:
    values = ", ".join(results) + "," * (len(results) == 1)
    text.write(f"store{text.width}({text.pointers[name]}, {index}, ({values}))")


def _single(text: Text, index: str) -> None:
    results = [f"{name}_value" for name, _ in text.outputs]
    text.write(f"{', '.join(results)} = {text.single(index)}")
    for (name, output), result in zip(text.outputs, results, strict=True):
        text.put(name, text.place(name, output, index), result)
