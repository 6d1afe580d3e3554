"""The lazy chunk: stands for an array while a program is recorded, through NEP 13 and NEP 18."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import getitem, itemgetter
from typing import Any
from weakref import ref

import numpy as np
from dask.utils import methodcaller
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import Leaf, Node, UnfusibleError, UnrecordableError
from gpusched.plan.plan import Register, changed, is_named, items, of_items
from gpusched.record import parts
from gpusched.record.branches import truth
from gpusched.record.catalogue import has, why_changing, why_method_changing
from gpusched.record.compound import Box, Compound
from gpusched.record.handlers import (
    HANDLERS,
    METHODS,
    SPECIAL,
    honoured,
    noted,
    recording,
    unusual,
)
from gpusched.record.record import PYTHON_SCALARS, Recorder
from gpusched.record.views import is_basic, reduce_first, view_of, waits_for_reductions

POWERS = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal, 1: np.positive}
"""Exponents for which ``array ** scalar`` is another ufunc in NumPy."""

POWERS_OF_COMPLEX = ((int, 2), (int, -1), (float, 0.5))
"""Those of complex numbers, by their type: the others are `numpy.power`, which has other bits."""


SEQUENCES = (list, tuple, str, bytes, bytearray)
"""Types that Python repeats when a number multiplies them."""


CONVERT = methodcaller("astype")
"""Stands for the method among the calls of a function."""

_CONVERSION = {"order": "K", "casting": "unsafe", "subok": True, "copy": True}
"""The defaults of NumPy's `astype`."""


ASKED = "?"
"""What a name ends in of an attribute that no array of NumPy's has, where a function handles that:
nothing has an attribute of the name in full."""


DEFERRED: set[type] = set()
"""Types that stand for parts of lazy chunks, and record calls of both."""


class LackingError(AttributeError):
    """NumPy's arrays have no attribute that a function asks for, nor have its scalars."""


