"""NumPy calls before and after a model are fused as ever, and `explain` shows the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task

import gpusched

CHUNKS = 8


@pytest.fixture(autouse=True)
def fused() -> Iterator[None]:
    gpusched.reset_statistics()
    with dask.config.set({"gpusched.fusion.minimum-elements": 0}), gpusched.enable():
        yield


def project(x: Any) -> Any:
    return np.linalg.norm(x, axis=1)[:, None] * np.ones(3)


def program() -> da.Array:
    x = da.from_array(np.linspace(0, 1, CHUNKS * 1000).reshape(-1, 10), chunks=(100, 10))
    return (gpusched.apply(project, (x * 2 + 1) / 3) - 1) ** 2


def test_one_kernel_before_and_one_after() -> None:
    found = program().compute(scheduler="synchronous")
    told = gpusched.statistics()
    assert (told.launches, len(told.kernels), dict(told.breaks)) == (2 * CHUNKS, 2, {})
    assert told.recordings == 2
    with gpusched.disable():
        np.testing.assert_allclose(program().compute(), found, rtol=1e-12)


def test_several_results_are_fused_with_what_follows() -> None:
    x = da.from_array(np.linspace(0, 1, CHUNKS * 1000).reshape(-1, 10), chunks=(100, 10))
    y, z = gpusched.apply(lambda x: (x.sum(1), x), x * 2 + 1)
    dask.compute((y - 1) * 2, (z - 1) * 2)
    told = gpusched.statistics()
    assert (told.launches, dict(told.breaks)) == (3 * CHUNKS, {})


def test_chunks_share_a_program() -> None:
    graph = dict(program().__dask_optimize__(program().dask, program().__dask_keys__()))
    functions = [task.func for task in graph.values() if isinstance(task, Task)]
    assert Counter(type(f).__name__ for f in functions) == {"Program": CHUNKS, "function": 1}
    assert len({id(f) for f in functions}) == 2


def test_explain_shows_the_model_and_has_no_remedy_for_it() -> None:
    found = gpusched.explain(program())
    assert len(found.kernels) == 2
    (stop,) = found.breaks
    assert (stop.operation, stop.reason) == ("apply-project", "a model that Python computes")
    assert stop.remedy.startswith("nothing: ")
    assert stop.tasks == CHUNKS
    assert "apply-project" in found.text()
    assert gpusched.statistics().launches == 0
