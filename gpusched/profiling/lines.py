"""Tasks and kernels -> the user's lines behind them. Nothing is computed for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from gpusched.inspection.places import Place, place_of_layer
from gpusched.inspection.task_contents import layer_of


class Lines:
    """The lines of one profile."""

    def __init__(self, origins: Mapping[Any, tuple[int, tuple[Any, ...]]]) -> None:
        self._origins = origins
        self._places = lru_cache(maxsize=None)(_places)
        self._place = lru_cache(maxsize=None)(place_of_layer)

    def of_task(self, key: Any) -> tuple[Place, ...]:
        """Return the lines behind a task, dask's fused ones included."""
        found = self._origins.get(key)
        return self._of(found[1] if found is not None else (key,))

    def of_kernel(self, key: Any, steps: Iterable[int]) -> tuple[Place, ...]:
        """Return the lines behind some calls of a task's program, by their registers."""
        found = self._origins.get(key)
        if found is None:
            return self.of_task(key) if key is not None else ()
        first, keys = found
        known = [keys[k - first] for k in steps if 0 <= k - first < len(keys)]
        return self._of(tuple(known) or keys)

    def _of(self, keys: tuple[Any, ...]) -> tuple[Place, ...]:
        layers = tuple(dict.fromkeys([layer_of(key) for key in keys]))
        return self._places(layers, self._place)


def _places(layers: tuple[str, ...], place: Any) -> tuple[Place, ...]:
    found = [place(layer) for layer in layers]
    return tuple(dict.fromkeys(each for each in found if each is not None))
