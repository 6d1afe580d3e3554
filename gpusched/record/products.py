"""Products of arrays, and their sums where one of them has all the axes: they wait for memory.

What adds up more products than it reads elements, as products of matrices do, is left to BLAS.
"""

from __future__ import annotations

import re
from functools import partial, reduce
from operator import add
from string import ascii_letters, ascii_uppercase
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.backends.libraries import called
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import HALF, SUPPORTED
from gpusched.plan.expression import UnfusibleError
from gpusched.record.catalogue import own, shown_name
from gpusched.record.chunk import LazyChunk, compute, node_of, node_operand
from gpusched.record.handlers import records
from gpusched.record.record import Recorder
from gpusched.record.reductions import reduced


@dataclass(frozen=True)
class Subscripts:
    """Which axes of operands are the same, by their labels."""

    operands: tuple[str, ...]
    result: str

    @classmethod
    def of(cls, given: str) -> Subscripts:
        """Return what `numpy.einsum` reads in a string.

        Examples
        --------
        >>> from gpusched.record.products import Subscripts
        >>> Subscripts.of("ij, j -> i")
        Subscripts(operands=('ij', 'j'), result='i')
        >>> Subscripts.of("ba,b").result
        'a'
        """
        left, arrow, right = given.replace(" ", "").partition("->")
        once = sorted(label for label in set(left) - {","} if left.count(label) == 1)
        return cls(tuple(left.split(",")), right if arrow else "".join(once))

    @classmethod
    def of_ufunc(cls, signature: str, *ndims: int) -> Subscripts:
        """Return the axes of a ufunc's operands, those that it goes through first.

        Parameters
        ----------
        signature
            Of the ufunc: names of the axes that it adds up or keeps, those with ``?`` only where an
            operand has more axes than names without.
        ndims
            How many axes the operands have.

        Raises
        ------
        UnfusibleError
            If one has fewer axes.

        Examples
        --------
        >>> from gpusched.record.products import Subscripts
        >>> Subscripts.of_ufunc("(n?,k),(k,m?)->(n?,m?)", 3, 1)
        Subscripts(operands=('Ank', 'k'), result='An')
        >>> Subscripts.of_ufunc("(n),(n)->()", 1, 2)
        Subscripts(operands=('n', 'An'), result='A')
        """
        *given, result = [each.split(",") for each in _AXES.findall(signature)]
        for names, ndim in zip(given, ndims, strict=True):
            if ndim < len(names):
                result = [name for name in result if name not in names or not name.endswith("?")]
                names[:] = [name for name in names if not name.endswith("?")]
        loops = [ndim - len(names) for names, ndim in zip(given, ndims, strict=True)]
        if min(loops) < 0:
            raise UnfusibleError(GraphBreak.OPERAND, "operands of fewer axes than are added up")
        before = [ascii_uppercase[:count][::-1] for count in (*loops, max(loops))]
        labels = ["".join(names).replace("?", "") for names in (*given, result)]
        *operands, whole = map(add, before, labels)
        return cls(tuple(operands), whole)

    def whole(self) -> str:
        """Return all labels, in the order that one operand has them.

        Where none has all, and nothing is added up, in that of the result, which has the axes of
        the first operand before those of the others.

        Raises
        ------
        UnfusibleError
            If neither has, if one has an axis twice, or if the axes of the result are in another
            order or not among these.

        Examples
        --------
        >>> from gpusched.record.products import Subscripts
        >>> Subscripts.of("j,ij->i").whole(), Subscripts.of("ij,k->ijk").whole()
        ('ij', 'ijk')
        """
        labels = dict.fromkeys("".join(self.operands))
        whole = next((each for each in self.operands if len(each) == len(labels)), "")
        if not whole and "".join(labels) == self.result:
            whole = self.result
        kept = [label for label in whole if label in self.result]
        plain = all(label.isalpha() for label in labels) and kept == list(self.result)
        if not plain or any(len(set(each)) != len(each) for each in self.operands):
            raise UnfusibleError(GraphBreak.NO_KERNEL, "products of more axes than an operand has")
        return whole


_AXES = re.compile(r"\(([^)]*)\)")


@own("portable", shown="einsum")
def _einsum_by_library(subscripts: str, *operands: Any, **options: Any) -> Any:
    return called(np.einsum, subscripts, *operands, **options)


@own("portable", shown="tensordot")
def _tensordot_by_library(a: Any, b: Any, axes: Any) -> Any:
    return called(np.tensordot, a, b, axes=axes)


@own("portable", shown="matmul")
def _matmul_by_library(a: Any, b: Any) -> Any:
    return called(np.matmul, a, b)


@records(np.einsum)
def _einsum(recorder: Recorder, subscripts: Any, /, *operands: Any, dtype: Any = None,
            optimize: Any = False) -> Any:  # fmt: skip
    """Record what `numpy.einsum` does, which reports no floating-point errors."""
    try:
        return _summed(recorder, subscripts, operands, dtype, optimize)
    except UnfusibleError as reason:
        options = {"dtype": dtype, "optimize": optimize}
        return _by_library(recorder, reason, _einsum_by_library, (subscripts, *operands), options)


