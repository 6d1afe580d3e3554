"""Loads and stores of up to 16 bytes: ``load4(pointer, i)``, ``store4(pointer, i, values)``.

The compiler never widens accesses by itself.  The address of element `i` must be a multiple of
the access's size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from gpusched.backends.cuda.numba_cuda import intrinsic, types
from gpusched.emit.skeleton.source_lines import WIDTHS


class _Access:
    """The layout in memory of a vector of some elements.

    Bytes and 16-bit numbers are moved as 32-bit words, taken apart by shifts: the compiler splits
    longer vectors of theirs into smaller accesses. Complex numbers are moved as their parts.
    """

    def __init__(self, context: Any, element: Any, width: int) -> None:
        data = context.get_data_type(element)
        size = context.get_abi_sizeof(data)
        self.data = data
        self.bits = 8 * size
        self.width = width
        self.align = min(16, width * size)
        self.packed = size < 4 <= width * size
        self.parts = len(data.elements) if isinstance(data, ir.LiteralStructType) else 1
        words = ir.VectorType(ir.IntType(32), width * size // 4)
        lane = data.elements[0] if self.parts > 1 else data
        self.memory = words if self.packed else ir.VectorType(lane, width * self.parts)

    def address(self, builder: Any, pointer: Any, index: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [index]), self.memory.as_pointer())

    def place(self, number: int) -> tuple[Any, Any]:
        """Return the word and the shift of one element."""
        word, bit = divmod(number * self.bits, 32)
        return _lane(word), ir.Constant(ir.IntType(32), bit)

    def load(self, builder: Any, pointer: Any, index: Any) -> list[Any]:
        found = builder.load(self.address(builder, pointer, index), align=self.align)
        if self.parts > 1:
            return [self._joined(builder, found, k * self.parts) for k in range(self.width)]
        if not self.packed:
            return [builder.extract_element(found, _lane(k)) for k in range(self.width)]
        places = [self.place(k) for k in range(self.width)]
        words = [builder.lshr(builder.extract_element(found, w), b) for w, b in places]
        return [builder.trunc(word, self.data) for word in words]

    def _joined(self, builder: Any, vector: Any, first: int) -> Any:
        """Return the number whose parts are in some lanes."""
        found: Any = ir.Constant(self.data, ir.Undefined)
        for part in range(self.parts):
            lane = builder.extract_element(vector, _lane(first + part))
            found = builder.insert_value(found, lane, part)
        return found

    def store(self, builder: Any, pointer: Any, index: Any, values: list[Any]) -> None:
        found: Any = ir.Constant(self.memory, ir.Undefined)
        if self.packed:
            words = [ir.Constant(ir.IntType(32), 0)] * self.memory.count
            for number, value in enumerate(values):
                word, bit = self.place(number)
                wide = builder.shl(builder.zext(value, ir.IntType(32)), bit)
                words[word.constant] = builder.or_(words[word.constant], wide)
            values = words
        if self.parts > 1:
            values = [builder.extract_value(v, k) for v in values for k in range(self.parts)]
        for number, value in enumerate(values):
            found = builder.insert_element(found, value, _lane(number))
        builder.store(found, self.address(builder, pointer, index), align=self.align)


def _lane(number: int) -> Any:
    return ir.Constant(ir.IntType(32), number)


def _load(width: int) -> Callable[..., Any]:
    @intrinsic
    def load(typing_context: Any, pointer: Any, index: Any) -> Any:
        element = pointer.dtype

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            model = context.data_model_manager[element]
            data = _Access(context, element, width).load(builder, *args)
            lanes = [model.from_data(builder, value) for value in data]
            return context.make_tuple(builder, signature.return_type, lanes)

        return types.UniTuple(element, width)(pointer, types.int64), generate

    return load


def _store(width: int) -> Callable[..., Any]:
    @intrinsic
    def store(typing_context: Any, pointer: Any, index: Any, values: Any) -> Any:
        element = pointer.dtype

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            model = context.data_model_manager[element]
            lanes = _lanes(context, builder, element, values, args[2])
            data = [model.as_data(builder, value) for value in lanes]
            _Access(context, element, width).store(builder, args[0], args[1], data)
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
