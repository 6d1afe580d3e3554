"""What a streamed kernel calls on the CPU: a part in the cache, and writing it past the cache.

Stores that are marked non-temporal write whole lines to memory without reading them first: Intel 64
and IA-32 Architectures Software Developer's Manual, volume 1, 10.4.6.2.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gpusched.emit.policy import ROOM

LINE = 64
"""Bytes of a line of the cache, and of the widest vector."""

_BYTE, _NUMBER, _SIZE = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(ir.IntType(32), LINE // 4)


@intrinsic
def scratch(typing_context: Any, array: Any) -> Any:
    """Return room for one part of an array, on the stack."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = context.get_data_type(array.dtype)
        room = cgutils.alloca_once(builder, ir.ArrayType(item, ROOM))
        room.align = LINE
        found = context.make_array(array)(context, builder)
        context.populate_array(
            found,
            data=builder.bitcast(room, item.as_pointer()),
            shape=[_SIZE(ROOM)],
            strides=[_SIZE(context.get_abi_sizeof(item))],
            itemsize=_SIZE(context.get_abi_sizeof(item)),
            meminfo=None,
        )
        return found._getvalue()

    return array(array), generate


@intrinsic
def stream(typing_context: Any, target: Any, part: Any, count: Any) -> Any:
    """Write the first `count` elements of a part to `target`, whole lines past the cache."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _SIZE(context.get_abi_sizeof(context.get_data_type(target.dtype)))
        to, source = (
            builder.bitcast(
                context.make_array(kind)(context, builder, value).data, _BYTE.as_pointer()
            )
            for kind, value in zip(signature.args[:2], args[:2], strict=True)
        )
        size = builder.mul(args[2], item)
        # What lies before the first whole line, and after the last, is written as ever.
        misaligned = builder.and_(builder.neg(builder.ptrtoint(to, _SIZE)), _SIZE(LINE - 1))
        shorter = builder.icmp_unsigned("<", size, misaligned)
        head = builder.select(shorter, size, misaligned)
        body = builder.and_(builder.sub(size, head), _SIZE(-LINE))
        done = builder.add(head, body)
        _copy(builder, to, source, _SIZE(0), head)
        _stream_lines(builder, to, source, head, body)
        _copy(builder, to, source, done, builder.sub(size, done))
        return context.get_dummy_value()

    same = isinstance(target, types.Array) and target.dtype == part.dtype
    return (types.void(target, part, types.int64), generate) if same else None


def _copy(builder: Any, to: Any, source: Any, start: Any, size: Any) -> None:
    with builder.if_then(builder.icmp_unsigned("!=", size, _SIZE(0)), likely=False):
        to, source = builder.gep(to, [start]), builder.gep(source, [start])
        cgutils.raw_memcpy(builder, to, source, size, 1)


def _stream_lines(builder: Any, to: Any, source: Any, start: Any, size: Any) -> None:
    """Write `size` bytes from `start` on: whole lines of the cache."""
    with cgutils.for_range_slice(builder, _SIZE(0), size, _SIZE(LINE)) as (offset, _):
        where = builder.add(start, offset)
        line = builder.bitcast(builder.gep(source, [where]), _VECTOR.as_pointer())
        value = builder.load(line, align=1)
        place = builder.bitcast(builder.gep(to, [where]), _VECTOR.as_pointer())
        store = builder.store(value, place, align=LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))


@intrinsic
def past_line(typing_context: Any, array: Any) -> Any:
    """Return the number of elements from the start of a line of memory to an array's first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _SIZE(context.get_abi_sizeof(context.get_data_type(array.dtype)))
        address = builder.ptrtoint(context.make_array(array)(context, builder, args[0]).data, _SIZE)
        return builder.udiv(builder.and_(address, _SIZE(LINE - 1)), item)

    return types.int64(array), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, start: Any, count: Any) -> Any:
    """Ask for the lines with `count` elements from `start` on, and do not wait for them.

    `start` 0 asks for nothing: what is there is read now.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _SIZE(context.get_abi_sizeof(context.get_data_type(array.dtype)))
        first = context.make_array(array)(context, builder, args[0]).data
        memory = builder.bitcast(builder.gep(first, [args[1]]), _BYTE.as_pointer())
        ask = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _NUMBER, _NUMBER, _NUMBER]),
            "llvm.prefetch.p0i8",
        )
        # For reading; to be used soon, as near as it can be; data.
        how = (_NUMBER(0), _NUMBER(3), _NUMBER(1))
        size = builder.mul(args[2], item)
        size = builder.select(builder.icmp_signed("!=", args[1], _SIZE(0)), size, _SIZE(0))
        with cgutils.for_range_slice(builder, _SIZE(0), size, _SIZE(LINE)) as (offset, _):
            builder.call(ask, (builder.gep(memory, [offset]), *how))
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@intrinsic
def drain(typing_context: Any) -> Any:
    """Let all that has been streamed be seen by other threads before anything that follows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