@records(np.tensordot)
def _tensordot(recorder: Recorder, a: Any, b: Any, axes: Any = 2) -> Any:
    """Record what `numpy.tensordot` does along all axes of one of the arrays."""
    try:
        found = _contracted(recorder, a, b, axes)
        return LazyChunk(recorder, node_of(found), fresh=True)  # an array, also without axes
    except UnfusibleError as reason:
        return _by_library(recorder, reason, _tensordot_by_library, (a, b, axes), {})


@records(np.dot, method="dot")
def _dot(recorder: Recorder, a: Any, b: Any) -> Any:
    """Record what `numpy.dot` does along all axes of one of the arrays."""
    return _along_last(recorder, a, b, -2 if np.ndim(b) > 1 else -1)


@records(np.inner)
def _inner(recorder: Recorder, a: Any, b: Any) -> Any:
    """Record what `numpy.inner` does along all axes of one of the arrays."""
    return _along_last(recorder, a, b, -1)


def _along_last(recorder: Recorder, a: Any, b: Any, axis: int) -> Any:
    """Return products added up along the last axis of one array and an axis of the other."""
    if not np.ndim(a) or not np.ndim(b):
        raise UnfusibleError(GraphBreak.OPERAND, "products with a number")
    _must_be_computed(recorder, a, b)
    return _contracted(recorder, a, b, (-1, axis))


def _of_ufunc(ufunc: np.ufunc, /, recorder: Recorder, a: Any, b: Any) -> Any:
    """Record what a ufunc that adds up products does along all axes of one of the arrays."""
    try:
        return _multiplied(ufunc, recorder, a, b)
    except UnfusibleError as reason:
        if ufunc is not np.matmul:
            raise
        return _by_library(recorder, reason, _matmul_by_library, (a, b), {})


def _multiplied(ufunc: np.ufunc, recorder: Recorder, a: Any, b: Any) -> Any:
    wanted = _joined_dtype((a, b), None)
    _must_be_computed(recorder, a, b)
    found = Subscripts.of_ufunc(ufunc.signature or "", a.ndim, b.ndim)
    of_a, of_b = found.operands
    first, of_first = _repeated(a, of_a, b, of_b)
    second, of_second = _repeated(b, of_b, a, of_a)
    labels = Subscripts((of_first, of_second), found.result)
    return _products(recorder, labels, (first, second), wanted)


def _must_be_computed(recorder: Recorder, a: Any, b: Any) -> None:
    """Leave products to BLAS where the larger operand is there already, and need not be written.

    A chunk of 125,000 x 10 by a vector takes BLAS 2 ms, and a kernel 4.
    """
    larger = max(a, b, key=np.size)
    node = node_of(larger) if isinstance(larger, LazyChunk) else None
    if node is None or not recorder.is_to_be_computed(node):
        raise UnfusibleError(GraphBreak.NO_GAIN, "a product of arrays that are there")


def _repeated(array: Any, labels: str, other: Any, others: str) -> tuple[Any, str]:
    """Return an operand without the axes of one element along which the other one is gone through.

    The axes that a ufunc goes through have capital letters.
    """
    lengths = dict(zip(others, other.shape, strict=True))
    shown = {label for label, n in zip(labels, array.shape, strict=True)
             if label.isupper() and n == 1 != lengths.get(label, 1)}  # fmt: skip
    return _first_along(shown, array, labels) if shown else (array, labels)


def _first_along(axes: set[str], array: Any, labels: str) -> tuple[Any, str]:
    """Return what is first along some axes of an operand, and the labels of its other axes."""
    index = tuple([0 if label in axes else slice(None) for label in labels])
    return array[index], "".join([label for label in labels if label not in axes])


for _ufunc in (np.matmul, *(getattr(np, name) for name in ("vecdot", "matvec", "vecmat")
                            if hasattr(np, name))):  # fmt: skip
    records(_ufunc)(partial(_of_ufunc, _ufunc))


def _by_library(recorder: Recorder, reason: UnfusibleError, function: Any, args: tuple[Any, ...],
                options: dict[str, Any]) -> Any:  # fmt: skip
    """Record a library's call, on a GPU CUDA's, for the dtypes that it has, or raise `reason`."""
    chunks = [each for each in args if isinstance(each, LazyChunk)]
    others = any(isinstance(each, np.ndarray) for each in args)
    if others or not chunks or any(each.dtype.char not in "fdFD" for each in chunks):
        raise reason
    recorder.broke(shown_name(function) or "", reason.reason)
    return compute(recorder, function, args, options)


def _summed(recorder: Recorder, subscripts: Any, operands: tuple[Any, ...], dtype: Any,
            optimize: Any) -> Any:  # fmt: skip
    if type(subscripts) is not str or len(operands) < 2:
        raise UnfusibleError(GraphBreak.OPERAND, "subscripts that are no string, or one operand")
    wanted = _joined_dtype(operands, dtype)
    if optimize is not False and any(each.dtype != wanted for each in operands):
        # Some are joined before others then, in their own dtype: of booleans, by "or".
        raise UnfusibleError(GraphBreak.OPTION, "option optimize, and operands of several dtypes")
    with np.errstate(all="ignore"):
        return _products(recorder, Subscripts.of(subscripts), operands, wanted)


