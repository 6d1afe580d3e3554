"""A user's function instead of a kernel's `point`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusched.emit import generate
from gpusched.emit.editions import EditionError
from gpusched.emit.kernel import Kernel, Statement, unchecked
from gpusched.kernels.definition import Definition, define
from gpusched.kernels.errors import location
from gpusched.kernels.typed import typed
from gpusched.plan.overrides import Override


@dataclass(frozen=True)
class FunctionOverride(Override):
    """A scalar function instead of all of a kernel's statements.

    Notes
    -----
    Immutable. It goes to other processes with what it reads from outside, as it was when the
    override was made.
    """

    definition: Definition

    def version(self, original: Kernel) -> Kernel:
        """Return the kernel with the function as its only statements."""
        dtypes = (*(i.dtype for i in original.inputs), *original.parameters)
        results = tuple(o.value_dtype for o in original.outputs)
        found = typed(self.definition, tuple(map(np.dtype, dtypes)), tuple(map(np.dtype, results)))
        statements = tuple(
            Statement(found.operation, k, tuple(range(len(dtypes))), result, dtypes[0])
            for k, result in enumerate(results)
        )
        outputs = tuple(
            replace(output, value=len(dtypes) + k) for k, output in enumerate(original.outputs)
        )
        return replace(
            unchecked(original), statements=statements, outputs=outputs, original=original
        )

    @property
    def identity(self) -> str:
        """The digest of the function: equal digests compute the same."""
        return self.definition.digest


def function_override(kernel: Kernel, function: Callable[..., Any]) -> FunctionOverride:
    """Return the version of a kernel that computes each element with a function.

    Raises `EditionError` if it takes another number of arguments than `point` does; `KernelError`
    if no kernel can be made of it; the message has the line.
    """
    definition = define(function)
    names = [*generate.input_names(kernel), *generate.parameter_names(kernel)]
    if definition.arity != len(names):
        dtypes = (*(i.dtype for i in kernel.inputs), *kernel.parameters)
        wanted = ", ".join(f"{n}: {d}" for n, d in zip(names, dtypes, strict=True))
        raise EditionError(
            f"{location(function.__code__)}: {definition.name} takes {definition.arity} arguments; "
            f"point of kernel {kernel.name} takes {len(names)}: {wanted}"
        )
    return FunctionOverride(kernel.digest, kernel.computation, definition)
