"""The lazy chunk: stands for an array while a program is recorded, through NEP 13 and NEP 18."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpusched.fusion.expression import Node, UnfusibleError, UnrecordableError
from gpusched.fusion.operations import COMBINES, operation_of
from gpusched.fusion.plan import Register
from gpusched.fusion.record import PYTHON_SCALARS, Recorder

HANDLERS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What records a NumPy function: called with the recorder, then the call's own arguments."""

METHODS: dict[str, Callable[..., Any]] = {}
"""What records a method of an array: called with the lazy chunk, then the arguments."""

POWERS = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal, 1: np.positive}
"""Exponents for which ``array ** scalar`` is another ufunc in NumPy."""


class LazyChunk(NDArrayOperatorsMixin):
    """An array that has not been computed yet.

    Functions in NumPy's language give lazy chunks; anything else computes it.

    Notes
    -----
    Lives as long as one recording, in the thread of the recording.
    """

    __slots__ = ("_fresh", "_node", "_recorder", "_scalar")

    def __init__(
        self, recorder: Recorder, node: Node, scalar: bool = False, fresh: bool = False
    ) -> None:
        self._recorder = recorder
        self._node = node
        self._scalar = scalar
        self._fresh = fresh  # no input and no view shares its memory: it may change in place

    # What is known without computing ------------------------------------------------------

    @property
    def dtype(self) -> np.dtype:
        return self._node.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._node.shape

    @property
    def ndim(self) -> int:
        return self._node.ndim

    @property
    def size(self) -> int:
        size = 1
        for length in self._node.shape:
            size *= length
        return size

    @property
    def itemsize(self) -> int:
        return self._node.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<lazy chunk {self.dtype} {self.shape}>"

    # NumPy's protocols --------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        recorder.check_thread()
        if method == "__call__" and inputs[0] is self and kwargs.get("out") == (self,):
            return self._update(ufunc, inputs)
        try:
            if method == "__call__" and not kwargs:
                return elementwise(recorder, ufunc, inputs)
            if method == "reduce" and ufunc.__name__ in COMBINES and inputs[0] is self:
                return METHODS["reduce"](self, ufunc, *inputs[1:], **kwargs)
            raise UnfusibleError(f"{method} with {', '.join(kwargs) or 'no options'}")
        except UnfusibleError as reason:
            recorder.broke(ufunc.__name__, str(reason))
            function = ufunc if method == "__call__" else getattr(ufunc, method)
            return compute(recorder, function, inputs, kwargs)

    def _update(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> LazyChunk:
        """Record an operator such as ``+=``: the same chunk, with another value from now on."""
        if not self._fresh or not self.shape:
            raise UnrecordableError("changes a chunk in place")
        result = elementwise(self._recorder, ufunc, inputs)
        if result.shape != self.shape or not np.can_cast(result.dtype, self.dtype, "same_kind"):
            raise UnrecordableError("changes a chunk in place, with another shape or dtype")
        self._node = self._recorder.cast(result._node, self.dtype)
        return self

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        recorder = self._recorder
        recorder.check_thread()
        handler = HANDLERS.get(func)
        name = func.__name__
        try:
            if handler is None:
                raise UnfusibleError("no kernel for this function")
            return handler(recorder, *args, **kwargs)
        except UnfusibleError as reason:
            recorder.broke(name, str(reason))
            return compute(recorder, func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._recorder.escaped("a chunk was converted to a NumPy array")
        array = self._recorder.array(self._node)
        return array.astype(dtype) if dtype is not None and dtype != array.dtype else array

    # Methods ------------------------------------------------------------------------------

    def __pow__(self, other: Any) -> Any:
        if type(other) in (int, float) and other in POWERS and self.dtype.kind == "f":
            return POWERS[other](self)
        if type(other) is int and other == 2:
            return np.square(self)
        return np.power(self, other)

    def __getitem__(self, index: Any) -> Any:
        recorder = self._recorder
        recorder.check_thread()
        items = index if type(index) is tuple else (index,)
        basic = (int, slice, type(None), type(Ellipsis), np.integer)
        if not all(isinstance(i, basic) and not isinstance(i, bool) for i in items):
            recorder.broke("getitem", "an index that is not a slice, an integer or None")
            return compute(recorder, _getitem, (self, index), {})
        self._fresh = False
        integers = sum(isinstance(i, int | np.integer) for i in items)
        full = integers == self.ndim and Ellipsis not in items
        # The index may raise; NumPy says so best, on the array itself.
        node = recorder.view(self._node, lambda array: array[(*items, ...) if full else index],
                             repeats=True)  # fmt: skip
        return LazyChunk(recorder, node, scalar=full)

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
               copy: bool = True) -> Any:  # fmt: skip
        target = np.dtype(dtype)
        if order != "K" or casting != "unsafe":
            return self._delegate("astype")(dtype, order, casting, subok, copy)
        try:
            return LazyChunk(self._recorder, self._recorder.cast(self._node, target))
        except UnfusibleError as reason:
            self._recorder.broke("astype", str(reason))
            return self._delegate("astype")(dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = METHODS.get(name)
        if method is not None:
            return lambda *args, **kwargs: method(self, *args, **kwargs)
        if not hasattr(np.ndarray, name):
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if not callable(getattr(np.ndarray, name)):
            self._recorder.escaped(f"attribute {name} was read")
            return getattr(self._recorder.array(self._node), name)
        return self._delegate(name)

    def _delegate(self, name: str) -> Callable[..., Any]:
        """Return the method of the computed array."""

        def call(array: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(array, name)(*args, **kwargs)

        def method(*args: Any, **kwargs: Any) -> Any:
            self._recorder.broke(name, "a method no kernel has")
            return compute(self._recorder, call, (self, *args), kwargs)

        call.__name__ = name
        return method

    @property
    def T(self) -> Any:
        return np.transpose(self)

    @property
    def real(self) -> Any:
        return self

    @property
    def flat(self) -> Any:
        return self._value("flat").flat

    # What leaves the recording ------------------------------------------------------------

    def _value(self, how: str) -> np.ndarray:
        self._recorder.escaped(f"a chunk's values were asked for ({how})")
        return self._recorder.array(self._node)

    def __bool__(self) -> bool:
        return bool(self._value("bool"))

    def __int__(self) -> int:
        return int(self._value("int"))

    def __float__(self) -> float:
        return float(self._value("float"))

    def __complex__(self) -> complex:
        return complex(self._value("complex"))

    def __index__(self) -> int:
        return self._value("index").__index__()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value("iteration"))

    def __contains__(self, item: Any) -> bool:
        return item in self._value("contains")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise UnrecordableError("assigns to elements of a chunk")

    def __reduce__(self) -> Any:
        raise UnrecordableError("pickles or copies a chunk")


def _getitem(array: np.ndarray, index: Any) -> Any:
    return array[index]


def operand(recorder: Recorder, value: Any) -> Any:
    """Return what an expression can take: a node, a Python number or a NumPy scalar."""
    if isinstance(value, LazyChunk):
        return value._node
    if type(value) in PYTHON_SCALARS or isinstance(value, np.generic):
        return value
    if type(value) is np.ndarray:
        return recorder.constant(value)
    raise UnfusibleError(f"operand of type {type(value).__name__}")


def elementwise(recorder: Recorder, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """Return a ufunc's results as lazy chunks."""
    operation = operation_of(ufunc)
    if operation is None:
        raise UnfusibleError("no kernel for this function")
    nodes = recorder.ufunc(operation, ufunc, tuple(operand(recorder, i) for i in inputs))
    chunks = tuple(LazyChunk(recorder, n, scalar=not n.shape, fresh=True) for n in nodes)
    return chunks[0] if len(chunks) == 1 else chunks


def compute(recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any,
            copies: bool = False) -> Any:  # fmt: skip
    """Call `function` on computed arrays; its results are lazy chunks again where they can be.

    `copies` as in `Recorder.call`.
    """
    if lazies(kwargs.get("out")):
        raise UnrecordableError("writes a result into a chunk")
    if kwargs.get("out") is not None:
        recorder.escaped("a call with out=")
    given = references(recorder, args), references(recorder, kwargs)
    found = recorder.call(function, *given, copies)
    if isinstance(found, Node):
        return LazyChunk(recorder, found, scalar=not found.shape)
    if isinstance(found, list) and found and all(isinstance(item, Node) for item in found):
        return tuple(LazyChunk(recorder, node, scalar=not node.shape) for node in found)
    return found


def references(recorder: Recorder, structure: Any) -> Any:
    """Return `structure` with computed registers in place of lazy chunks."""
    if isinstance(structure, LazyChunk):
        return Register(recorder.register(structure._node), structure._scalar)
    if type(structure) in (list, tuple):
        return type(structure)(references(recorder, item) for item in structure)
    if type(structure) is dict:
        return {key: references(recorder, value) for key, value in structure.items()}
    return structure


def lazies(structure: Any) -> list[Node]:
    """Return the nodes of every lazy chunk inside a structure."""
    if isinstance(structure, LazyChunk):
        return [structure._node]
    if type(structure) in (list, tuple):
        return [node for item in structure for node in lazies(item)]
    if type(structure) is dict:
        return [node for item in structure.values() for node in lazies(item)]
    return []
