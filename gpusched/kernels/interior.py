"""Stencils as tasks have them: on arrays that have their borders already, or that get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.kernels import eager
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.neighbours import Offset
from gpusched.kernels.scalar import ScalarKernel
from gpusched.kernels.signatures import Kinds
from gpusched.kernels.typed import Typed
from gpusched.record.record import Recorder
from gpusched.record.recorded import RecordedFunction, recorder_of

Boundary = str | bool | int | float

MODES = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap"}
"""What dask (and SciPy) call a boundary, and what `numpy.pad` does."""


@dataclass(frozen=True)
class InteriorKernel(RecordedFunction):
    """Reads neighbours in arrays that are larger than the result by `depth` on each side.

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

    def __call__(self, *args: Any) -> Any:
        """Compute the stencil, or record it where an argument is a lazy chunk."""
        recorder = recorder_of(args)
        if recorder is not None:
            return self.record(recorder, *args)
        return eager.run(self, args)


@dataclass(frozen=True)
class PaddedKernel(RecordedFunction):
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

    def __call__(self, *args: Any) -> Any:
        """Compute the stencil, or record it where an argument is a lazy chunk."""
        self.check(args)
        recorder = recorder_of(args)
        if recorder is not None:
            return self.record(recorder, *args)
        return eager.run(self, args)

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
