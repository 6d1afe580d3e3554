"""The loop that calls several kernels for one tile of rows after the other, without the GIL.

It calls machine code by its address, and takes all it needs from memory: there is one loop for all
kernels, which each that has rows brings along. `gpusched.backends.tilecalls` writes the memory.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from gpusched.backends.native import TILES
from gpusched.backends.tilecalls import CONVERSION, WORDS

_WORD = ir.IntType(64)
_BLOCK = _WORD.as_pointer()
_RUN = ir.FunctionType(_WORD, [_BLOCK]).as_pointer()


def add(module: Any) -> None:
    """Add ``tiles(memory, kernels, rows, count)``, which returns the kernels' errors.

    ``memory`` begins with a `gpusched.backends.tilecalls.Call` for each kernel; ``rows`` are
    computed ``count`` at a time.
    """
    kind = ir.FunctionType(_WORD, [_BLOCK, _WORD, _WORD, _WORD])
    function = ir.Function(module, kind, TILES)
    builder = ir.IRBuilder(function.append_basic_block())
    memory, kernels, rows, count = function.args
    errors = cgutils.alloca_once_value(builder, _WORD(0))
    with cgutils.for_range_slice(builder, _WORD(0), rows, count) as (row, _):
        left = builder.sub(rows, row)
        here = builder.select(builder.icmp_signed("<", left, count), left, count)
        with cgutils.for_range(builder, kernels) as kernel:
            call = _Words(builder, memory, builder.mul(kernel.index, _WORD(WORDS)))
            found = _called(builder, memory, call, row, here)
            builder.store(builder.or_(builder.load(errors), found), errors)
    builder.ret(builder.load(errors))


class _Words:
    """Some words of the memory that follow each other."""

    def __init__(self, builder: Any, memory: Any, first: Any) -> None:
        self.builder, self.start = builder, builder.gep(memory, [first])

    def __getitem__(self, number: int) -> Any:
        return self.builder.load(self.builder.gep(self.start, [_WORD(number)]))


def _called(builder: Any, memory: Any, call: _Words, row: Any, here: Any) -> Any:
    """Call a kernel for some rows, and convert its results; return its errors."""
    run, first, arrays, steps, size, before, conversions, converted = (
        call[number] for number in range(WORDS)
    )
    block = builder.gep(memory, [first])
    builder.store(here, builder.gep(memory, [size]))
    with builder.if_then(builder.icmp_signed("!=", before, _WORD(0))):
        builder.store(row, builder.gep(memory, [before]))
    found = builder.call(builder.inttoptr(run, _RUN), [block])
    with cgutils.for_range(builder, conversions) as each:
        place = builder.add(converted, builder.mul(each.index, _WORD(CONVERSION)))
        _convert(builder, memory, _Words(builder, memory, place), row, here)
    with cgutils.for_range(builder, arrays) as array:
        place = builder.gep(block, [builder.mul(array.index, _WORD(2))])
        step = builder.load(builder.gep(memory, [builder.add(steps, array.index)]))
        moved = builder.add(builder.load(place), builder.mul(here, step))
        builder.store(moved, place)
    return found


def _convert(builder: Any, memory: Any, conversion: _Words, row: Any, here: Any) -> None:
    """Copy what was accumulated as float64 for some rows to a result of float32."""
    accumulated, result, step = (conversion[number] for number in range(CONVERSION))
    address = builder.load(builder.gep(memory, [accumulated]))
    source = builder.inttoptr(address, ir.DoubleType().as_pointer())
    target = builder.inttoptr(result, ir.FloatType().as_pointer())
    target = builder.gep(target, [builder.mul(row, step)])
    with cgutils.for_range(builder, builder.mul(here, step)) as element:
        number = builder.load(builder.gep(source, [element.index]))
        narrow = builder.fptrunc(number, ir.FloatType())
        builder.store(narrow, builder.gep(target, [element.index]))
