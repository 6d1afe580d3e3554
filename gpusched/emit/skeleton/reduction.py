"""Reductions: each thread joins its elements, the block joins its threads in a fixed order.

Where several blocks share an output element, each writes a partial result, and a second kernel
(`partials`) joins those; there are no atomic operations, so that a result depends on the arrays'
layout only.  Results are laid out as ``[split, element]``.
"""

from __future__ import annotations

import numpy as np

from gpusched.emit import accumulators, generate
from gpusched.emit.kernel import (
    BY_LINES,
    JOINED,
    JOINED_PLACE,
    MOMENTS,
    PLACE,
    Access,
    Input,
    Kernel,
    Output,
)
from gpusched.emit.policy import LONGEST
from gpusched.emit.skeleton.source_lines import (
    Text,
    cost,
    product,
    threads,
)

_OF_PARTS = {MOMENTS: JOINED, PLACE: JOINED_PLACE}
"""How partial results are joined, where that is not as values are."""


def levels(kernel: Kernel, kind: str) -> list[int]:
    """Return the loops of one kind, without the innermost."""
    return [k for k, loop in enumerate(kernel.loops[:-1]) if loop == kind]


def rows_at_once(kernel: Kernel) -> int:
    """Return how many rows a thread loads before it uses the first, in a reduction over rows."""
    if kernel.options.unroll:
        return kernel.options.unroll
    size = sum(np.dtype(i.dtype).itemsize for i in kernel.inputs)
    return 8 if 8 * size <= 32 and 8 * cost(kernel) <= LONGEST else 4


def partials(kernel: Kernel, elements: int) -> Kernel:
    """Return the kernel that joins the partial results of `kernel` for so many elements."""
    if elements == 1:
        loops: tuple[str, ...] = ("reduce",)
        read: tuple[Access, ...] = (Access.UNIT,)
        written: tuple[Access, ...] = (Access.BROADCAST,)
    else:
        loops = ("reduce", "map")
        read, written = (Access.STRIDED, Access.UNIT), (Access.BROADCAST, Access.UNIT)
    return Kernel(
        tuple(Input(o.dtype, read) for o in kernel.outputs),
        (),
        (),
        tuple(
            Output(k, o.dtype, written, _OF_PARTS.get(o.combine or "", o.combine), o.dtype)
            for k, o in enumerate(kernel.outputs)
        ),
        loops,
    )


def reduce_inner(kernel: Kernel) -> str:
    """Return the kernel where threads along x share one output element.

    The grid's x and z split the innermost loop and the other reduced ones, y goes over elements.
    """
    text = Text(kernel)
    kept, reduced = levels(kernel, "map"), levels(kernel, "reduce")
    _shared(text)
    text.write(f"elements = {product([f'n{k}' for k in kept])}", "first = block_y() * threads_y()")
    with text.block("while first < elements:"):
        text.write("element = first + thread_y()")
        _identities(text)
        with text.block("if element < elements:"):
            if kept:
                text.write("rest = element")
                text.decompose("rest", kept)
                text.enter(kept, "_element", text.inputs)
            if reduced:
                text.write("z = block_z()")
                with text.block(f"while z < {product([f'n{k}' for k in reduced])}:"):
                    text.write("part = z")
                    text.decompose("part", reduced)
                    text.enter(reduced, "_part", text.inputs)
                    _inner_loops(text, f"z * n{text.innermost} + ")
                    text.write("z += blocks_z()")
            else:
                _inner_loops(text)
        _tree(text, "thread_x()", "threads_x()", 1)
        with text.block("if thread_x() == 0 and element < elements:"):
            text.write("place = (block_z() * blocks_x() + block_x()) * elements + element")
            _finish(text, "place", "thread_y() * threads_x()")
        text.write("first += blocks_y() * threads_y()")
    return str(text)


def _inner_loops(text: Text, before: str = "") -> None:
    """Write the innermost loop: several vectors at a time, then one, then single elements.

    `before` says in source how many elements the loops outside have gone through, and adds them.
    """
    size = f"n{text.innermost}"
    text.hoist(text.still)
    text.write("start = block_x() * threads_x() + thread_x()", "step = blocks_x() * threads_x()")
    if text.width > 1:
        text.write("j = start")
        for count in sorted({text.unroll, 1}, reverse=True):
            ahead = f" + {count - 1} * step" if count > 1 else ""
            with text.block(f"while j{ahead} < vectors:"):
                _join_vectors(text, count, before)
                text.write(f"j += {f'{count} * ' if count > 1 else ''}step")
        text.write(f"i = vectors * {text.width} + start")
    else:
        text.write("i = start")
    with text.block(f"while i < {size}:"):
        _take(text, [f"point({text.values('i')})"], [f"{before}i"], "value")
        text.write("i += step")


