"""What functions that copy return, before they have copied anything.

A recording needs the shapes and layouts of arrays, not what is in them: it is the plan that copies,
or the functions themselves where no plan is there yet. Without this, a first call copied twice: a
quantile of 300 MB took 2.0 instead of 1.2 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusched.record.views import copied

Function = Callable[..., Any]

FORMS: dict[Function, Function] = {}
"""By function, what returns an array of the same layout; filled while modules are imported."""


def form_of(*functions: Function) -> Callable[[Function], Function]:
    """Return a decorator of a function that returns uninitialised what `functions` return.

    It returns None for what it does not know: all but NumPy's own arrays, and errors.
    """

    def decorate(form: Function) -> Function:
        FORMS.update(dict.fromkeys(functions, form))
        return form

    return decorate


def of_numpy(*arrays: Any) -> bool:
    """Return whether these are NumPy's own arrays, of one dtype."""
    return {type(each) for each in arrays} == {np.ndarray} and len({a.dtype for a in arrays}) == 1


@form_of(copied)
def _copied(array: Any) -> Any:
    return np.empty_like(array, order="C") if of_numpy(array) else None


@form_of(np.copy)
def _copy(array: Any) -> Any:
    return np.empty_like(array) if of_numpy(array) else None


@form_of(np.concatenate)
def _concatenated(arrays: Any, axis: Any) -> Any:
    if not of_numpy(*arrays) or axis not in range(-(ndim := arrays[0].ndim), ndim):
        return None
    axis %= ndim
    if len({(*each.shape[:axis], *each.shape[axis + 1 :]) for each in arrays}) > 1:
        return None
    length = sum(each.shape[axis] for each in arrays)
    shape = (*arrays[0].shape[:axis], length, *arrays[0].shape[axis + 1 :])
    return _in_their_order(np.concatenate, arrays, axis, shape)


@form_of(np.stack)
def _stacked(arrays: Any, axis: Any) -> Any:
    if not of_numpy(*arrays) or axis not in range(-(ndim := arrays[0].ndim + 1), ndim):
        return None
    axis %= ndim
    if len({each.shape for each in arrays}) > 1:
        return None
    shape = (*arrays[0].shape[:axis], len(arrays), *arrays[0].shape[axis:])
    return _in_their_order(np.stack, arrays, axis, shape)


def _in_their_order(function: Function, arrays: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Return an array of a shape in the order in memory that NumPy has for joined arrays.

    That order is the one of their strides; axes of one element have none. So it is the same for
    the first two elements along each axis.
    """
    few = function([each[(slice(2),) * each.ndim] for each in arrays], axis=axis)
    # Of axes with the same stride, all have one element but the outermost.
    order = sorted(range(len(shape)), key=lambda k: (-few.strides[k], -few.shape[k]))
    made = np.empty([shape[k] for k in order], few.dtype)
    return made.transpose(np.argsort(order))
