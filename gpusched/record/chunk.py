"""The lazy chunk: stands for an array while a program is recorded, through NEP 13 and NEP 18."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial, reduce
from itertools import pairwise, product
from operator import add, and_, floordiv, getitem, itemgetter, mul, neg, sub
from typing import Any, TypeVar
from weakref import ref

import numpy as np
from dask.utils import methodcaller
from numpy.lib.array_utils import normalize_axis_index
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import HALF, SUPPORTED
from gpusched.emit.operations import CLIP, COMBINES, operation_of
from gpusched.plan.expression import (
    Leaf,
    Node,
    UnfusibleError,
    broadcast_shapes,
    resolve_dtypes,
)
from gpusched.plan.grids import seen
from gpusched.plan.plan import Register, changed, items
from gpusched.record import complexes, parts
from gpusched.record.branches import truth
from gpusched.record.catalogue import recorded_form, why_changing, why_method_changing
from gpusched.record.record import PYTHON_SCALARS, Recorder

HANDLERS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What records a NumPy function: called with the recorder, then the call's own arguments."""

METHODS: dict[str, Callable[..., Any]] = {}
"""What records a method of an array: called with the recorder, the lazy chunk, the arguments."""

UFUNC_METHODS: dict[str, Callable[..., Any]] = {}
"""What records a method of a ufunc: called with the lazy chunk, the ufunc, then the arguments."""

Handler = TypeVar("Handler", bound=Callable[..., Any])

Box = tuple[slice, ...]
"""What is between two places along each axis of an array, both counted from its start."""


def records(*functions: Callable[..., Any], method: str = "") -> Callable[[Handler], Handler]:
    """Return a decorator of what records NumPy's functions, and a method of arrays as they do.

    The parameters of what it decorates are those that are honoured, behind the recorder.
    """

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(functions, handler))
        if method:
            METHODS[method] = handler
        return handler

    return register


def records_method(*names: str) -> Callable[[Handler], Handler]:
    """Return a decorator of what records methods of arrays alone."""

    def register(handler: Handler) -> Handler:
        METHODS.update(dict.fromkeys(names, handler))
        return handler

    return register


ITEMS = 128
"""How many items of chunks one recording may go through, in loops or by assigning to positions:
each is recorded on its own, which takes as long as computing hundreds."""

OF_INTEGERS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: add, np.subtract: sub, np.multiply: mul, np.floor_divide: floordiv,
    np.negative: neg, np.absolute: abs, np.power: pow,
}  # fmt: skip
"""Operators whose overflow NumPy reports of its scalars, which no kernel does of integers."""

FAST_POWERS = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal"}
"""Operations that NumPy's power of floats is, by the one exponent of all."""

POWERS = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal, 1: np.positive}
"""Exponents for which ``array ** scalar`` is another ufunc in NumPy."""

POWERS_OF_COMPLEX = ((int, 2), (int, -1), (float, 0.5), (int, 1), (float, 1.0))
"""Those of complex numbers, by their type: `numpy.power` of the others has other bits."""


CONVERT = methodcaller("astype")
"""Stands for the method among the calls of a function."""

_CONVERSION = {"order": "K", "casting": "unsafe", "subok": True, "copy": True}
"""The defaults of NumPy's `astype`."""


