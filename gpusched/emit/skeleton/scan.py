"""Scans: each value joined with all before it, in order, by a function that need not commute.

Along the last axis a block scans tile after tile, and carries the total from one to the next. Rows
that are long go to several blocks: one launch leaves the total of each block's part, a second one
scans those, and a third one scans the parts, each with what comes before it (G. E. Blelloch,
"Prefix sums and their applications", 1990). Along another axis each thread has a column.
"""

from __future__ import annotations

import numpy as np

from gpusched.emit import generate
from gpusched.emit.kernel import Output
from gpusched.emit.policy import THREADS, TILE_VALUES

TILE = THREADS * TILE_VALUES
"""Values of a tile in a block of all threads."""


class _Text:
    """Lines of a scan over values of one dtype, joined by an operation."""

    def __init__(self, operation: str, dtype: str) -> None:
        self.output = Output(0, dtype, (), operation, dtype)
        self.boolean = dtype == "bool"

    def join(self, first: str, second: str) -> str:
        return generate.combine(self.output, first, second)

    def read(self, name: str, index: str) -> str:
        return f"load1({name}, {index})[0]" if self.boolean else f"{name}[{index}]"

    def put(self, name: str, index: str, value: str) -> str:
        if self.boolean:
            return f"store1({name}, {index}, ({value},))"
        return f"{name}[{index}] = {value}"


def rows(operation: str, dtype: str) -> str:
    """Return the kernel that scans the last axis.

    `out` gets the scanned values, or with ``writes`` 0 the total of each block's part.
    """
    text = _Text(operation, dtype)
    neutral = generate.literal(generate.identity_value(operation, np.dtype(dtype)), dtype)
    tile = [*_tile(text, neutral), *_totals(text), *_joined(text), *_next(text)]
    return "\n".join([
        "def kernel(a, carries, out, n, rows, parts, tiles, carried, writes):",
        f"    cells = cuda.shared.array({THREADS}, {'boolean' if text.boolean else dtype})",
        "    thread = thread_x()",
        "    part = block_x()",
        "    row = block_y()",
        "    while row < rows:",
        f"        start = part * tiles * threads_x() * {TILE_VALUES}",
        f"        carry = {neutral}",
        "        preceded = carried != 0 and part > 0",
        "        if preceded:",
        f"            carry = {text.read('carries', 'row * parts + part - 1')}",
        "        tile = 0",
        "        while tile < tiles and start < n:",
        *(f"            {line}" for line in tile),
        "        if writes == 0 and thread == 0:",
        f"            {text.put('out', 'row * parts + part', 'carry')}",
        "        row += blocks_y()",
    ])  # fmt: skip


def _tile(text: _Text, neutral: str) -> list[str]:
    """Return lines by which each thread reads its values and joins them with each other."""
    lines = [f"first = start + thread * {TILE_VALUES}"]
    for k in range(TILE_VALUES):
        read = text.read("a", f"row * n + first + {k}")
        lines += [f"value{k} = {neutral}", f"if first + {k} < n:", f"    value{k} = {read}"]
    pairs = ((f"value{k - 1}", f"value{k}") for k in range(1, TILE_VALUES))
    joined = [f"{later} = {text.join(earlier, later)}" for earlier, later in pairs]
    return [*lines, *joined]


def _totals(text: _Text) -> list[str]:
    """Return lines that leave in each thread's cell what it and those before it come to."""
    return [
        f"total = value{TILE_VALUES - 1}",
        "cells[thread] = total",
        "barrier()",
        "step = 1",
        "while step < threads_x():",
        "    if thread >= step:",
        f"        total = {text.join('cells[thread - step]', 'total')}",
        "    barrier()",
        "    cells[thread] = total",
        "    barrier()",
        "    step = step * 2",
    ]


def _joined(text: _Text) -> list[str]:
    """Return lines that join each thread's values with what comes before, and write them."""
    lines = [
        "before = carry",
        "if thread > 0:",
        "    before = cells[thread - 1]",
        "    if preceded:",
        f"        before = {text.join('carry', 'before')}",
        "if preceded or thread > 0:",
        *(f"    value{k} = {text.join('before', f'value{k}')}" for k in range(TILE_VALUES)),
    ]
    for k in range(TILE_VALUES):
        put = text.put("out", f"row * n + first + {k}", f"value{k}")
        lines += [f"if writes != 0 and first + {k} < n:", f"    {put}"]
    return lines


def _next(text: _Text) -> list[str]:
    """Return lines that carry a tile's total to the next."""
    return [
        "whole = cells[threads_x() - 1]",
        "if preceded:",
        f"    whole = {text.join('carry', 'whole')}",
        "carry = whole",
        "preceded = True",
        "barrier()",
        f"start += threads_x() * {TILE_VALUES}",
        "tile += 1",
    ]


def columns(operation: str, dtype: str) -> str:
    """Return the kernel that scans an axis with `after` values between its neighbours."""
    text = _Text(operation, dtype)
    return "\n".join([
        "def kernel(a, out, n, columns, after):",
        "    column = block_x() * threads_x() + thread_x()",
        "    while column < columns:",
        "        place = column // after * n * after + column % after",
        f"        total = {text.read('a', 'place')}",
        f"        {text.put('out', 'place', 'total')}",
        "        k = 1",
        "        while k < n:",
        "            place += after",
        f"            total = {text.join('total', text.read('a', 'place'))}",
        f"            {text.put('out', 'place', 'total')}",
        "            k += 1",
        "        column += blocks_x() * threads_x()",
    ])  # fmt: skip
