"""Loads and stores of up to 16 bytes by one thread: ``load4(pointer, i)``, ``store4(pointer, i, values)``.

The compiler never widens accesses by itself.  The address of element `i` must be a multiple of
the access's size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from gpusched.fusion.backends.cuda.skeleton.text import WIDTHS


def _address(context: Any, builder: Any, element: Any, pointer: Any, index: Any, width: int) -> Any:
    """Return a pointer to a vector, and its alignment in bytes."""
    data = context.get_data_type(element)
    vector = ir.VectorType(data, width)
    address = builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())
    return address, min(16, width * context.get_abi_sizeof(data))


def _load(width: int) -> Callable[..., Any]:
    @intrinsic
    def load(typing_context: Any, pointer: Any, index: Any) -> Any:
        element = pointer.dtype

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address, align = _address(context, builder, element, *args, width)
            vector = builder.load(address, align=align)
            model = context.data_model_manager[element]
            lanes = [
                model.from_data(builder, builder.extract_element(vector, ir.Constant(ir.IntType(32), k)))
                for k in range(width)
            ]
            return context.make_tuple(builder, signature.return_type, lanes)

        return types.UniTuple(element, width)(pointer, types.int64), generate

    return load


def _store(width: int) -> Callable[..., Any]:
    @intrinsic
    def store(typing_context: Any, pointer: Any, index: Any, values: Any) -> Any:
        element = pointer.dtype

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address, align = _address(context, builder, element, *args[:2], width)
            vector: Any = ir.Constant(address.type.pointee, ir.Undefined)
            model = context.data_model_manager[element]
            for k, value in enumerate(_lanes(context, builder, element, values, args[2])):
                lane = ir.Constant(ir.IntType(32), k)
                vector = builder.insert_element(vector, model.as_data(builder, value), lane)
            builder.store(vector, address, align=align)
            return context.get_dummy_value()

        return types.void(pointer, types.int64, values), generate

    return store


def _lanes(context: Any, builder: Any, element: Any, kind: Any, values: Any) -> list[Any]:
    return [
        context.cast(builder, builder.extract_value(values, k), source, element)
        for k, source in enumerate(kind)
    ]


def namespace() -> dict[str, Any]:
    """Return the functions by the names that kernels use."""
    loads = {f"load{width}": _load(width) for width in WIDTHS}
    return loads | {f"store{width}": _store(width) for width in WIDTHS}
