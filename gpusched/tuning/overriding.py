"""`gpusched.override`: a user's version of a generated kernel."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpusched.editing.edited import SOURCE, Edited, edited_file, edited_override
from gpusched.emit.kernel import Kernel
from gpusched.plan.overrides import Override
from gpusched.tuning.function_overrides import function_override
from gpusched.tuning.subjects import kernel_of


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
    if tolerance is not None and not tolerance >= 0:
        raise ValueError(f"tolerance {tolerance!r} is not a relative difference of 0 or more")
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
