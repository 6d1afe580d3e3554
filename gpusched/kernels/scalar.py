"""Elementwise kernels as tasks have them: frozen, recorded with what is around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.kernels import eager
from gpusched.kernels.definition import Definition
from gpusched.kernels.errors import KernelError, location
from gpusched.kernels.signatures import Kinds, Signature, resolve
from gpusched.kernels.typed import Typed, typed
from gpusched.plan.expression import Node
from gpusched.record.chunk import LazyChunk, operand
from gpusched.record.record import Recorder
from gpusched.record.recorded import RecordedFunction, recorder_of


@dataclass(frozen=True)
class ScalarKernel(RecordedFunction):
    """A scalar function applied to each element, as a ufunc is.

    Notes
    -----
    Immutable, thread-safe, and equal to any other that computes the same.
    """

    definition: Definition
    signatures: tuple[Signature, ...] = ()
    elementwise = True

    @property
    def __name__(self) -> str:
        return self.definition.name

    def __dask_tokenize__(self) -> Any:
        return "gpusched.kernel", self.definition.digest, repr(self.signatures)

    def typed(self, kinds: Kinds) -> Typed:
        """Return the operation for arguments of such dtypes or Python types."""
        self.check_count(len(kinds))
        arguments, declared = resolve(self.signatures, kinds, self.__name__)
        return typed(self.definition, arguments, declared)

    def check_count(self, given: int) -> None:
        """Raise `KernelError` if that is not the number of the function's parameters."""
        if given != self.definition.arity:
            raise KernelError(
                f"{location(self.definition.function.__code__)}: kernel {self.__name__} takes "
                f"{self.definition.arity} arguments; {given} were given"
            )

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Record the operation on lazy chunks; return a lazy chunk for each result."""
        operands = [operand(recorder, a) for a in args]
        operation = self.typed(tuple(map(kind_of, operands)))
        arguments = tuple(
            recorder.cast(o, dtype) for o, dtype in zip(operands, operation.arguments, strict=True)
        )
        # A loop of the user's own is always worth a kernel.
        recorder.operations += 1
        nodes = [
            recorder.apply(operation.operation, arguments, dtype, k)
            for k, dtype in enumerate(operation.results)
        ]
        chunks = tuple(LazyChunk(recorder, n, scalar=not n.shape, fresh=True) for n in nodes)
        return chunks[0] if operation.single else chunks

    def __call__(self, *args: Any) -> Any:
        """Compute each element, or record that where an argument is a lazy chunk."""
        recorder = recorder_of(args)
        if recorder is not None:
            return self.record(recorder, *args)
        return eager.run(self, args)


def kind_of(value: Any) -> Any:
    """Return the dtype of an operand, or the type of a Python number."""
    if isinstance(value, Node | np.generic):
        return value.dtype
    return type(value)
