"""`gpusched.override`: a user's version of a generated kernel."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpusched.backends import cache
from gpusched.dataclass import dataclass
from gpusched.editing.edited import SOURCE, Edited, edited_file, edited_override
from gpusched.emit import generate
from gpusched.emit.editions import EditionError
from gpusched.emit.kernel import Kernel, Statement, unchecked
from gpusched.inspection.kernel_listings import ExplainedKernel, lately_explained
from gpusched.kernels.definition import Definition, define
from gpusched.kernels.errors import location
from gpusched.kernels.typed import typed
from gpusched.plan.overrides import Override


def override(
    kernel: Any,
    mine: str | Path | Callable[..., Any],
    *,
    tolerance: float | None = None,
    check: bool = True,
    target: str = "cpu",
) -> Edited:
    """Run a version of your own instead of a generated kernel, here and on workers.

    It is compared with the original on samples first: ordinary numbers, and NaN, infinities, zeros,
    subnormals and extremes.

    Parameters
    ----------
    kernel : str, kernel or override
        One of `gpusched.explain`'s kernels, or its name.
    mine : str, Path or callable
        A function instead of the source's `point`, with the same arguments (inputs, then
        constants) and as many results; or the whole changed source, as text or in a file.
    tolerance : float, optional
        Largest relative difference of floating-point results from the original's. By default they
        may differ as far as the original may from NumPy's: not at all for plain arithmetic. Other
        numbers must be equal.
    check : bool
        Whether it is compared at all.
    target : {'cpu', 'cuda'}
        Whose loops a source has: ``"cpu"``, or ``"cuda"`` for one that began as ``cuda_source``.
        The other target takes its other functions, and has loops of its own.

    Returns
    -------
    Edited
        Has ``remove()``. As a context manager it holds only for what this thread computes in the
        block; otherwise for all that this process computes, until it is removed.

    Raises
    ------
    gpusched.editing.checking.MismatchError
        If results differ; the message has inputs, expected and found.
    gpusched.emit.editions.EditionError
        If it does not compile, or takes other arguments; the message has the line.

    Notes
    -----
    What is computed with it has other names on a scheduler than what is computed without, so that
    they never mix; ``persist`` on a cluster, where chunks have the array's name, is refused.

    Examples
    --------
    >>> import dask.array as da, numpy as np, gpusched
    >>> with gpusched.enable():
    ...     x = (da.from_array(np.arange(9000.0), chunks=4500) + 1) * 7
    ...     kernel = gpusched.explain(x).kernels[0]
    ...     def mine(a, s0):
    ...         return s0 + a * s0
    ...     with gpusched.override(kernel, mine, tolerance=1e-12):
    ...         x.compute()[:2]
    array([ 7., 14.])
    """
    if target not in ("cpu", "cuda"):
        raise ValueError(f"target {target!r}: say 'cpu' or 'cuda'")
    return _edited(kernel_of(kernel), mine, target, tolerance).apply(check)


def _edited(kernel: Kernel, mine: Any, target: str, tolerance: float | None) -> Edited:
    path = _path(mine)
    if path is not None:
        return edited_file(kernel, path, target, tolerance)
    if isinstance(mine, str):
        found: Override = edited_override(kernel, mine, target, SOURCE)
    else:
        function = getattr(mine, "__gpusched_function__", mine)
        if not isinstance(function, types.FunctionType):
            raise TypeError(
                f"a version of a kernel is a Python function, a source text or a file, not "
                f"{mine!r:.100} of type {type(mine).__name__}"
            )
        found = function_override(kernel, function)
    return Edited(kernel, lambda: found, None, tolerance)


def _path(mine: Any) -> Path | None:
    """Return the file that is meant; None for a source text or a function."""
    if not isinstance(mine, Path) and not (isinstance(mine, str) and "\n" not in mine):
        return None
    path = Path(mine).absolute()
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; a source text would have several lines")
    return path


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


_TOLD = 8
"""Names that a message gives of those that there are, the most similar ones."""


class UnknownKernelError(LookupError):
    """No kernel of that name is known in this process; the message says how to get it."""


def kernel_of(subject: Any) -> Kernel:
    """Return the generated kernel that a user means.

    Raises `UnknownKernelError` if no kernel of that name was explained or has run in this process;
    `TypeError` if it is none of these.

    Parameters
    ----------
    subject
        One of `gpusched.explain`'s kernels, its definition, or its name.
    """
    if isinstance(subject, ExplainedKernel):
        subject = subject.kernel
    if isinstance(subject, Kernel):
        return subject.generated
    if isinstance(subject, str):
        return _named(subject)
    raise TypeError(
        f"a kernel is meant by explain(x).kernels[i] or by its name, not by {subject!r:.100} of "
        f"type {type(subject).__name__}"
    )


def _named(name: str) -> Kernel:
    known = {kernel.name: kernel for kernel in (*cache.kernels, *lately_explained())}
    if name not in known:
        alike = difflib.get_close_matches(name, known, _TOLD, cutoff=0)
        told = ", ".join(alike) or "none"
        raise UnknownKernelError(
            f"no kernel {name!r} was explained or has run in this process; known here: {told}. "
            "Workers' kernels are known after gpusched.explain(x)"
        )
    return known[name].generated
