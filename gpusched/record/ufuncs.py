"""NumPy's ufuncs on lazy chunks: operators, in place too, and functions of elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, product
from operator import add, floordiv, mul, neg, sub
from typing import Any

import numpy as np

from gpusched.breaks import GraphBreak
from gpusched.emit.dtypes import HALF
from gpusched.emit.operations import CLIP, COMBINES, Operation, operation_of
from gpusched.plan.expression import (
    Leaf,
    Node,
    UnfusibleError,
    broadcast_shapes,
    resolve_dtypes,
)
from gpusched.record import complexes, parts
from gpusched.record.catalogue import recorded_form
from gpusched.record.chosen import chosen, computed_with
from gpusched.record.chunk import LazyChunk, compute, computed, operand
from gpusched.record.compound import Box, Compound, boxed
from gpusched.record.handlers import (
    HANDLERS,
    SPECIAL,
    UFUNC_METHODS,
    honoured,
    noted,
    records_special,
)
from gpusched.record.record import PYTHON_SCALARS, Recorder

OF_INTEGERS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: add, np.subtract: sub, np.multiply: mul, np.floor_divide: floordiv,
    np.negative: neg, np.absolute: abs, np.power: pow,
}  # fmt: skip
"""Operators whose overflow NumPy reports of its scalars, which no kernel does of integers."""

FAST_POWERS = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal"}
"""Operations that NumPy's power of floats is, by the one exponent of all."""

PARTS = 9
"""The most parts, each with a launch of its own, that an array is computed in: those of gradients
along two axes."""


