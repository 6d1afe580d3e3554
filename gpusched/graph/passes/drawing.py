"""Random numbers drawn by the GPU, where ``gpusched.random`` asks for them.

They are others than NumPy's for the same seed, of the same distribution, and the same in every run
on GPUs. Where the task runs on a worker without one, and for what is not listed here, NumPy draws.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from gpusched import placed
from gpusched.adapters.arrays import apply_random, apply_random_func
from gpusched.graph.frontends.counterparts import Exchange
from gpusched.graph.running.moved import TaskCopies
from gpusched.placed import TAKES_PLACED
from gpusched.plan.overrides import bounds
from gpusched.record.catalogue import own

_METHODS = {
    "random": "random_sample", "random_sample": "random_sample", "uniform": "uniform",
    "normal": "normal", "standard_normal": "standard_normal", "lognormal": "lognormal",
    "exponential": "exponential", "standard_exponential": "standard_exponential",
}  # fmt: skip
"""NumPy's distributions with float64 results, by their names in `cupy.random.RandomState`."""


@own("draws")
def draw_by_generator(*args: Any) -> Any:
    """Do what dask's function for `numpy.random.Generator` does, on the GPU."""
    return _draw(apply_random_func, *args)


@own("draws")
def draw_by_state(*args: Any) -> Any:
    """Do what dask's function for `numpy.random.RandomState` does, on the GPU."""
    return _draw(apply_random, *args)


_DRAWN: dict[Any, Callable[..., Any]] = {
    apply_random_func: draw_by_generator,
    apply_random: draw_by_state,
}
for _function in _DRAWN.values():
    setattr(_function, TAKES_PLACED, True)


def drawn(tasks: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a graph whose random numbers are drawn by the GPU, where a task's worker owns one.

    Parameters
    ----------
    tasks
        dask's nodes by key.

    Examples
    --------
    >>> import dask.array as da
    >>> from gpusched.graph.passes.drawing import drawn
    >>> x = da.random.default_rng(1).normal(size=4, chunks=2)
    >>> [node.func.__name__ for node in drawn(x.__dask_graph__()).values()]
    ['draw_by_generator', 'draw_by_generator']
    """
    exchange = Exchange(lambda function: _DRAWN.get(function, function))
    return {key: exchange.value(node) for key, node in tasks.items()}


def _draw(plain: Callable[..., Any], kind: Any, name: str, seed: Any, size: Any,
          args: Any, kwargs: Any) -> Any:  # fmt: skip
    lent = placed.take()
    mover = lent or placed.mover()
    number, given = _number(seed), _parameters(kwargs)
    if mover is None or number is None or not _is_listed(name, (*args, *given.values())):
        return plain(kind, name, seed, size, args, kwargs)
    state = _state()
    state.seed(number)
    found = getattr(state, _METHODS[name])(*args, size=size, **given)
    # Other tasks get the same numbers as NumPy's array.
    if lent is None:
        return mover.to_host(found)
    return TaskCopies(mover, bounds().elements).settled(found)


def _parameters(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords without those that say what the GPU does anyway."""
    usual = {"dtype": (np.float64,), "out": (None,), "method": ("zig", "inv")}
    return {
        key: value
        for key, value in kwargs.items()
        if not any(value is each or value == each for each in usual.get(key, ()))
    }


def _is_listed(name: str, parameters: Iterable[Any]) -> bool:
    """Return whether the GPU draws from a distribution: one of the table, of numbers."""
    return name in _METHODS and all(isinstance(v, int | float | np.number) for v in parameters)


def _number(seed: Any) -> int | None:
    """Return a seed of 64 bits for what dask seeds a chunk with; None for what has none."""
    if isinstance(seed, np.ndarray):
        seed = np.random.SeedSequence(seed.tolist())
    if not isinstance(seed, np.random.SeedSequence):
        return None
    return int(seed.generate_state(1, np.uint64)[0])


_threads = threading.local()


def _state() -> Any:
    """Return the calling thread's generator, whose numbers depend on the seed and place alone."""
    if not hasattr(_threads, "state"):
        import cupy

        method = cupy.cuda.curand.CURAND_RNG_PSEUDO_PHILOX4_32_10
        _threads.state = cupy.random.RandomState(0, method=method)
    return _threads.state
