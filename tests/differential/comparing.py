"""Compares two runs of a case: what a user would call a difference, by category."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.differential.case import Case
from tests.differential.running import Outcome, Run

BOUND = {"f2": 2e-2, "f4": 2e-5, "f8": 1e-11, "c8": 2e-5, "c16": 1e-11}
"""How far apart floats of loose cases may be, by dtype, in units of the largest magnitude."""


@dataclass(frozen=True)
class Difference:
    """One thing in which gpusched's run is not plain dask's."""

    category: str
    """``value``, ``dtype``, ``shape``, ``kind``, ``zero``, ``warnings``, ``exception``,
    ``again`` (the second computation), ``mutation`` (of inputs) or ``state``."""
    where: str
    """Which result, and which part of it."""
    text: str
    """What plain dask gives, and what gpusched."""
    close: bool = False
    """Whether it may be rounding that the case's inputs amplify."""


def differences(case: Case, plain: Run, fused: Run) -> list[Difference]:
    """Return all differences between the runs of one case."""
    found: list[Difference] = []
    case = replace(case, magnitude=magnitude(plain.state))
    failed = any(outcome.error for outcome in plain.outcomes.values())
    for name in {**plain.outcomes, **fused.outcomes}:
        one, other = plain.outcomes.get(name), fused.outcomes.get(name)
        if one is None or other is None:
            text = f"plain dask: {_described(one)}; gpusched: {_described(other)}"
            found.append(Difference("exception", name, text))
            continue
        found += _outcomes(case, name, one, other)
    found += _repetitions(plain, fused)
    # How far a failed graph got before it failed is the scheduler's affair.
    if not failed:
        for name, value in plain.state.items():
            category = "mutation" if name.startswith("input") else "state"
            given = fused.state.get(name)
            found += _relabelled(case, category, name, value, given)
    return found


def magnitude(state: dict[str, Any]) -> float:
    """Return the sum of the absolute values of all inputs.

    A sum rounds by so many units in the last place of this number, however small it is itself:
    numbers may cancel.
    """
    numbers = [
        np.abs(array[np.isfinite(array)].astype("f8")).sum()
        for name, array in state.items()
        if name.startswith("input") and isinstance(array, np.ndarray) and array.dtype.kind in "biuf"
    ]
    return float(sum(numbers))


def _repetitions(plain: Run, fused: Run) -> Iterator[Difference]:
    """Yield second computations that differ from the first in any bit, unless plain dask's do."""
    for name, first in fused.outcomes.items():
        again = fused.outcomes.get(f"{name}, again")
        if again is None or name not in plain.outcomes or _bits(first) == _bits(again):
            continue
        if _bits(plain.outcomes[name]) == _bits(plain.outcomes[f"{name}, again"]):
            text = f"first: {first.value!r} {first.error}; again: {again.value!r} {again.error}"
            yield Difference("again", name, text)


def _bits(outcome: Outcome) -> Any:
    """Return what must be equal in both computations of one program."""
    return _exact(outcome.value), outcome.error and (outcome.error[0], _general(outcome.error[1]))