def _contracted(recorder: Recorder, a: Any, b: Any, axes: Any) -> Any:
    wanted = _joined_dtype((a, b), None)
    if a.size == b.size == 1:  # BLAS adds no zero to their product, which may be a negative one.
        raise UnfusibleError(GraphBreak.OPERAND, "operands of one element each")
    if type(axes) is int:
        axes = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    try:
        first, second = (each if type(each) in (tuple, list) else (each,) for each in axes)
        of_a, of_b = normalize_axis_tuple(first, a.ndim), normalize_axis_tuple(second, b.ndim)
    except (TypeError, ValueError) as error:  # NumPy says so best.
        raise UnfusibleError(GraphBreak.OPTION, f"axes {axes!r}") from error
    if len(of_a) != len(of_b) or a.ndim + b.ndim > len(ascii_letters):
        raise UnfusibleError(GraphBreak.OPTION, f"axes {axes!r}")
    labels = ascii_letters[: a.ndim]
    others = iter(ascii_letters[a.ndim :])
    same = dict(zip(of_b, of_a, strict=True))
    of_other = "".join(labels[same[k]] if k in same else next(others) for k in range(b.ndim))
    result = "".join(each for each in labels + of_other if (each in labels) != (each in of_other))
    return _products(recorder, Subscripts((labels, of_other), result), (a, b), wanted)


def _products(recorder: Recorder, found: Subscripts, operands: tuple[Any, ...],
              dtype: np.dtype) -> Any:  # fmt: skip
    """Return products along all axes, added up along those that are left out.

    Means that weights of one axis are given for (80 MB) take 36 ms of processor time so, not 107.
    """
    if [len(labels) for labels in found.operands] != [each.ndim for each in operands]:
        raise UnfusibleError(GraphBreak.OPERAND, "subscripts of other axes than operands have")
    lengths = {label: n for labels, each in zip(found.operands, operands, strict=True)
               for label, n in zip(labels, each.shape, strict=True)}  # fmt: skip
    shapes = [tuple([lengths[label] for label in labels]) for labels in found.operands]
    if shapes != [each.shape for each in operands] or 0 in lengths.values():
        raise UnfusibleError(GraphBreak.OPERAND, "operands of other lengths, or empty ones")
    most = max(found.operands, key=len)
    single = {label for label, n in lengths.items() if n == 1 and label not in most}
    if single and not single.issuperset(found.result):
        return _without(single, recorder, found, operands, dtype)
    whole = found.whole()
    chunks = [LazyChunk(recorder, node_operand(recorder, each)) for each in operands]
    parts = [_aligned(each, labels, whole).astype(dtype)
             for each, labels in zip(chunks, found.operands, strict=True)]  # fmt: skip
    product = reduce(np.multiply, parts)
    axes = tuple([k for k, label in enumerate(whole) if label not in found.result])
    if not axes:
        return product + dtype.type(0)  # NumPy adds them to zeros.
    return reduced(recorder, product, axes, dtype)


def _without(single: set[str], recorder: Recorder, found: Subscripts, operands: tuple[Any, ...],
             dtype: np.dtype) -> LazyChunk:  # fmt: skip
    """Return products of operands without axes of one element, as a matrix of one column has."""
    given = [_first_along(single, *each) for each in zip(operands, found.operands, strict=True)]
    left, labels = zip(*given, strict=True)
    result = "".join([label for label in found.result if label not in single])
    products = _products(recorder, Subscripts(labels, result), left, dtype)
    view = products[tuple([None if label in single else slice(None) for label in found.result])]
    return LazyChunk(recorder, node_of(view), fresh=True)


def _joined_dtype(operands: tuple[Any, ...], dtype: Any) -> np.dtype:
    """Return what NumPy multiplies operands in."""
    if not all(isinstance(each, LazyChunk) or type(each) is np.ndarray for each in operands):
        raise UnfusibleError(GraphBreak.OPERAND, "operands that are not arrays")
    kinds = [each.dtype for each in operands]
    found = np.result_type(*kinds) if dtype is None else np.dtype(dtype)
    safe = all(np.can_cast(kind, found, "safe") for kind in kinds)
    if not safe or found.kind not in "iuf" or found == HALF or found not in SUPPORTED:
        raise UnfusibleError(GraphBreak.DTYPE, f"products in {found}")
    return found


def _aligned(array: LazyChunk, labels: str, whole: str) -> Any:
    """Return an operand with all axes in their order, those that it has not of length 1."""
    order = sorted(range(len(labels)), key=lambda k: whole.index(labels[k]))
    if order != list(range(len(labels))):
        array = np.transpose(array, order)  # type: ignore[assignment]
    return array[tuple([slice(None) if label in labels else None for label in whole])]
