"""`gpusched.kernel.stencil`: a function of neighbours, called on arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import numpy as np

from gpusched.kernels import dask_arrays
from gpusched.kernels.elementwise import ElementwiseKernel, in_order, with_defaults
from gpusched.kernels.errors import KernelError
from gpusched.kernels.interior import MODES, Boundary, InteriorKernel, PaddedKernel
from gpusched.kernels.neighbours import Neighbourhood, analyse
from gpusched.kernels.notebook import Shown
from gpusched.kernels.signatures import Signature

NAMES = {"wrap": "periodic", "symmetric": "reflect", "edge": "nearest"}
"""Other names of boundaries: NumPy's and SciPy's."""


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