def _exact(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        return str(value.dtype), np.shape(value), np.asarray(value).tobytes()
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    return _general(repr(value))


def _outcomes(case: Case, name: str, one: Outcome, other: Outcome) -> Iterator[Difference]:
    if one.error or other.error:
        # Of several tasks that fail, another one may be the first where threads run them.
        racing = case.kind == "programs" and case.scheduler != "sync"
        if not _same_error(one.error, other.error, racing):
            text = f"plain dask: {_described(one)}; gpusched: {_described(other)}"
            yield Difference("exception", name, text)
        return
    yield from _values(case, name, one.value, other.value)
    if one.warned != other.warned:
        text = f"plain dask: {sorted(one.warned)}; gpusched: {sorted(other.warned)}"
        yield Difference("warnings", name, text, close=case.loose)


def _described(outcome: Outcome | None) -> str:
    if outcome is None:
        return "nothing was computed"
    return f"{outcome.error[0]}: {outcome.error[1]}" if outcome.error else "no exception"


def _same_error(one: tuple[str, str] | None, other: tuple[str, str] | None, racing: bool) -> bool:
    """Return whether exceptions are the same, but for the chunk that was the first to fail."""
    if one is None or other is None:
        return False
    return racing or (one[0] == other[0] and _general(one[1]) == _general(other[1]))


def _general(message: str) -> str:
    """Return a message without numbers and addresses, which differ from chunk to chunk."""
    return re.sub(r"0x[0-9a-f]+|[0-9a-f]{8,}|[-\d., ]*\d[\d., ]*", "#", message)


def _relabelled(case: Case, category: str, name: str, one: Any, other: Any) -> Iterator[Difference]:
    """Compare lists that chunks append to as sets: chunks come in any order."""
    if isinstance(one, list) and isinstance(other, list):
        one, other = sorted(one, key=repr), sorted(other, key=repr)
    for found in _values(case, name, one, other):
        yield Difference(category, found.where, f"{found.category}: {found.text}", found.close)


def _values(case: Case, where: str, one: Any, other: Any) -> Iterator[Difference]:
    """Compare two values of any type."""
    if type(one) is not type(other) and _type(one) != _type(other):
        text = (
            f"plain dask: {type(one).__name__} {one!r}; gpusched: {type(other).__name__} {other!r}"
        )
        yield Difference("kind", where, text)
    elif isinstance(one, list | tuple) and len(one) == len(other):
        for k, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from _values(case, f"{where}[{k}]", first, second)
    elif isinstance(one, dict) and one.keys() == other.keys():
        for key in one:
            yield from _values(case, f"{where}[{key!r}]", one[key], other[key])
    elif isinstance(one, np.ma.MaskedArray):
        yield from _arrays(
            case, f"{where}.mask", np.ma.getmaskarray(one), np.ma.getmaskarray(other)
        )
        # `np.ma.masked` has nothing to be filled with.
        if one is not np.ma.masked and other is not np.ma.masked:
            yield from _arrays(case, f"{where}.filled", one.filled(), other.filled())
    elif isinstance(one, np.ndarray | np.generic):
        yield from _arrays(case, where, np.asarray(one), np.asarray(other))
    elif isinstance(one, float) and math.isnan(one) and math.isnan(other):
        return
    elif (repr(one) != repr(other) and _general(repr(one)) != _general(repr(other))) or (
        isinstance(one, int | str) and one != other
    ):
        yield Difference("value", where, f"plain dask: {one!r}; gpusched: {other!r}")


def _type(value: Any) -> str:
    """Return the name of a value's type; each run of a case defines its classes again."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _arrays(case: Case, where: str, one: np.ndarray, other: np.ndarray) -> Iterator[Difference]:
    text = f"plain dask: {_shown(one)}; gpusched: {_shown(other)}"
    if one.dtype != other.dtype:
        yield Difference("dtype", where, text)
    elif one.shape != other.shape:
        yield Difference("shape", where, text)
    elif one.dtype.kind in "fc":
        yield from _floats(case, where, one, other, text)
    elif one.dtype.kind == "O" or one.dtype.names:
        if repr(one.tolist()) != repr(other.tolist()):
            yield Difference("value", where, text)
    elif not np.array_equal(*_ordered(case, one, other)):
        yield Difference("value", where, text, close=case.loose)


def _floats(case: Case, where: str, one: np.ndarray, other: np.ndarray,
            text: str) -> Iterator[Difference]:  # fmt: skip
    one, other = _ordered(case, one, other)
    if np.array_equal(one, other, equal_nan=True):
        zeros = (one == 0) & (np.signbit(one.real) != np.signbit(other.real))
        if zeros.any() and not case.loose:
            yield Difference("zero", where, text)
        return
    close = case.loose and one.dtype.kind == "f"
    cancelled = float(np.finfo(one.dtype).eps) * case.magnitude
    if close and _within(one, other, BOUND.get(one.dtype.str[1:], 1e-11), cancelled):
        return
    yield Difference("value", where, text, close)


def _within(one: np.ndarray, other: np.ndarray, bound: float, least: float) -> bool:
    """Return whether floats are equal within a part of the largest magnitude among them.

    Parameters
    ----------
    bound
        The part.
    least
        What they may always be apart.
    """
    special = ~(np.isfinite(one) & np.isfinite(other))
    if not np.array_equal(one[special], other[special], equal_nan=True):
        return False
    one, other = one[~special].astype("f8"), other[~special].astype("f8")
    size = float(np.max(np.abs(one), initial=0))
    return bool(np.all(np.abs(one - other) <= max(bound * max(size, 1e-300), least)))


def _ordered(case: Case, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements in an order of their own, where the order of chunks decides it."""
    if not case.unordered:
        return one, other
    return np.sort(one, axis=None), np.sort(other, axis=None)


def _shown(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape} {np.array2string(array, threshold=24, edgeitems=4)}"
