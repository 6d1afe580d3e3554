"""Sums of products of arrays, where one of them has all the axes: they wait for memory.

What multiplies more than it reads, as products of matrices do, is left to BLAS.
"""

from __future__ import annotations

from functools import reduce
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gpusched.backends.libraries import called
from gpusched.breaks import GraphBreak
from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import HALF, SUPPORTED
from gpusched.plan.expression import UnfusibleError
from gpusched.record.catalogue import own, shown_name
from gpusched.record.chunk import LazyChunk, compute, node_operand
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

    def whole(self) -> str:
        """Return the labels of the operand that has all of them.

        Raises
        ------
        UnfusibleError
            If none has, if one has an axis twice, or if the axes of the result are in another order
            or not among these.
        """
        labels = set("".join(self.operands))
        whole = next((each for each in self.operands if len(each) == len(labels)), "")
        kept = [label for label in whole if label in self.result]
        plain = all(label.isalpha() for label in labels) and kept == list(self.result)
        if not plain or any(len(set(each)) != len(each) for each in self.operands):
            raise UnfusibleError(GraphBreak.NO_KERNEL, "products of more axes than an operand has")
        return whole


@own("portable", shown="einsum")
def _einsum_by_library(subscripts: str, *operands: Any, **options: Any) -> Any:
    return called(np.einsum, subscripts, *operands, **options)


@own("portable", shown="tensordot")
def _tensordot_by_library(a: Any, b: Any, axes: Any) -> Any:
    return called(np.tensordot, a, b, axes=axes)


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
        return _contracted(recorder, a, b, axes)
    except UnfusibleError as reason:
        return _by_library(recorder, reason, _tensordot_by_library, (a, b, axes), {})


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
    """Return products along the axes of one operand, added up along those that are left out.

    Means that weights of one axis are given for (80 MB) take 36 ms of processor time so, not 107.
    """
    whole = found.whole()
    if [len(labels) for labels in found.operands] != [each.ndim for each in operands]:
        raise UnfusibleError(GraphBreak.OPERAND, "subscripts of other axes than operands have")
    lengths = {label: n for labels, each in zip(found.operands, operands, strict=True)
               for label, n in zip(labels, each.shape, strict=True)}  # fmt: skip
    shapes = [tuple([lengths[label] for label in labels]) for labels in found.operands]
    if shapes != [each.shape for each in operands] or 0 in lengths.values():
        raise UnfusibleError(GraphBreak.OPERAND, "operands of other lengths, or empty ones")
    chunks = [LazyChunk(recorder, node_operand(recorder, each)) for each in operands]
    parts = [_aligned(each, labels, whole).astype(dtype)
             for each, labels in zip(chunks, found.operands, strict=True)]  # fmt: skip
    product = reduce(np.multiply, parts)
    axes = tuple([k for k, label in enumerate(whole) if label not in found.result])
    if not axes:
        return product + dtype.type(0)  # NumPy adds them to zeros.
    return reduced(recorder, product, axes, dtype)


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
