"""`gpusched.tune`: the fastest choices for a kernel on this device, measured and remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpusched.backends.devices import Device, device_of
from gpusched.config import ChoiceError
from gpusched.editing.checking import check_tolerance
from gpusched.emit.choices import TARGETS
from gpusched.emit.kernel import Options
from gpusched.inspection.explanation import explain
from gpusched.inspection.kernel_listings import ExplainedKernel
from gpusched.record.recorded import Freezable, RecordedFunction
from gpusched.store import tuned
from gpusched.tuning.cases import Case, device_for, explained_case, function_cases
from gpusched.tuning.comparison import Table, Tuned
from gpusched.tuning.measuring import Bench, Row, candidates, measure

WORTH = 0.97
"""Part of the default's time that a candidate may need at most to be taken, both in the median and
at best: what is closer is noise."""

Values = int | Sequence[int] | None


def tune(
    kernel: Any,
    sample: Any = None,
    *,
    block: Values = None,
    vector: Values = None,
    unroll: Values = None,
    target: str | None = None,
    tolerance: float | None = None,
    remember: bool = True,
) -> Tuned:
    """Measure a kernel with several choices, and use the fastest from now on.

    Candidates are measured in turns, several times each, and compared by their medians. One whose
    results are not the default's is not taken.

    Parameters
    ----------
    kernel : kernel
        One of `gpusched.explain`'s kernels; a function decorated with `gpusched.kernel`; or a dask
        array, all of whose kernels are tuned.
    sample : sequence of array, optional
        Arrays to measure on, several in a tuple: a decorated function's arguments, or a kernel's
        inputs. A decorated function needs one; otherwise random numbers of the program's shapes
        are taken.
    block : int or sequence of int, optional
        CUDA: threads of a block. CPU: elements that a reduction joins before their partial result
        joins the rest.
    vector : int or sequence of int, optional
        CUDA: elements that a thread loads or stores at once. CPU: bits of the registers used.
    unroll : int or sequence of int, optional
        CUDA: vectors of each input that a thread loads before it uses the first; it computes
        ``vector * unroll`` elements at a time.
    target : {'cpu', 'cuda'}, optional
        ``"cpu"`` or ``"cuda"``; by default where the sample is, or ``"cpu"``.
    tolerance : float, optional
        Largest relative difference of floating-point results from the default's; by default they
        must be equal, so that sums keep their order.
    remember : bool
        Whether the result is kept for this and later processes.

    Returns
    -------
    Tuned
        Tables of what was measured.

    Raises
    ------
    ChoiceError
        If a value makes no sense for the kernel; the message has those that do.
    ValueError
        If the tolerance is not a number of 0 or more.

    Notes
    -----
    A number for `block`, `vector` or `unroll` is your choice, and taken whatever its time; a tuple
    is tried, and the fastest taken. If none is given, all sensible combinations are tried.

    What is remembered is in ``tuning.json`` in the cache directory, by kernel, device and
    compiler. It is looked at when a kernel is compiled: workers that run already keep what they
    have compiled.

    Examples
    --------
    >>> import numpy as np, gpusched
    >>> @gpusched.kernel
    ... def cube(x):
    ...     return x * x * x
    >>> found = gpusched.tune(cube, np.ones(10_000), vector=(128, 256), remember=False)
    >>> len(found.tables[0].rows)
    3
    """
    check_tolerance(tolerance)
    given = {"block": block, "vector": vector, "unroll": unroll}
    given = {name: values for name, values in given.items() if values is not None}
    if target is not None and target not in TARGETS:
        raise ChoiceError(f"target {target!r}: say 'cpu' or 'cuda'")
    tables = [
        _tuned(case, Bench(device, device.place()), given, tolerance, remember)
        for case, device in _cases(kernel, sample, target)
    ]
    if not tables:
        told = f"this {type(kernel).__name__}"
        raise ChoiceError(f"{told} runs no kernel, so there is nothing to tune")
    return Tuned(tuple(tables))


def _cases(kernel: Any, sample: Any, target: str | None) -> Iterator[tuple[Case, Device]]:
    arrays = _arrays(sample)
    if isinstance(kernel, ExplainedKernel):
        device = device_for(target or _target(arrays))
        yield explained_case(kernel, arrays, device), device
    elif isinstance(kernel, Freezable | RecordedFunction):
        if arrays is None:
            raise ChoiceError(f"{kernel!r} needs a sample: arrays to measure it on")
        device = device_for(target or _target(arrays))
        placed = [_placed(value, device) for value in arrays]
        seen: set[str] = set()
        for case in function_cases(kernel, placed):
            if case.kernel.digest not in seen:
                seen.add(case.kernel.digest)
                yield case, device
    elif hasattr(kernel, "__dask_graph__"):
        if sample is not None:
            raise ChoiceError("a dask array's kernels are measured on arrays of its chunks' shapes")
        device = device_for(target or _target((getattr(kernel, "_meta", None),)))
        for found in explain(kernel).kernels:
            yield explained_case(found, None, device), device
    else:
        raise TypeError(
            f"there is one of explain(x).kernels, a gpusched.kernel function or a dask array to "
            f"tune, not {kernel!r:.100} of type {type(kernel).__name__}"
        )


def _arrays(sample: Any) -> tuple[Any, ...] | None:
    if sample is None:
        return None
    return tuple(sample) if isinstance(sample, tuple | list) else (sample,)


def _target(arrays: tuple[Any, ...] | None) -> str:
    names = {d.name for d in map(device_of, arrays or ()) if d is not None}
    return next(iter(names), "cpu")


def _placed(value: Any, device: Device) -> Any:
    own = device_of(value)
    return value if own is None or own.name == device.name else device.take_in(value)


def _tuned(
    case: Case, bench: Bench, given: dict[str, Any], tolerance: float | None, keep: bool
) -> Table:
    target = bench.place.target
    plain = replace(case, kernel=replace(case.kernel, options=Options()))
    tried = candidates(plain.kernel, target, given)
    rows = measure(plain, tried, bench, tolerance)
    by_hand = bool(given) and all(isinstance(values, int) for values in given.values())
    best = _asked(rows) if by_hand else _fastest(rows)
    kept = keep and _remember(plain, bench, rows, best, by_hand)
    return Table(plain.kernel, bench.place, tuple(rows), best, kept)


def _asked(rows: list[Row]) -> Row:
    """Return the row that the user asked for: the only one besides the default, or that."""
    asked = rows[-1]
    if asked.problem:
        raise ChoiceError(f"{asked.options} cannot be taken: {asked.problem}")
    return asked


def _fastest(rows: list[Row]) -> Row:
    default = rows[0]
    found = [row for row in rows if max(row.ratio or 1, row.least or 1) <= WORTH]
    return min(found, key=lambda row: row.ratio or 0, default=default)


def _remember(case: Case, bench: Bench, rows: list[Row], best: Row, by_hand: bool) -> bool:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    choice = None
    if by_hand or best is not rows[0]:
        choice = tuned.Choice(case.kernel.name, best.options, best.ratio or 1.0, date)
    return tuned.remember(case.kernel, bench.place, choice)