@records_special("__array_ufunc__")
def _called(recorder: Recorder, chunk: LazyChunk, ufunc: np.ufunc, method: str,
            inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # fmt: skip
    """Record what NumPy asks of a lazy chunk that is among the operands of a ufunc."""
    if isinstance(kwargs.get("dtype"), LazyChunk):
        recorder.stop(GraphBreak.VALUES("takes an array for a dtype"))
    out = kwargs.get("out")
    if method == "__call__" and any(map(chosen, inputs)):
        found = _of_chosen(recorder, chunk, ufunc, inputs, kwargs)
        if found is not None:
            return found
    if method == "__call__" and out is not None:
        if len(out) > 1 or not kwargs.keys() <= {"out", "where"}:
            recorder.stop(GraphBreak.CHANGES(f"calls {ufunc.__name__} with out="))
        where = kwargs.get("where", True)
        return SPECIAL["out"](recorder, ufunc, inputs, {}, out[0], where)
    try:
        if method == "__call__" and ufunc in HANDLERS:
            found = honoured(HANDLERS[ufunc], recorder, *inputs, **kwargs)
            return noted(recorder, found, ufunc, inputs, kwargs)
        if method == "__call__" and kwargs.keys() <= {"dtype"}:
            operator = None if kwargs else OF_INTEGERS.get(ufunc)
            if operator is not None and all(map(_is_integer, inputs)):
                return compute(recorder, operator, inputs, {})
            found = elementwise(recorder, ufunc, inputs, kwargs.get("dtype"))
            return noted(recorder, found, ufunc, inputs, kwargs)
        if is_recorded_method(ufunc, method) and (method == "outer" or inputs[0] is chunk):
            return honoured(UFUNC_METHODS[method], inputs[0], ufunc, *inputs[1:], **kwargs)
        raise UnfusibleError(
            GraphBreak.OPTION, f"{method} with {', '.join(kwargs) or 'no options'}"
        )
    except UnfusibleError as reason:
        recorder.broke(ufunc.__name__, reason.reason)
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return computed(recorder, function, inputs, kwargs)


def is_recorded_method(ufunc: np.ufunc, method: str) -> bool:
    """Return whether a method of a ufunc is recorded, with options that its handler honours.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.ufuncs import is_recorded_method
    >>> is_recorded_method(np.add, "reduce"), is_recorded_method(np.hypot, "reduce")
    (True, False)
    >>> is_recorded_method(np.hypot, "outer"), is_recorded_method(np.exp, "outer")
    (True, False)
    """
    if method not in UFUNC_METHODS or operation_of(ufunc) is None:
        return False
    return ufunc.nin == 2 if method == "outer" else ufunc.__name__ in COMBINES


def _outer(self: Any, ufunc: np.ufunc, other: Any, dtype: Any = None) -> Any:
    """Record ``ufunc.outer``, which NumPy computes by the same call."""
    if not all(isinstance(each, LazyChunk) or type(each) is np.ndarray for each in (self, other)):
        raise UnfusibleError(GraphBreak.OPERAND, "operands that are not arrays")
    return ufunc(self[(..., *[None] * other.ndim)], other, dtype=dtype)


UFUNC_METHODS["outer"] = _outer


def _of_chosen(recorder: Recorder, chunk: LazyChunk, ufunc: np.ufunc, inputs: tuple[Any, ...],
               kwargs: dict[str, Any]) -> LazyChunk | None:  # fmt: skip
    """Record a ufunc of elements that a mask chooses; None if it is to be another way."""
    changes = bool(kwargs)
    own = kwargs.keys() == {"out"} and kwargs["out"][0] is chunk is inputs[0] and chunk._fresh
    if (changes and not own) or ufunc.nout > 1 or ufunc in _BY_OPERANDS:
        return None
    try:
        found = computed_with(recorder, lambda *given: elementwise(recorder, ufunc, given), inputs)
        if found is None or found.array.dtype.kind == "c":
            return None
        if changes and not np.can_cast(found.array.dtype, chunk.dtype, "same_kind"):
            return None
        if changes:
            found.array = recorder.cast(found.array, chunk.dtype)
    except UnfusibleError:
        return None
    if not changes:
        return LazyChunk(recorder, found.array, fresh=True, view=found)
    chunk._known, chunk._view = found.array, found
    return chunk


def _is_integer(value: Any) -> bool:
    """Return whether a value is an integer, as NumPy's scalars are, or one of two truth values."""
    if isinstance(value, LazyChunk):
        return value._scalar and value.dtype.kind in "iub"
    return isinstance(value, int | np.integer | np.bool_)


def elementwise(
    recorder: Recorder, ufunc: np.ufunc, inputs: tuple[Any, ...], dtype: Any = None
) -> Any:
    """Return a ufunc's results as lazy chunks, in that dtype if there is one."""
    form = recorded_form(ufunc)
    if form is not None and dtype is None:
        return form.record(recorder, *inputs)
    operation = operation_of(ufunc)
    if operation is None:
        raise UnfusibleError(GraphBreak.NO_KERNEL, "no kernel for this function")
    light = dtype is None and not operation.heavy
    divided = by_parts(recorder, ufunc, inputs) if light else None
    if divided is not None:
        return divided
    operands = tuple(i if type(i) is complex else operand(recorder, i) for i in inputs)
    if dtype is not None:
        operands = _converted(recorder, ufunc, operands, dtype)
    if any(map(_is_complex, operands)):
        return _of_complex(recorder, ufunc, operands)
    find = _BY_OPERANDS.get(ufunc)
    found = find(recorder, operands) if find is not None else None
    nodes = [found] if found is not None else _nodes(recorder, operation, ufunc, operands)
    chunks = tuple(LazyChunk(recorder, n, scalar=not n.shape, fresh=True) for n in nodes)
    return chunks[0] if len(chunks) == 1 else chunks


def _converted(
    recorder: Recorder, ufunc: np.ufunc, operands: tuple[Any, ...], dtype: Any
) -> tuple[Any, ...]:
    """Return a ufunc's operands as it converts them to compute in a dtype.

    NumPy looks for a loop whose results have it, and converts what the loop is given. Without the
    option it runs that very loop for what has been converted, which is asked of it here.
    """
    try:
        wanted = resolve_dtypes(ufunc, operands, np.dtype(dtype))
    except TypeError as error:  # It is none, which NumPy says best.
        raise UnfusibleError(GraphBreak.OPTION, f"dtype={dtype!r}") from error
    found = tuple(
        recorder.cast(operand, each) if isinstance(operand, Node | np.generic) else operand
        for operand, each in zip(operands, wanted, strict=False)
    )
    if resolve_dtypes(ufunc, found) != wanted:
        raise UnfusibleError(GraphBreak.OPTION, f"dtype={dtype!r}")
    return found


def _nodes(
    recorder: Recorder, operation: Operation, ufunc: np.ufunc, operands: tuple[Any, ...]
) -> list[Node]:
    """Return the nodes of a ufunc's results, in the dtypes NumPy gives."""
    dtypes = resolve_dtypes(ufunc, operands)
    inputs = dtypes[: ufunc.nin]
    _check(operation, inputs, operands)
    arguments = tuple(recorder.cast(o, d) for o, d in zip(operands, inputs, strict=True))
    return [
        recorder.apply(operation.name, arguments, dtype, k)
        for k, dtype in enumerate(dtypes[ufunc.nin :])
    ]


def _check(operation: Operation, inputs: tuple[np.dtype, ...], operands: tuple[Any, ...]) -> None:
    """Raise `UnfusibleError` where the table cannot give NumPy's result."""
    if operation.template(inputs[0]) is None:
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {inputs[0]}")
    if len({d.kind for d in inputs if d.kind in "iu"}) > 1 and operation.name != "where":
        raise UnfusibleError(GraphBreak.SIGNS, "signed and unsigned operands")
    if operation.name == "power" and inputs[0].kind == "i":
        exponent = operands[1]
        if not isinstance(exponent, int | np.integer) or exponent < 0:
            raise UnfusibleError(GraphBreak.SIGNS, "integer power whose exponent may be negative")


# Complex numbers ------------------------------------------------------------------------


def _is_complex(operand: Any) -> bool:
    return type(operand) is complex or getattr(operand, "dtype", HALF).kind == "c"


def _of_complex(recorder: Recorder, ufunc: np.ufunc, operands: tuple[Any, ...]) -> LazyChunk:
    """Return a ufunc's result for operands that are complex."""
    function, dtypes = complexes.FUNCTIONS.get(ufunc.__name__), resolve_dtypes(ufunc, operands)
    if ufunc in (np.power, np.float_power):
        base, exponent = operands
        if isinstance(exponent, Node):
            raise UnfusibleError(GraphBreak.NO_KERNEL, "complex power whose exponent is an array")
        function, operands = complexes.power_by(exponent, dtypes[-1]), (base,)
    if function is None:
        raise UnfusibleError(GraphBreak.DTYPE, "no kernel for complex numbers")
    nodes = [recorder.cast(o, d) for o, d in zip(operands, dtypes, strict=False)]
    return complex_chunk(recorder, function(*(parts_of(recorder, node) for node in nodes)))


def parts_of(
    recorder: Recorder,
    node: Node,
    divided: Callable[[Recorder, Node], parts.Parts] = parts.split,
) -> tuple[LazyChunk, LazyChunk]:
    """Return the real and the imaginary parts of a complex node."""
    first, second = (
        LazyChunk(recorder, each, scalar=not each.shape) for each in divided(recorder, node)
    )
    return first, second


def complex_chunk(recorder: Recorder, found: Any) -> LazyChunk:
    """Return the lazy chunk of a pair of parts, or one that is there."""
    if isinstance(found, LazyChunk):
        return found
    first, second = (operand(recorder, each) for each in found)
    dtype = first.dtype
    node = parts.joined(recorder, (first, recorder.cast(second, dtype)))
    return LazyChunk(recorder, node, scalar=not node.shape, fresh=True)


# Loops that look at their operands -------------------------------------------------------


def _power(recorder: Recorder, operands: tuple[Any, ...]) -> Node | None:
    """Return a power of floats that NumPy computes in another way, since it has one exponent.

    NumPy's loop looks whether all of its elements have the same one, which is seen here where it is
    a number only.
    """
    base, exponent = operands
    dtype = resolve_dtypes(np.power, operands)[0]
    if dtype.kind != "f" or dtype == HALF:
        return None  # Their loops do not look.
    if not isinstance(exponent, Node):
        name = FAST_POWERS.get(float(exponent))
        return None if name is None else recorder.apply(name, (recorder.cast(base, dtype),), dtype)
    shape = base.shape if isinstance(base, Node) else exponent.shape
    still = isinstance(exponent, Leaf) and 0 in recorder.array(exponent).strides
    if still or exponent.shape != np.broadcast_shapes(shape, exponent.shape):
        raise UnfusibleError(GraphBreak.NO_KERNEL, "power whose exponent is broadcast")
    return None


def _clip(recorder: Recorder, operands: tuple[Any, ...]) -> Node | None:
    """Return floats clipped to bounds that are not the same for all of them.

    NumPy's loop takes the sign of a bound that is zero then, and else keeps that of the zero that
    is clipped; that of float16 always does.
    """
    dtype = resolve_dtypes(CLIP, operands)[0]
    size = max(math.prod(o.shape) for o in operands if isinstance(o, Node))
    still = dtype == HALF or all(_is_still(recorder, bound, size) for bound in operands[1:])
    if dtype.kind != "f" or still:
        return None
    arguments = tuple(recorder.cast(o, dtype) for o in operands)
    return recorder.apply("clip_by_arrays", arguments, dtype)


def _is_still(recorder: Recorder, operand: Any, size: int) -> bool:
    """Return whether NumPy's loop over `size` elements reads one and the same of an operand."""
    if not isinstance(operand, Node) or not operand.shape:
        return True
    still = isinstance(operand, Leaf) and not any(recorder.contents[operand.register].strides)
    return still or math.prod(operand.shape) == 1 < size


_BY_OPERANDS = {np.power: _power, CLIP: _clip}
"""Ufuncs whose loops look at their operands: what records those that another loop computes."""


# Operands that are computed part by part ------------------------------------------------


def by_parts(recorder: Recorder, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> LazyChunk | None:
    """Return a ufunc's result in parts, those of its operands divided by each other's edges.

    Parameters
    ----------
    recorder, ufunc, inputs
        As in `elementwise`.

    Returns
    -------
    LazyChunk or None
        None where operands are computed as wholes: if none is in parts, or there would be too many;
        if others are not arrays of the same program or numbers; and if the ufunc's loops look at
        more than an element, or its result is of another dtype or shape.

    Notes
    -----
    An element is computed by the same operations as in the whole, of the same elements, so that
    it is the same: which part it is in makes a difference to views only. Edges of several parts
    divide the whole into boxes, each of which is inside one part of each operand. What takes long
    is not asked for: it would be computed again for each of those that read it.
    """
    views = [i._view for i in inputs if isinstance(i, LazyChunk)]
    found = [view for view in views if type(view) is Compound]
    if not found or ufunc.nout != 1 or ufunc in _BY_OPERANDS:
        return None
    like = found[0].like
    plain = all(isinstance(i, (LazyChunk, np.generic, *PYTHON_SCALARS)) for i in inputs)
    if not plain or any(each.like.shape != like.shape for each in found):
        return None
    nodes = tuple(i._like if isinstance(i, LazyChunk) else i for i in inputs)
    shape = broadcast_shapes(*(each.shape for each in nodes if isinstance(each, Node)))
    dtypes = resolve_dtypes(ufunc, nodes)
    if shape != like.shape or dtypes[-1] != like.dtype or dtypes[-1].kind != "f":
        return None
    edges = [sorted(set().union(*(e.edges(axis) for e in found))) for axis in range(len(shape))]
    boxes = list(product(*([slice(*ends) for ends in pairwise(along)] for along in edges)))
    if len(boxes) > PARTS or not recorder.has_room(PARTS * len(boxes)):
        return None
    values = []
    for box in boxes:
        part = elementwise(recorder, ufunc, tuple([_inside(i, box) for i in inputs]))
        values.append((box, part._node))
    return LazyChunk(recorder, like, fresh=True, view=Compound(recorder, values, like))


def _inside(operand: Any, box: Box) -> Any:
    """Return an operand in a box of the result that is inside one part of each operand."""
    if not isinstance(operand, LazyChunk):
        return operand
    recorder, view = operand._recorder, operand._view
    if type(view) is not Compound:
        return LazyChunk(recorder, boxed(recorder, operand._node, box), scalar=operand._scalar)
    ((_, node),) = view.inside(box)
    return LazyChunk(recorder, node)
