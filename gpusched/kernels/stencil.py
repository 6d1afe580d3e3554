"""`gpusched.kernel.stencil`: a function of neighbours, called on arrays, and as tasks have it."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.kernels import dask_arrays
from gpusched.kernels.eager import FrozenKernel
from gpusched.kernels.elementwise import ElementwiseKernel, ScalarKernel, in_order, with_defaults
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.neighbours import Neighbourhood, Offset, analyse
from gpusched.kernels.notebook import Shown
from gpusched.kernels.signatures import Kinds, Signature
from gpusched.kernels.typed import Typed
from gpusched.record.record import Recorder

Boundary = str | bool | int | float

MODES = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap"}
"""What dask (and SciPy) call a boundary, and what `numpy.pad` does."""
NAMES = {"wrap": "periodic", "symmetric": "reflect", "edge": "nearest"}
"""Other names of boundaries: NumPy's and SciPy's."""


@dataclass(frozen=True)
class InteriorKernel(FrozenKernel):
    """A stencil as tasks have it that get borders from other chunks.

    It reads neighbours in arrays that are larger than the result by `depth` on each side.

    Notes
    -----
    Immutable, thread-safe, and equal to any other that computes the same.
    """

    scalar: ScalarKernel
    offsets: tuple[tuple[Offset, ...] | None, ...]
    depth: tuple[int, ...]

    @property
    def __name__(self) -> str:
        return self.scalar.__name__

    def __dask_tokenize__(self) -> Any:
        return "gpusched.stencil", self.scalar, self.offsets, self.depth

    def typed(self, kinds: Kinds) -> Typed:
        """Return the operation for parameters of such dtypes."""
        self.check_count(len(kinds))
        pairs = zip(kinds, self.offsets, strict=True)
        repeated = (k for kind, found in pairs for k in [kind] * (len(found) if found else 1))
        return self.scalar.typed(tuple(repeated))

    def check_count(self, given: int) -> None:
        """Raise `KernelError` if that is not the number of the function's parameters."""
        if given != len(self.offsets):
            code = self.scalar.definition.function.__code__
            raise KernelError(
                f"{location(code)}: stencil {self.__name__} takes {len(self.offsets)} arguments; "
                f"{given} were given"
            )

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record the scalar kernel on shifted views of the lazy chunks."""
        values = []
        for value, found in zip(args, self.offsets, strict=True):
            values += [value] if found is None else [self._shifted(value, o) for o in found]
        return self.scalar.record(recorder, *values)

    def _shifted(self, value: Any, offset: Offset) -> Any:
        axes = zip(value.shape, self.depth, offset, strict=True)
        return value[tuple(slice(d + o, n - d + o) for n, d, o in axes)]


@dataclass(frozen=True)
class PaddedKernel(FrozenKernel):
    """Adds the borders that a boundary stands for, and then reads neighbours."""

    interior: InteriorKernel
    boundary: tuple[Boundary, ...]
    """Along each axis."""

    @property
    def __name__(self) -> str:
        return self.interior.__name__

    def __dask_tokenize__(self) -> Any:
        return "gpusched.stencil", self.interior, self.boundary

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record the borders, and the stencil on what has them."""
        pairs = zip(args, self.interior.offsets, strict=True)
        padded = (value if found is None else self._padded(value) for value, found in pairs)
        return self.interior.record(recorder, *padded)

    def _padded(self, value: Any) -> Any:
        for axis, (depth, boundary) in enumerate(
            zip(self.interior.depth, self.boundary, strict=True)
        ):
            if not depth:
                continue
            pad: Callable[..., Any] = np.pad
            width = [(depth, depth) if k == axis else (0, 0) for k in range(value.ndim)]
            if isinstance(boundary, str):
                value = pad(value, width, MODES[boundary])
            else:
                value = pad(value, width, "constant", constant_values=boundary)
        return value

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Compute the stencil, or record it where an argument is a lazy chunk."""
        self.check(args)
        return super().__call__(*args, **options)

    def check(self, args: tuple[Any, ...]) -> None:
        """Raise `KernelError` unless the arrays have the axes that offsets are given for."""
        self.interior.check_count(len(args))
        shapes = {
            np.shape(value)
            for value, found in zip(args, self.interior.offsets, strict=True)
            if found is not None
        }
        ndim = len(self.interior.depth)
        if any(len(shape) != ndim for shape in shapes):
            raise KernelError(
                f"stencil {self.__name__} has offsets of {ndim} axes; it was given an array of "
                f"shape {next(s for s in shapes if len(s) != ndim)}"
            )
        if len(shapes) > 1:
            raise KernelError(
                f"stencil {self.__name__} was given arrays of different shapes: {sorted(shapes)}"
            )


class StencilKernel(Shown):
    """A user's stencil.

    Parameters
    ----------
    function : callable
        Its parameters are indexed with offsets, such as ``a[-1, 0]``, or used as numbers.
    boundary : str, number or tuple of these
        What is beyond the edges; a tuple has one for each axis.
    signatures : tuple of Signature
        The declared dtype of the result; none for what numba infers.

    Notes
    -----
    Thread-safe.
    """

    def __init__(
        self, function: Callable[..., Any], boundary: Any, signatures: tuple[Signature, ...] = ()
    ) -> None:
        defaults = getattr(function, "__defaults__", None) or ()
        self._make(function, analyse(function), boundary, signatures, defaults)

    def _make(self, function: Any, found: Neighbourhood, boundary: Any,
              signatures: tuple[Signature, ...], defaults: tuple[Any, ...]) -> None:  # fmt: skip
        self._found = found
        self._points = ElementwiseKernel(found.function, signatures)
        self._defaults = defaults
        update_wrapper(self, function)
        self.python = function
        """The function as Python runs it, on whatever can be indexed with offsets: see `at`."""
        self.boundary = _boundaries(boundary, found.ndim)
        """Along each axis."""

    @property
    def depth(self) -> tuple[int, ...]:
        """How far away neighbours are, along each axis."""
        return self._found.depth

    def frozen(self) -> PaddedKernel:
        """Return the kernel as it is now."""
        interior = InteriorKernel(self._points.frozen(), self._found.offsets, self.depth)
        return PaddedKernel(interior, self.boundary)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the function's values around each element, of the shape of its arrays."""
        kernel, args = self.frozen(), self._filled(in_order(self.python, args, named))
        if any(map(dask_arrays.is_dask, args)):
            return dask_arrays.stencil(kernel, args)
        return kernel(*args)

    def _filled(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return with_defaults(args, len(self._found.offsets), self._defaults)

    def at(self, index: tuple[int, ...], *args: Any) -> Any:
        """Return the value at one place, as plain Python computes it: for pdb.

        Parameters
        ----------
        index : tuple of int
            The place.
        *args : array or number
            The kernel's arguments.

        Examples
        --------
        >>> import gpusched, numpy as np
        >>> @gpusched.kernel.stencil(boundary="nearest")
        ... def slope(a):
        ...     return (a[1] - a[-1]) / 2
        >>> float(slope.at((1,), np.array([1.0, 2.0, 4.0])))
        1.5
        """
        values = []
        for value, found in zip(self._filled(args), self._found.offsets, strict=True):
            if found is None:
                values.append(value[index] if np.ndim(value) else value)
            else:
                padded = self.frozen()._padded(np.asarray(value))
                values.append(_Neighbours(padded, index, self.depth))
        return self.python(*values)

    def __reduce__(self) -> Any:
        return _restore, (self._points, self._found.offsets, self.boundary, self._defaults)

    def __repr__(self) -> str:
        return f"<gpusched stencil {self.__name__}>"  # type: ignore[attr-defined]


def _restore(
    points: ElementwiseKernel, offsets: Any, boundary: Any, defaults: tuple[Any, ...]
) -> StencilKernel:
    found: Any = points.python
    kernel = StencilKernel.__new__(StencilKernel)

    def function(*neighbours: Any) -> Any:
        """Call the scalar function as the user's own was called."""
        numbers = [
            n for value, own in zip(neighbours, offsets, strict=True)
            for n in ([value] if own is None else [value[o] for o in own])
        ]  # fmt: skip
        return found(*numbers)

    function.__name__, function.__doc__ = found.__name__, found.__doc__
    kernel._make(function, Neighbourhood(found, offsets), boundary, points.signatures, defaults)
    return kernel


class _Neighbours:
    """An array as one element sees it."""

    def __init__(self, padded: np.ndarray, index: tuple[int, ...], depth: tuple[int, ...]) -> None:
        self._padded = padded
        self._centre = tuple(i + d for i, d in zip(index, depth, strict=True))

    def __getitem__(self, offset: Any) -> Any:
        offsets = offset if isinstance(offset, tuple) else (offset,)
        return self._padded[tuple(c + o for c, o in zip(self._centre, offsets, strict=True))]


def _boundaries(boundary: Any, ndim: int) -> tuple[Boundary, ...]:
    every = boundary if isinstance(boundary, tuple) else (boundary,) * ndim
    if len(every) != ndim:
        raise KernelError(f"{len(every)} boundaries for {ndim} axes")
    found = [NAMES.get(b, b) if isinstance(b, str) else b for b in every]
    for b in found:
        if not (b in MODES if isinstance(b, str) else isinstance(b, bool | int | float)):
            raise KernelError(f"boundary {b!r}: say {', '.join(MODES)}, or a number")
    return tuple(found)