class LazyChunk(NDArrayOperatorsMixin):
    """An array that has not been computed yet.

    Functions in NumPy's language give lazy chunks; anything else computes it.

    Notes
    -----
    Lives as long as one recording, in the thread of the recording.
    """

    __array_priority__ = 0.0  # as NumPy's arrays have it
    __slots__ = ("__weakref__", "_fresh", "_known", "_owned", "_place", "_recorder", "_scalar",
                 "_shown", "_view")  # fmt: skip

    def __init__(
        self, recorder: Recorder, node: Node, scalar: bool = False, fresh: bool = False,
        view: Callable[[], Node] | None = None,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._known = node
        self._view = view  # records what the chunk shows, a view of `_known`, once that is read
        self._scalar = scalar
        self._fresh = fresh  # nothing shares its memory but what is in `_shown`
        self._shown: list[ref[LazyChunk]] = []  # what the program has taken of it by slices
        self._place: tuple[LazyChunk, Any] | None = None  # of what it is taken, and by what slices
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
    def whole(self) -> LazyChunk:
        """What it shows by slices, or by slices of these; or itself."""
        return self if self._place is None else self._place[0].whole

    def lend(self) -> None:
        """Have something else share its memory: it, and what it shows, cannot change any more."""
        whole = self.whole
        if whole._fresh:
            self._recorder.lent.append(whole)
            whole._fresh = False

    def follow(self) -> None:
        """Have what the program has taken of it by slices show its value, its own from then on."""
        parts = [part for each in self._shown if (part := each()) is not None]
        self._shown = list(map(ref, parts))
        for part in parts:
            assert part._place is not None
            found = viewed(self, itemgetter(part._place[1]), repeats=True)
            part._known, part._view = found._known, found._view
            part.follow()
        self.whole._fresh = True  # which only such views share memory with

    @property
    def _like(self) -> Node:
        """A node of the chunk's dtype and shape."""
        return self._known if type(self._view) is Compound else self._node

    @property
    def waits(self) -> bool:
        """Whether the chunk is a view that nothing has read so far (see `viewed`)."""
        return self._view is not None

    def again(self) -> LazyChunk:
        """Return another object that stands for the same array, which neither may change."""
        self.lend()
        return self.unchanging()

    def unchanging(self) -> LazyChunk:
        """Return another object for the elements that it has now, whatever is written to it."""
        return LazyChunk(self._recorder, self._known, scalar=self._scalar, view=self._view)

    # What is known without computing ------------------------------------------------------

    @property
    def dtype(self) -> np.dtype:
        """The dtype, as NumPy's array has it."""
        known = getattr(self._view, "dtype", None)
        return self._like.dtype if known is None else known

    @property
    def __numpy_dtype__(self) -> np.dtype:
        """What NumPy takes a chunk for that is given as a dtype: of an array, it makes none."""
        if not self._scalar:
            self._recorder.stop(GraphBreak.VALUES("takes an array for a dtype"))
        return self.dtype

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
        if self._recorder.closed:
            self._recorder.stop(GraphBreak.OWN_DECIDES("formats a chunk"))
        return f"<lazy chunk {self.dtype} {self.shape}>"

    # NumPy's protocols --------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not DEFERRED.isdisjoint(map(type, inputs)):
            return NotImplemented
        with recording(self._recorder) as recorder:
            inputs, kwargs = kept(recorder, inputs), kept(recorder, kwargs)
            return SPECIAL["__array_ufunc__"](recorder, self, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not DEFERRED.isdisjoint(types):
            return NotImplemented
        with recording(self._recorder) as recorder:
            args, kwargs = kept(recorder, args), kept(recorder, kwargs)
            if kwargs.get("out") is not None and has(func, "pure"):
                given = {name: value for name, value in kwargs.items() if name != "out"}
                return SPECIAL["out"](recorder, func, args, given, kwargs["out"])
            handler = HANDLERS.get(func)
            try:
                if handler is None:
                    raise UnfusibleError(GraphBreak.NO_KERNEL, "no kernel for this function")
                asked = unusual(func, handler, kwargs)
                return noted(
                    recorder, honoured(handler, recorder, *args, **asked), func, args, kwargs
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

    def __mul__(self, other: Any) -> Any:
        return super().__mul__(self._factor(other))

    def __rmul__(self, other: Any) -> Any:
        return super().__rmul__(self._before(self._factor(other)))

    def __iadd__(self, other: Any) -> Any:
        return self._updated(np.add, other)

    def __isub__(self, other: Any) -> Any:
        return self._updated(np.subtract, other)

    def __imul__(self, other: Any) -> Any:
        return self._updated(np.multiply, self._factor(other))

    def __itruediv__(self, other: Any) -> Any:
        return self._updated(np.true_divide, other)

    def __radd__(self, other: Any) -> Any:
        return super().__radd__(self._before(other))

    def __rsub__(self, other: Any) -> Any:
        return super().__rsub__(self._before(other))

    def __rtruediv__(self, other: Any) -> Any:
        return super().__rtruediv__(self._before(other))

    def __rpow__(self, other: Any) -> Any:
        return super().__rpow__(self._before(other))

    def __eq__(self, other: Any) -> Any:
        return super().__eq__(self._compared(other))

    def __ne__(self, other: Any) -> Any:
        return super().__ne__(self._compared(other))

    def __hash__(self) -> int:  # noqa: PLE0309
        # Arrays have no hash, scalars that of their value.
        self._recorder.stop(GraphBreak.VALUES("hashes a chunk"))

    def _updated(self, operation: Callable[..., Any], other: Any) -> Any:
        """Return what an operator such as ``+=`` gives: another number, or the array itself."""
        return operation(self, other, **({} if self._scalar else {"out": (self,)}))

    def _before(self, other: Any) -> Any:
        """Return an operand: Python computes with its complex numbers and NumPy's floats."""
        if self._scalar and type(other) is complex and self.dtype == np.float64:
            self._recorder.stop(GraphBreak.VALUES("has Python compute with a chunk's number"))
        return other

    def _compared(self, other: Any) -> Any:
        """Return an operand of ``==``: Python compares numbers with anything else but numbers."""
        numbers = LazyChunk | int | float | complex | np.number | np.bool_ | np.ndarray
        if self._scalar and not isinstance(other, numbers | list | tuple):
            self._recorder.stop(GraphBreak.VALUES("compares a chunk's number with no number"))
        return self._before(other)

    def _factor(self, other: Any) -> Any:
        """Return an operand of ``*``: scalars of NumPy's repeat sequences, and arrays do not."""
        if self._scalar and isinstance(other, SEQUENCES):
            self._recorder.stop(GraphBreak.VALUES("multiplies a sequence by a chunk's number"))
        return other

    def __getitem__(self, index: Any) -> Any:
        with recording(self._recorder) as recorder:
            index = kept(recorder, index)
            items = index if type(index) is tuple else (index,)
            if not is_basic(items):
                try:
                    return SPECIAL["__getitem__"](recorder, self, items)
                except UnfusibleError as reason:
                    recorder.broke("getitem", reason.reason)
                    return compute(recorder, getitem, (self, index), {})
            integers = sum(isinstance(i, int | np.integer) for i in items)
            full = integers == self.ndim and Ellipsis not in items and None not in items
            own = self.whole._fresh and recorder.closed and recorder.depth == 1
            # The index may raise; NumPy says so best, on the array itself.
            found = viewed(self, lambda array: array[(*items, ...) if full else index],
                           repeats=True, scalar=full)  # fmt: skip
            if own:
                self.whole._fresh = True
                if not full:
                    self._shown.append(ref(found))
                    found._place = self, index
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
                return compute(recorder, CONVERT, (self, dtype), options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = METHODS.get(name)
        if method is not None:
            return self._recorded(name, method)
        if name.endswith(ASKED):
            name = name.removesuffix(ASKED)
            raise LackingError(f"'numpy.ndarray' object has no attribute {name!r}")
        if not hasattr(np.ndarray, name):
            if self._scalar and hasattr(self.dtype.type, name):
                self._recorder.stop(GraphBreak.VALUES(f"reads the attribute {name}"))
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if not callable(getattr(np.ndarray, name)):
            self._recorder.stop(GraphBreak.VALUES(f"reads the attribute {name}"))
        return self._delegate(name)

    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that is recorded, or computed for options that no kernel has."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with recording(self._recorder) as recorder:
                args, kwargs = kept(recorder, args), kept(recorder, kwargs)
                try:
                    found = honoured(method, recorder, self, *args, **kwargs)
                    return noted(recorder, found, methodcaller(name), (self, *args), kwargs)
                except UnfusibleError:
                    return self._delegate(name)(*args, **kwargs)

        return call

    def _delegate(self, name: str) -> Callable[..., Any]:
        """Return the method of the computed array."""

        def method(*args: Any, **kwargs: Any) -> Any:
            with recording(self._recorder) as recorder:
                reason = why_method_changing(name, args, kwargs)
                if reason:
                    recorder.stop(reason)
                recorder.broke(name, GraphBreak.NO_METHOD("a method no kernel has"))
                return compute(recorder, methodcaller(name), (self, *args), kwargs)

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
        self._recorder.escaped(GraphBreak.VALUES(f"asks for a chunk's values ({how})"))
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
        self._recorder.go_through(len(self))
        return map(self.__getitem__, range(len(self)))

    def __round__(self, ndigits: int | None = None) -> Any:
        found: Any = self._value("round")[()]
        return round(found, ndigits)

    def __contains__(self, item: Any) -> bool:
        return item in self._value("contains")

    def __setitem__(self, index: Any, value: Any) -> None:
        with recording(self._recorder) as recorder:
            SPECIAL["__setitem__"](recorder, self, kept(recorder, index), kept(recorder, value))

    def __reduce__(self) -> Any:
        self._recorder.stop(GraphBreak.VALUES("pickles or copies a chunk"))


def kept(recorder: Recorder, structure: Any) -> Any:
    """Return what a function of the user's has given a call, for a plan to keep.

    Arrays of its own, and lists, it may change afterwards.
    """
    return changed(structure, _copied) if recorder.closed else structure


def _copied(item: Any) -> Any:
    if type(item) in DEFERRED:
        raise UnrecordableError(
            GraphBreak.OPERAND("computes with a lane and what is not of a lane")
        )
    if is_named(item):  # NumPy takes these for tuples.
        return changed(tuple(item), _copied)
    return item.copy() if type(item) is np.ndarray else item


def viewed(chunk: LazyChunk, change: Callable[[np.ndarray], np.ndarray], repeats: bool = False,
           scalar: bool = False) -> LazyChunk:  # fmt: skip
    """Return a view of a lazy chunk.

    Parameters
    ----------
    chunk
        Of what.
    change, repeats
        As in `gpusched.record.views.view_of`.
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
    (`view_of`), whatever `numpy.errstate` says when it is read. Memory that only a waiting
    view needs is let go of early as that of others (`LazyChunk.held`).
    """
    recorder = chunk._recorder
    chunk.lend()
    shown = chunk._view.shown(change) if type(chunk._view) is Compound else None
    if isinstance(shown, Compound):
        return LazyChunk(recorder, shown.like, view=shown)
    if shown is not None:
        return LazyChunk(recorder, shown, scalar=scalar)
    node = chunk._node
    if not waits_for_reductions(recorder, node):
        return LazyChunk(recorder, view_of(recorder, node, change, repeats), scalar=scalar)
    change(np.broadcast_to(np.zeros((), node.dtype), node.shape))
    later = partial(view_of, recorder, node, change, repeats)
    return LazyChunk(recorder, node, scalar=scalar, view=later)


def parts_within(chunk: LazyChunk, box: Box) -> list[tuple[Box, Node]]:
    """Return the parts of a chunk that is in a box of another array; itself if it has none."""
    if type(chunk._view) is not Compound:
        return [(box, chunk._node)]
    return [
        (tuple([slice(i.start + k.start, i.stop + k.start)
                for i, k in zip(index, box, strict=True)]), node)
        for index, node in chunk._view.parts
    ]  # fmt: skip


def operand(recorder: Recorder, value: Any) -> Any:
    """Return what an expression can take: a node, a Python number or a NumPy scalar."""
    if isinstance(value, LazyChunk):
        return value._node
    if type(value) in PYTHON_SCALARS or isinstance(value, np.generic):
        return value
    if type(value) is np.ndarray:
        return recorder.constant(value)
    if type(value) in (list, tuple) and all(type(each) in PYTHON_SCALARS for each in items(value)):
        return recorder.constant(np.asarray(value))
    raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(value).__name__}")


def node_operand(recorder: Recorder, value: Any) -> Node:
    """Return what an expression can take of a value that is not a number."""
    found = operand(recorder, value)
    if not isinstance(found, Node):
        raise UnfusibleError(GraphBreak.OPERAND, f"operand of type {type(value).__name__}")
    return found


def computed(recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call one of NumPy's functions on computed arrays, if it leaves these as they are."""
    reason = why_changing(function, args, kwargs)
    if reason:
        recorder.stop(reason)
    if recorder.closed and any(map(_may_hold_chunks, items((args, kwargs)))):
        name = getattr(function, "__name__", repr(function))
        recorder.stop(GraphBreak.OWN_ARGUMENTS(f"calls {name} with a function"))
    return compute(recorder, function, args, kwargs)


def _may_hold_chunks(item: Any) -> bool:
    """Return whether a value is a function that may read lazy chunks, which a plan may not keep.

    The next chunk's call of it would be given what was recorded of this one.
    """
    known = isinstance(item, type | np.ufunc) or has(item, "pure")
    return callable(item) and not known


def compute(recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any,
            copies: bool = False) -> Any:  # fmt: skip
    """Call a function that changes nothing on computed arrays; its results are lazy chunks.

    `copies` as in `Recorder.call`.
    """
    fresh = has(function, "fresh")
    if not fresh:
        for chunk in chunks_in((args, kwargs)):
            chunk.lend()  # The results may be views of it.
    recorder.registers_of(lazies((args, kwargs)))
    given = references(recorder, args), references(recorder, kwargs)
    found = recorder.call(function, *given, copies)
    if isinstance(found, Leaf):
        return LazyChunk(recorder, found, scalar=found.scalar, fresh=fresh and not found.scalar)
    several = type(found) in (list, tuple) or is_named(found)
    if several and found and all(isinstance(item, Leaf) for item in found):
        leaves = [LazyChunk(recorder, leaf, scalar=leaf.scalar) for leaf in found]
        return of_items(found, leaves)
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


def seen_by_others(structure: Any) -> bool:
    """Have no lazy chunk inside a structure change in place from now on; return if there is one."""
    found = chunks_in(structure)
    for chunk in found:
        chunk.lend()
    return bool(found)


def lazies(structure: Any) -> list[Node]:
    """Return the nodes of every lazy chunk inside a structure.

    Where views wait for reductions, these are computed first, with those that the others need.
    """
    chunks = chunks_in(structure)
    if any(chunk.waits for chunk in chunks):
        reduce_first(chunks[0]._recorder, [chunk.held for chunk in chunks])
    return [chunk._node for chunk in chunks]


def chunks_in(structure: Any) -> list[LazyChunk]:
    """Return every lazy chunk inside a structure."""
    return [item for item in items(structure) if isinstance(item, LazyChunk)]