def _join_vectors(text: Text, count: int, before: str) -> None:
    width = text.width
    indices = [f"(j + {u} * step) * {width}" if u else f"j * {width}" for u in range(count)]
    for u in range(count):
        for name in text.taken:
            if text.access(name) is Access.UNIT:
                text.load(name, indices[u], f"{u}")
    lanes = range(width)
    calls = [text.lane(lane, f"{u}") for u in range(count) for lane in lanes]
    _take(text, calls, [f"{before}{index} + {lane}" for index in indices for lane in lanes])


def reduce_outer(kernel: Kernel) -> str:
    """Return the kernel where each thread along x has an output element, and y splits the rows.

    The grid's y splits the reduced loops, z goes over the outer loops that stay.
    """
    text = Text(kernel)
    kept = levels(kernel, "map")
    columns = f"n{text.innermost}"
    _shared(text)
    text.write("x = block_x() * threads_x() + thread_x()", "z = block_z()")
    text.write(f"groups = {product([f'n{k}' for k in kept])}")
    with text.block("while z < groups:"):
        _identities(text)
        with text.block(f"if x < {columns}:"):
            if kept:
                text.write("rest = z")
                text.decompose("rest", kept)
                text.enter(kept, "_group", text.inputs)
            _row_loops(text)
        _tree(text, "thread_y()", "threads_y()", "threads_x()")
        with text.block(f"if thread_y() == 0 and x < {columns}:"):
            text.write(f"place = (block_y() * groups + z) * {columns} + x")
            _finish(text, "place", "thread_x()")
        text.write("z += blocks_z()")
    return str(text)


def _row_loops(text: Text) -> None:
    reduced = levels(text.kernel, "reduce")
    text.write(
        "row = block_y() * threads_y() + thread_y()",
        "step = blocks_y() * threads_y()",
        f"rows = {product([f'n{k}' for k in reduced])}",
    )
    for count in (rows_at_once(text.kernel), 1):
        ahead = f" + {count - 1} * step" if count > 1 else ""
        with text.block(f"while row{ahead} < rows:"):
            for u in range(count):
                text.write(f"rest = row + {u} * step" if u else "rest = row")
                before = dict(text.current)
                text.decompose("rest", reduced)
                text.enter(reduced, f"_{u}", text.inputs)
                for name in text.taken:
                    text.write(f"{name}_value{u} = {text.place(name, 'x')}")
                text.current = before
            names = [[f"{name}_value{u}" for name in text.taken] for u in range(count)]
            calls = [f"point({', '.join(each + text.parameters)})" for each in names]
            _take(text, calls, [f"row + {u} * step" if u else "row" for u in range(count)])
            text.write(f"row += {f'{count} * ' if count > 1 else ''}step")


def _shared(text: Text) -> None:
    for k, output in enumerate(text.kernel.outputs):
        text.write(f"cells{k} = cuda.shared.array({threads(text.kernel)}, {_stored(output)})")


def _stored(output: Output) -> str:
    return "boolean" if output.dtype == "bool" else output.dtype


def _identities(text: Text) -> None:
    for k, output in enumerate(text.kernel.outputs):
        text.write(f"total{k} = {generate.identity(output, output.dtype)}")


def _plain(text: Text) -> list[tuple[int, Output]]:
    """Return the outputs that are joined one by one, with their numbers."""
    return [(k, o) for k, o in enumerate(text.kernel.outputs) if o.combine not in BY_LINES]


def _of_parts(text: Text) -> tuple[int, ...]:
    """Return the first of each three outputs that join moments of parts."""
    return tuple(k for k, o in enumerate(text.kernel.outputs) if o.combine == JOINED)[::3]


