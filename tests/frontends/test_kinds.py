"""What gpusched asks of expressions as it makes their graphs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gpusched


def test_no_warning_of_metadata_that_dask_array_does_not_ask_for() -> None:
    da = pytest.importorskip("dask_array")
    x = da.from_array(np.ones((3, 4)), chunks=(1, 2)).sum(dtype="c16")
    with gpusched.enable(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert x.compute(scheduler="sync") == 12
    assert not caught
