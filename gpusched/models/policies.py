"""How threads share a model: as the registry of `gpusched.threadsafe` has it for its library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpusched.threadsafe.policies import parse
from gpusched.threadsafe.unsafe_libraries import OFF, cases
from gpusched.threadsafe.wrapping import wrap


def under_policy(library: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as the registry, or the settings, have a library called.

    Parameters
    ----------
    library
        Its name in the registry; empty for none.
    function
        Calls it.

    Examples
    --------
    >>> from gpusched.models.policies import under_policy
    >>> under_policy("onnxruntime", abs) is abs
    True
    """
    policy = next((case.policy for case in cases() if case.library == library), OFF)
    if policy == OFF:
        return function
    guarded: Callable[..., Any] = wrap(function, parse(policy).named(library), results=False)
    return guarded