def _take(text: Text, calls: list[str], places: list[str], first: str = "part") -> None:
    """Write the joining of some elements to the thread's totals, which may be wider.

    Parameters
    ----------
    text
        The kernel.
    calls
        The call of `point` for each element.
    places
        In source, how many elements there are before each, in the loops' order.
    first
        The name of what the first returns, to which the others are joined.
    """
    if (_of_parts(text) or text.kernel.joined_firsts) and len(calls) > 1:
        for call, place in zip(calls, places, strict=True):
            _take(text, [call], [place], first)
        return
    outputs = text.kernel.outputs
    for number, call in enumerate(calls):
        name = "value" if number else first
        values = ", ".join(f"{name}{k}" for k in range(len(text.outputs)))
        text.write(f"{values} = {call}")
        for k, output in _plain(text) if number else ():
            joined = generate.combine(output, f"{first}{k}", f"value{k}", output.value_dtype)
            text.write(f"{first}{k} = {joined}")
        for k in text.kernel.moments:
            if number == 0:
                text.write(f"mean{k} = {first}{k} if total{k + 3} == 0 else total{k}")
                text.write(*accumulators.start_block(k))
            text.write(*accumulators.take(k, f"{name}{k}"))
        for k in text.kernel.firsts:
            # A thread goes through its elements in the loops' order.
            with text.block(f"if {accumulators.sooner(outputs[k], f'{name}{k}', f'total{k}')}:"):
                text.write(f"total{k} = {name}{k}", f"total{k + 1} = {places[number]}")
    for k in text.kernel.joined_firsts:
        _join_first(text, k, "total{}", (f"{first}{k}", f"{first}{k + 1}"))
    for k in text.kernel.moments:
        joined_to = [f"total{k + n}" for n in range(4)]
        so_far = [f"mean{k}", *joined_to[1:3]]
        text.write(*accumulators.join_block(k, joined_to[:3], so_far, joined_to[3],
                                             str(len(calls))))  # fmt: skip
    _join_moments(text, _of_parts(text), "total{}", first + "{}")
    for k, output in _plain(text):
        wide = f"{first}{k}"
        if output.dtype != output.value_dtype:
            text.write(f"wide{k} = {output.dtype}({wide})")
            wide = f"wide{k}"
        text.write(f"total{k} = {generate.combine(output, f'total{k}', wide)}")


def _join_moments(text: Text, groups: tuple[int, ...], place: str, other: str) -> None:
    """Write the joining of moments; the counts behind them are added up afterwards."""
    for k in groups:
        places, others = ([name.format(k + n) for n in range(4)] for name in (place, other))
        # The moments of no values are zeros, which are no mean.
        with text.block(f"if {others[3]} > 0:"):
            given = ", ".join([*places, *others])
            text.write(f"{', '.join(places[:3])} = join_moments({given})")


def _join_first(text: Text, k: int, place: str, other: tuple[str, str]) -> None:
    """Write the joining of a value and its place to the first one so far."""
    found, at = place.format(k), place.format(k + 1)
    with text.block(f"if {accumulators.comes_first(text.kernel.outputs[k], *other, found, at)}:"):
        text.write(f"{found} = {other[0]}", f"{at} = {other[1]}")


def _tree(text: Text, thread: str, threads: str, stride: int | str) -> None:
    """Write the joining of totals across the threads of a block along one direction.

    The result ends in the cell of the first thread, which alone reads it afterwards, so that the
    next round may start without a barrier.
    """
    text.write("cell = thread_y() * threads_x() + thread_x()")
    text.write(*(f"cells{k}[cell] = total{k}" for k in range(len(text.outputs))))
    text.write("barrier()", f"half = {threads} // 2")
    other = "cell + half" if stride == 1 else f"cell + half * {stride}"
    with text.block("while half > 0:"):
        with text.block(f"if {thread} < half:"):
            groups = text.kernel.moments + _of_parts(text)
            _join_moments(text, groups, "cells{}[cell]", f"cells{{}}[{other}]")
            for k in text.kernel.firsts + text.kernel.joined_firsts:
                others = f"cells{k}[{other}]", f"cells{k + 1}[{other}]"
                _join_first(text, k, "cells{}[cell]", others)
            for k, output in _plain(text):
                joined = generate.combine(output, f"cells{k}[cell]", f"cells{k}[{other}]")
                text.write(f"cells{k}[cell] = {joined}")
        text.write("barrier()", "half = half // 2")


def _finish(text: Text, place: str, cell: str) -> None:
    for k, name in enumerate(text.outputs):
        text.put(name, place, f"cells{k}[{cell}]")
