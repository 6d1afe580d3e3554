"""Counts chunk tasks that call functions as they are, which gpusched's statistics leave out."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
from dask.callbacks import Callback

_PIECES = {"getitem", "getter", "getter_inline", "getter_nofancy", "identity", "finalize",
           "_identity"}  # fmt: skip
"""Functions that cut chunks out of what there is, join results, or rename tasks that statistics
count: these compute nothing."""


class CalledTasks(Callback):  # type: ignore[misc]
    """Notes, on local schedulers, each task whose result is an array and that records nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        """Tasks by the module and name of the function that they call last."""

    def _posttask(self, key: Any, value: Any, dsk: Any, state: Any, worker: Any) -> None:
        node = dsk.get(key)
        function = getattr(node, "func", None)
        if function is None or not isinstance(value, (np.ndarray, np.generic)):
            return
        if type(function).__name__ == "Program":  # Of this gpusched, or of an earlier one.
            if not function.steps or any(segment.recorded for segment in function.segments):
                return
            function = function.steps[-1].function
        while type(function) is partial:
            function = function.func
        name = str(getattr(function, "__name__", type(function).__name__))
        module = str(getattr(function, "__module__", ""))
        ours = module.startswith("gpusched.")  # Batches, whose programs statistics count.
        if name not in _PIECES and not ours and not getattr(node, "data_producer", False):
            self.found[f"{module}.{name}"] += 1