class LazyChunk(NDArrayOperatorsMixin):
    """An array that has not been computed yet.

    Functions in NumPy's language give lazy chunks; anything else computes it.

    Notes
    -----
    Lives as long as one recording, in the thread of the recording.
    """

    __slots__ = ("__weakref__", "_fresh", "_known", "_owned", "_recorder", "_scalar", "_view")

    def __init__(
        self, recorder: Recorder, node: Node, scalar: bool = False, fresh: bool = False,
        view: Callable[[], Node] | None = None,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._known = node
        self._view = view  # records what the chunk shows, a view of `_known`, once that is read
        self._scalar = scalar
        self._fresh = fresh  # no input and no view shares its memory: it may change in place
        self._owned = fresh  # nor did one when it was made: as a result it is an array of its own
        recorder.chunks.append(ref(self))

    @property
    def _node(self) -> Node:
        if self._view is not None:
            # Once it is recorded: should that fail, it is still a view.
            self._known, self._view = self._view(), None
        return self._known

    @_node.setter
    def _node(self, node: Node) -> None:
        self._known, self._view = node, None

    @property
    def held(self) -> Node:
        """What the chunk keeps: its node or, where it is a view that waits, what that is of."""
        return self._known

    @property
    def _like(self) -> Node:
        """A node of the chunk's dtype and shape."""
        return self._known if type(self._view) is Compound else self._node

    @property
    def waits(self) -> bool:
        """Whether the chunk is a view that nothing has read so far (see `viewed`)."""
        return self._view is not None

    # What is known without computing ------------------------------------------------------

    @property
    def dtype(self) -> np.dtype:
        """The dtype, as NumPy's array has it."""
        return self._like.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as NumPy's array has it."""
        return self._like.shape

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return self._like.ndim

    @property
    def size(self) -> int:
        """How many elements there are."""
        size = 1
        for length in self._like.shape:
            size *= length
        return size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._like.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<lazy chunk {self.dtype} {self.shape}>"

    # NumPy's protocols --------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        with recording(self._recorder) as recorder:
            out = kwargs.get("out")
            if method == "__call__" and out is not None and out[0] is self and len(kwargs) == 1:
                return self._update(ufunc, inputs)
            try:
                if method == "__call__" and kwargs.keys() == {"dtype"}:
                    found = elementwise(recorder, ufunc, inputs, kwargs["dtype"])
                    return noted(recorder, found, ufunc, inputs, kwargs)
                if method == "__call__" and not kwargs:
                    operator = OF_INTEGERS.get(ufunc)
                    if operator is not None and all(map(_is_integer, inputs)):
                        return compute(recorder, operator, inputs, {})
                    return noted(recorder, elementwise(recorder, ufunc, inputs), ufunc, inputs)
                joins = operation_of(ufunc) is not None and ufunc.__name__ in COMBINES
                if method in UFUNC_METHODS and joins and inputs[0] is self:
                    return honoured(UFUNC_METHODS[method], self, ufunc, *inputs[1:], **kwargs)
                raise UnfusibleError(
                    GraphBreak.OPTION, f"{method} with {', '.join(kwargs) or 'no options'}"
                )
            except UnfusibleError as reason:
                recorder.broke(ufunc.__name__, reason.reason)
                function = ufunc if method == "__call__" else getattr(ufunc, method)
                return computed(recorder, function, inputs, kwargs)

    def _update(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> LazyChunk:
        """Record an operator such as ``+=``: the same chunk, with another value from now on."""
        recorder = self._recorder
        if not self._fresh or not self.shape or inputs[0] is not self:
            recorder.stop(GraphBreak.CHANGES("changes a chunk in place"))
        try:
            result = elementwise(recorder, ufunc, inputs)
        except UnfusibleError as reason:
            recorder.stop(reason.reason.told(f"changes a chunk in place ({reason})"))
        if not isinstance(result, LazyChunk) or result.shape != self.shape:
            recorder.stop(GraphBreak.CHANGES("changes a chunk in place, with another shape"))
        if not np.can_cast(result.dtype, self.dtype, "same_kind"):
            recorder.stop(GraphBreak.CHANGES("changes a chunk in place, with another dtype"))
        self._node = recorder.cast(result._node, self.dtype)
        return self

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        with recording(self._recorder) as recorder:
            handler = HANDLERS.get(func)
            try:
                if handler is None:
                    raise UnfusibleError(GraphBreak.NO_KERNEL, "no kernel for this function")
                return noted(
                    recorder, honoured(handler, recorder, *args, **kwargs), func, args, kwargs
                )
            except UnfusibleError as reason:
                recorder.broke(func.__name__, reason.reason)
                return computed(recorder, func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is not True or self._recorder.moved:
            self._recorder.stop(GraphBreak.VALUES("converts a chunk to a NumPy array"))
        array = self._value("a copy")
        return np.array(array, dtype=dtype, copy=True)

    # Methods ------------------------------------------------------------------------------

    def __pow__(self, other: Any) -> Any:
        if self._scalar:
            return np.power(self, other)  # as NumPy's scalars do
        if type(other) in (int, float) and other in POWERS:
            kind = self.dtype.kind
            if kind == "f" or (kind == "c" and (type(other), other) in POWERS_OF_COMPLEX):
                return POWERS[other](self)
        if type(other) is int and other == 2:
            return np.square(self)
        return np.power(self, other)

    def __getitem__(self, index: Any) -> Any:
        with recording(self._recorder) as recorder:
            items = index if type(index) is tuple else (index,)
            basic = (int, slice, type(None), type(Ellipsis), np.integer)
            if not all(isinstance(i, basic) and not isinstance(i, bool) for i in items):
                try:
                    return METHODS["__getitem__"](recorder, self, items)
                except UnfusibleError as reason:
                    recorder.broke("getitem", reason.reason)
                    return compute(recorder, _getitem, (self, index), {})
            integers = sum(isinstance(i, int | np.integer) for i in items)
            full = integers == self.ndim and Ellipsis not in items and None not in items
            # The index may raise; NumPy says so best, on the array itself.
            found = viewed(self, lambda array: array[(*items, ...) if full else index],
                           repeats=True, scalar=full)  # fmt: skip
            return noted(recorder, found, getitem, (self, index))

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
               copy: bool = True) -> Any:  # fmt: skip
        """Record a conversion to another dtype."""
        with recording(self._recorder) as recorder:
            target = np.dtype(dtype)
            if copy is False and target == self.dtype and order == "K":
                return noted(recorder, self, CONVERT, (self, target))
            try:
                if order != "K" or casting != "unsafe":
                    raise UnfusibleError(GraphBreak.OPTION, "option order or casting")
                if self.dtype.kind == "c" and target.kind not in "bc":
                    node = parts.real(recorder, self._node, target)
                else:
                    node = recorder.cast(self._node, target)
                found = LazyChunk(recorder, node, scalar=self._scalar, fresh=not self._scalar)
                return noted(recorder, found, CONVERT, (self, target))
            except UnfusibleError as reason:
                recorder.broke("astype", reason.reason)
                given = {"order": order, "casting": casting, "subok": subok, "copy": copy}
                # CuPy refuses `casting` and `subok`, whatever they say.
                options = {n: v for n, v in given.items() if v != _CONVERSION[n]}
                return compute(recorder, _astype, (self, dtype), options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = METHODS.get(name)
        if method is not None:
            return self._recorded(name, method)
        if not hasattr(np.ndarray, name):
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if not callable(getattr(np.ndarray, name)):
            self._recorder.stop(GraphBreak.VALUES(f"reads the attribute {name}"))
        return self._delegate(name)

    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that is recorded, or computed for options that no kernel has."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with recording(self._recorder) as recorder:
                try:
                    found = honoured(method, recorder, self, *args, **kwargs)
                    return noted(recorder, found, methodcaller(name), (self, *args), kwargs)
                except UnfusibleError:
                    return self._delegate(name)(*args, **kwargs)

        return call

    def _delegate(self, name: str) -> Callable[..., Any]:
        """Return the method of the computed array."""

        def call(array: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(array, name)(*args, **kwargs)

        def method(*args: Any, **kwargs: Any) -> Any:
            with recording(self._recorder) as recorder:
                reason = why_method_changing(name, args, kwargs)
                if reason:
                    recorder.stop(reason)
                recorder.broke(name, GraphBreak.NO_METHOD("a method no kernel has"))
                return compute(recorder, call, (self, *args), kwargs)

        call.__name__ = name
        return method

    @property
    def T(self) -> Any:
        """The chunk with its axes reversed."""
        return np.transpose(self)

    @property
    def real(self) -> Any:
        """The real parts: the chunk itself where it is not complex."""
        return np.real(self)

    @property
    def imag(self) -> Any:
        """The imaginary parts of complex numbers."""
        if self.dtype.kind != "c":
            self._recorder.stop(GraphBreak.VALUES("reads the attribute imag of real numbers"))
        return np.imag(self)

    # What leaves the recording ------------------------------------------------------------

    def _value(self, how: str) -> np.ndarray:
        self._recorder.escaped(GraphBreak.VALUES(f"a chunk's values were asked for ({how})"))
        return self._recorder.array(self._node)

    def __bool__(self) -> bool:
        with recording(self._recorder) as recorder:
            known = recorder.answers is not None
            return truth(recorder, self._node) if known else bool(self._value("bool"))

    def __int__(self) -> int:
        return int(self._value("int"))

    def __float__(self) -> float:
        return float(self._value("float"))

    def __complex__(self) -> complex:
        return complex(self._value("complex"))

    def __index__(self) -> int:
        return self._value("index").__index__()

    def __str__(self) -> str:
        return str(self._value("str"))

    def __format__(self, spec: str) -> str:
        value = self._value("format")
        return format(value[()] if self._scalar else value, spec)

    def __iter__(self) -> Iterator[Any]:
        self._go_through(len(self))
        return map(self.__getitem__, range(len(self)))

    def _go_through(self, items: int) -> None:
        """Count items of chunks that the program goes through; stop where they are too many."""
        self._recorder.items += items
        if self._recorder.items > ITEMS:
            self._recorder.stop(GraphBreak.CHANGES("goes through many items of chunks"))

    def __contains__(self, item: Any) -> bool:
        return item in self._value("contains")

    def __setitem__(self, index: Any, value: Any) -> None:
        """Record ``chunk[index] = number``: the same chunk, with another value from now on.

        A mask chooses elements, or all of what its axes lead to. Anything else chooses positions
        along each axis, by itself. An array is written to what slices and positions choose.
        """
        with recording(self._recorder) as recorder:
            if type(value) in (LazyChunk, np.ndarray) and self._fresh and self.shape:
                return self._write(recorder, index, value)
            plain = type(value) in PYTHON_SCALARS or (
                isinstance(value, np.generic) and value.dtype in SUPPORTED
            )
            mask = self._chosen(index) if self.shape else None
            if not self._fresh or mask is None or not plain or self.dtype.kind == "c":
                recorder.stop(GraphBreak.CHANGES("assigns to elements of a chunk"))
            try:
                # As NumPy converts it, which says so where the number does not fit.
                number = recorder.cast(value, self.dtype)
            except UnfusibleError as reason:
                recorder.stop(reason.reason.told(f"assigns to elements of a chunk ({reason})"))
            self._node = recorder.apply("where", (mask._node, number, self._node), self.dtype)

    def _write(self, recorder: Recorder, index: Any, value: Any) -> None:
        """Record ``chunk[index] = array``: a part of what it shows from now on."""
        self._go_through(1)
        found = _region(index, self.shape)
        if found is None:
            recorder.stop(GraphBreak.CHANGES("assigns an array to what no slices choose"))
        region, single = found
        lengths = [each.stop - each.start for each in region]
        shape = [n for axis, n in enumerate(lengths) if axis not in single]
        try:
            # As NumPy converts it, with the errors that it reports.
            node = recorder.cast(operand(recorder, value), self.dtype)
        except UnfusibleError as reason:
            recorder.stop(reason.reason.told(f"assigns to elements of a chunk ({reason})"))
        part: Any = LazyChunk(recorder, node)
        while part.ndim > len(shape) > 0 and part.shape[0] == 1:
            part = part[0]  # As NumPy does without them.
        if part.ndim > len(shape):
            recorder.stop(GraphBreak.CHANGES("assigns an array of more axes than there are"))
        if part.shape != tuple(shape):
            part = np.broadcast_to(part if part.shape else part[None], shape)
        if single:
            part = part[tuple(None if k in single else slice(None) for k in range(self.ndim))]
        if 0 in lengths:
            return
        like = self._like
        parts = self._view.parts if type(self._view) is Compound else [
            (tuple(slice(0, n) for n in self.shape), self._node)]  # fmt: skip
        self._known = like
        self._view = Compound(recorder, [*parts, (region, part._node)], like)

    def _chosen(self, index: Any) -> Any:
        """Return a mask of what an index chooses; None if that is no mask, and not one per axis."""
        if isinstance(index, LazyChunk):
            fits = index.dtype == bool and index.shape and index.shape == self.shape[: index.ndim]
            return index[(..., *(None,) * (self.ndim - index.ndim))] if fits else None
        self._go_through(1)
        items = index if type(index) is tuple else (index,)
        before = next((k for k, item in enumerate(items) if item is Ellipsis), None)
        if before is not None:
            rest = (slice(None),) * (self.ndim - len(items) + 1)
            items = (*items[:before], *rest, *items[before + 1 :])
        lists = [list(item) for item in items if type(item) in (list, tuple)]
        single = [[item] for item in items if type(item) not in (list, tuple, slice)]
        # Two lists choose pairs of positions. A bool is a mask, and no number.
        if (
            len(lists) > 1
            or len(items) > self.ndim
            or not all(map(_is_of_integers, lists + single))
        ):
            return None
        chosen = []
        for axis, item in enumerate(items or (slice(None),)):
            along = np.zeros(self.shape[axis], bool)
            along[list(item) if type(item) is tuple else item] = True
            shape = [-1 if k == axis else 1 for k in range(self.ndim)]
            chosen.append(LazyChunk(self._recorder, self._recorder.constant(along.reshape(shape))))
        return reduce(and_, chosen)

    def __reduce__(self) -> Any:
        self._recorder.stop(GraphBreak.VALUES("pickles or copies a chunk"))


def _region(index: Any, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], frozenset[int]] | None:
    """Return what an index chooses along each axis, and where that is a position; None if more.

    Slices with gaps, masks and lists choose elements that are not side by side.
    """
    items = index if type(index) is tuple else (index,)
    before = next((k for k, item in enumerate(items) if item is Ellipsis), len(items))
    items = (*items[:before], *items[before + 1 :]) if before < len(items) else items
    if len(items) > len(shape) or not all(_is_place(item) for item in items):
        return None
    rest = (slice(None),) * (len(shape) - len(items))
    items = (*items[:before], *rest, *items[before:])
    region = []
    for item, length in zip(items, shape, strict=True):
        if type(item) is not slice:
            if not -length <= item < length:
                return None  # NumPy says so best, on the array itself.
            item = slice(int(item) % length, int(item) % length + 1)
        start, stop, step = item.indices(length)
        if step != 1:
            return None
        region.append(slice(start, max(start, stop)))
    single = frozenset(k for k, item in enumerate(items) if type(item) is not slice)
    return tuple(region), single


def _is_place(item: Any) -> bool:
    return type(item) in (slice, int) or isinstance(item, np.integer)


@dataclass
class Compound:
    """What a chunk shows that is computed part by part, each by a kernel of its own.

    Later parts are written over those before, as where a program assigns to parts of an array.

    It is computed as a whole once something reads it. Until then, what a view shows of some parts
    is computed without the others, as other operations are for what a view shows of them: of a
    gradient along chunks that `map_overlap` has given halos, that is what is between the ends. And
    what ufuncs make of it is another one, `by_parts`: a slope is computed of two gradients without
    either being written.
    """

    recorder: Recorder
    parts: list[tuple[Box, Node]]
    """Each with its values, of one dtype."""
    like: Node
    """An array of the shape, dtype and order in memory of the whole."""

    def __call__(self) -> Node:
        """Return the whole."""
        return self.recorder.assembled(self.parts, self.like)

    def shown(self, change: Callable[[np.ndarray], np.ndarray], scalar: bool) -> LazyChunk | None:
        """Return what a view shows; None if it shows it with axes in another order, or backwards.

        Parameters
        ----------
        change, scalar
            As in `viewed`.
        """
        whole = np.empty(self.like.shape, np.int8)  # which nothing reads or writes
        view = change(whole)
        found = seen(whole, view) if view.size else None
        if found is None or found.axes != tuple(range(whole.ndim)):
            return None
        places = zip(found.start, view.shape, strict=True)
        box = tuple([slice(start, start + n) for start, n in places])
        parts = self.inside(box, repeats=True)
        if len(parts) == 1:
            return LazyChunk(self.recorder, parts[0][1], scalar=scalar)
        like = _boxed(self.recorder, self.like, box)
        return LazyChunk(self.recorder, like, view=Compound(self.recorder, parts, like))

    def inside(self, box: Box, repeats: bool = False) -> list[tuple[Box, Node]]:
        """Return the parts of a box, counted from its start.

        Parameters
        ----------
        box
            Ends inside the whole.
        repeats
            Whether several boxes that are asked for may have the same elements.
        """
        found: list[tuple[Box, Node]] = []
        for index, node in reversed(self.parts):
            both = tuple([slice(max(a.start, b.start), min(a.stop, b.stop))
                          for a, b in zip(box, index, strict=True)])  # fmt: skip
            if all(i.start < i.stop for i in both):
                part = _boxed(self.recorder, node, _counted_from(both, index), repeats)
                found.insert(0, (_counted_from(both, box), part))
                if both == box:
                    break  # What is before it does not show.
        return found

    def edges(self, axis: int) -> set[int]:
        """Return where parts begin and end along an axis."""
        return {end for index, _ in self.parts for end in (index[axis].start, index[axis].stop)}


def _counted_from(box: Box, start: Box) -> Box:
    """Return a box counted from the start of another one."""
    return tuple([slice(i.start - k.start, i.stop - k.start)
                  for i, k in zip(box, start, strict=True)])  # fmt: skip


PARTS = 9
"""The most parts, each with a launch of its own, that an array is computed in: those of gradients
along two axes."""


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
    chunks = [i for i in inputs if isinstance(i, LazyChunk)]
    found = [i._view for i in chunks if type(i._view) is Compound]
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

    def inside(value: Any, box: Box) -> Any:
        if not isinstance(value, LazyChunk):
            return value
        view = value._view
        if type(view) is not Compound:
            return LazyChunk(recorder, _boxed(recorder, value._node, box), scalar=value._scalar)
        ((_, node),) = view.inside(box)
        return LazyChunk(recorder, node)

    made = [elementwise(recorder, ufunc, tuple([inside(i, box) for i in inputs])) for box in boxes]
    parts = [(box, chunk._node) for box, chunk in zip(boxes, made, strict=True)]
    return LazyChunk(recorder, like, fresh=True, view=Compound(recorder, parts, like))


def _boxed(recorder: Recorder, node: Node, box: Box, repeats: bool = False) -> Node:
    """Return what a node has in a box of what it is broadcast to; `repeats` as in `view`."""
    own = box[len(box) - len(node.shape) :]
    index = tuple([i if n > 1 else slice(n) for i, n in zip(own, node.shape, strict=True)])
    whole = all(i.indices(n) == (0, n, 1) for i, n in zip(index, node.shape, strict=True))
    return node if whole else recorder.view(node, itemgetter(index), repeats)


def viewed(chunk: LazyChunk, change: Callable[[np.ndarray], np.ndarray], repeats: bool = False,
           scalar: bool = False) -> LazyChunk:  # fmt: skip
    """Return a view of a lazy chunk.

    Parameters
    ----------
    chunk
        Of what.
    change, repeats
        As in `Recorder.view`.
    scalar
        Whether NumPy gives a scalar.

    Notes
    -----
    A view of what reductions are still to be computed for waits until something reads it, at the
    latest the end of the program, since recording it has them computed. Those that are recorded
    until then join them in one kernel, as moments of several arrays do.

    It shows the same then. Nodes do not change, and no call of a recording changes an array: ``+=``
    and assignments give another node to a chunk that no view shows, which this one is not any more.
    What a view may raise depends on shapes, and is raised at once, by a stand-in. What operations
    report, and whose calls they are, those of a view have from the ones that they are parts of
    (`Recorder.view`), whatever `numpy.errstate` says when it is read. Memory that only a waiting
    view needs is let go of early as that of others (`LazyChunk.held`).
    """
    recorder, waiting = chunk._recorder, chunk._view
    chunk._fresh = False
    if type(waiting) is Compound and (shown := waiting.shown(change, scalar)) is not None:
        return shown
    node = chunk._node
    if not recorder.reduces(node):
        return LazyChunk(recorder, recorder.view(node, change, repeats), scalar=scalar)
    change(np.broadcast_to(np.zeros((), node.dtype), node.shape))
    later = partial(recorder.view, node, change, repeats)
    return LazyChunk(recorder, node, scalar=scalar, view=later)


def _is_of_integers(items: list[Any]) -> bool:
    return bool(items) and all(type(n) is int or isinstance(n, np.integer) for n in items)


def _is_integer(value: Any) -> bool:
    """Return whether a value is an integer, as NumPy's scalars are."""
    if isinstance(value, LazyChunk):
        return value._scalar and value.dtype.kind in "iu"
    return type(value) is int or isinstance(value, np.integer)


def _getitem(array: np.ndarray, index: Any) -> Any:
    return array[index]


def _astype(array: np.ndarray, dtype: Any, **options: Any) -> Any:
    return array.astype(dtype, **options)


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Give a recorder for one call, and let it know of an error even if the program catches it."""
    recorder.check_thread()
    calls = recorder.followed
    if calls is not None:
        calls.begin()
    try:
        yield recorder
    except Exception as error:
        recorder.failed(error)
        raise
    finally:
        if calls is not None:
            calls.end()


def noted(
    recorder: Recorder,
    found: Any,
    function: Callable[..., Any],
    args: Any,
    kwargs: Any = None,
) -> Any:
    """Return what a call on arrays has given; whoever follows the calls of a function notes it."""
    if recorder.followed is not None:
        recorder.followed.note(found, function, args, kwargs or {})
    return found


@lru_cache(maxsize=512)
def signature_of(handler: Callable[..., Any]) -> inspect.Signature:
    """Return what a handler takes: exactly the arguments and options that it honours."""
    return inspect.signature(handler)


def honoured(handler: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a handler; `UnfusibleError` for an argument that it does not know.

    Parameters
    ----------
    handler
        Of a function or a method.
    first
        The recorder, or the lazy chunk of a method of a ufunc.
    """
    try:
        signature_of(handler).bind(first, *args, **kwargs)
    except TypeError as error:
        raise UnfusibleError(
            GraphBreak.OPTION, f"arguments that no kernel honours: {error}"
        ) from error
    return handler(first, *args, **kwargs)


def axis_of(axis: Any, ndim: int) -> int:
    """Return which axis one is, counted from the first; `UnfusibleError` for what is no integer."""
    if type(axis) is not int and not isinstance(axis, np.integer):
        raise UnfusibleError(GraphBreak.OPTION, f"axis {axis!r}")
    return normalize_axis_index(int(axis), ndim)


def operand(recorder: Recorder, value: Any) -> Any:
    """Return what an expression can take: a node, a Python number or a NumPy scalar."""
    if isinstance(value, LazyChunk):
        return value._node
    if type(value) in PYTHON_SCALARS or isinstance(value, np.generic):
        return value
    if type(value) is np.ndarray:
        return recorder.constant(value)
    raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(value).__name__}")


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
    nodes = [found] if found is not None else recorder.ufunc(operation, ufunc, operands)
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


def _is_complex(operand: Any) -> bool:
    return type(operand) is complex or getattr(operand, "dtype", HALF).kind == "c"


def _of_complex(recorder: Recorder, ufunc: np.ufunc, operands: tuple[Any, ...]) -> LazyChunk:
    """Return a ufunc's result for operands that are complex."""
    function = complexes.FUNCTIONS.get(ufunc.__name__)
    if function is None:
        raise UnfusibleError(GraphBreak.DTYPE, "no kernel for complex numbers")
    dtypes = resolve_dtypes(ufunc, operands)[: ufunc.nin]
    nodes = (recorder.cast(o, d) for o, d in zip(operands, dtypes, strict=True))
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


def computed(recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call one of NumPy's functions on computed arrays, if it leaves these as they are."""
    reason = why_changing(function, args, kwargs)
    if reason:
        recorder.stop(reason)
    return compute(recorder, function, args, kwargs)


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
    still = dtype == HALF or all(recorder.is_still(bound, size) for bound in operands[1:])
    if dtype.kind != "f" or still:
        return None
    arguments = tuple(recorder.cast(o, dtype) for o in operands)
    return recorder.apply("clip_by_arrays", arguments, dtype)


_BY_OPERANDS = {np.power: _power, CLIP: _clip}
"""Ufuncs whose loops look at their operands: what records those that another loop computes."""


def compute(recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any,
            copies: bool = False) -> Any:  # fmt: skip
    """Call a function that changes nothing on computed arrays; its results are lazy chunks.

    `copies` as in `Recorder.call`.
    """
    for chunk in chunks_in((args, kwargs)):
        chunk._fresh = False  # the results may be views of it
    recorder.registers_of(lazies((args, kwargs)))
    given = references(recorder, args), references(recorder, kwargs)
    found = recorder.call(function, *given, copies)
    if isinstance(found, Leaf):
        return LazyChunk(recorder, found, scalar=found.scalar)
    if type(found) in (list, tuple) and found and all(isinstance(item, Leaf) for item in found):
        return type(found)(LazyChunk(recorder, leaf, scalar=leaf.scalar) for leaf in found)
    return found


def references(recorder: Recorder, structure: Any) -> Any:
    """Return `structure` with computed registers in place of lazy chunks."""

    def reference(item: Any) -> Any:
        if not isinstance(item, LazyChunk):
            return item
        return Register(recorder.register(item._node), () if item._scalar else None)

    return changed(structure, reference)


def recorder_of(chunk: LazyChunk) -> Recorder:
    """Return what records a lazy chunk, whose attributes are NumPy's alone."""
    return chunk._recorder


def node_of(chunk: LazyChunk) -> Node:
    """Return what a lazy chunk has been computed to so far."""
    return chunk._node


def is_scalar(chunk: LazyChunk) -> bool:
    """Return whether a lazy chunk stands for a scalar of NumPy's, not for an array without axes."""
    return chunk._scalar


def was_own(chunk: LazyChunk) -> bool:
    """Return whether nothing shared memory with an array when it was made."""
    return chunk._owned


def lazies(structure: Any) -> list[Node]:
    """Return the nodes of every lazy chunk inside a structure.

    Where views wait for reductions, these are computed first, with those that the others need.
    """
    chunks = chunks_in(structure)
    if any(chunk.waits for chunk in chunks):
        chunks[0]._recorder.reduce_first([chunk.held for chunk in chunks])
    return [chunk._node for chunk in chunks]


def chunks_in(structure: Any) -> list[LazyChunk]:
    """Return every lazy chunk inside a structure."""
    return [item for item in items(structure) if isinstance(item, LazyChunk)]
