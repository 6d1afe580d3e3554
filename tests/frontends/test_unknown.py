"""Collections that are not fused: said once, and counted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import dask.bag
import numpy as np
import pytest
import xarray as xr

import gpusched
from gpusched.graph.frontends import fused_expressions as unknown


class Collection(dask.base.DaskMethodsMixin):
    """Another project's collection: it holds an array's graph, and optimises it itself."""

    __dask_scheduler__ = staticmethod(dask.threaded.get)
    __dask_optimize__ = staticmethod(lambda graph, keys, **kwargs: graph)

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dask_graph__(self) -> Any:
        return self._array.__dask_graph__()

    def __dask_keys__(self) -> Any:
        return self._array.__dask_keys__()

    def __dask_postcompute__(self) -> Any:
        return self._array.__dask_postcompute__()

    def __dask_postpersist__(self) -> Any:
        return self._array.__dask_postpersist__()


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    unknown._warned.clear()
    gpusched.reset_statistics()
    with gpusched.enable():
        yield
    gpusched.reset_statistics()


def test_unknown_kind_is_warned_of_once_and_counted() -> None:
    x = Collection(da.ones(10, chunks=5) + 1)
    with pytest.warns(UserWarning, match=r"computes .*\.Collection without fusion"):
        np.testing.assert_array_equal(x.compute(), np.full(10, 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dask.compute(x, x)
    assert gpusched.statistics().breaks["Collection", unknown.REASON] == 2


@pytest.mark.parametrize(
    "made",
    [
        lambda: da.ones(10, chunks=5),
        lambda: xr.DataArray(da.ones(10, chunks=5)),
        lambda: xr.Dataset({"a": ("x", da.ones(10, chunks=5))}),
        lambda: dask.delayed(sum)([1, 2]),
        lambda: dask.bag.from_sequence([1, 2], npartitions=2).sum(),
    ],
)
def test_nothing_is_said_of_known_kinds(made: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dask.compute(made(), scheduler="threads")
    assert not gpusched.statistics().breaks


def test_nothing_is_said_while_fusion_is_off() -> None:
    with gpusched.disable(), warnings.catch_warnings():
        warnings.simplefilter("error")
        Collection(da.ones(10, chunks=5)).compute()
    assert not gpusched.statistics().breaks


def test_nothing_is_said_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("dask_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (package.ones(10, chunks=5) + 1).compute(scheduler="threads")
    assert not any(reason == unknown.REASON for _, reason in gpusched.statistics().breaks)
