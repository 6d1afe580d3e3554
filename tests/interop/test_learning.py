"""scikit-learn by its array API, and dask-ml: fused, and what fails does so as without fusion."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn comes with the extra interop-test")

Compute = Callable[[Callable[[], Any]], tuple[Any, int]]

PROGRAM = """
    import sys, warnings
    warnings.simplefilter("ignore")
    import dask, dask.array as da, numpy as np, sklearn
    import gpusched
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    dask.config.set({"gpusched.fusion.minimum-elements": 0, "scheduler": "threads"})
    X = np.random.default_rng(0).standard_normal((200, 5))
    lazy = da.from_array(X, chunks=(50, 5))
    y = da.from_array(X @ np.arange(5.0), chunks=50)
    MADE = {
        "MinMaxScaler": lambda: MinMaxScaler(),
        "PCA full": lambda: PCA(2, svd_solver="full"),
        "PCA randomized": lambda: PCA(
            2, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0
        ),
        "PCA eigh": lambda: PCA(2, svd_solver="covariance_eigh"),
        "StandardScaler": lambda: StandardScaler(),
        "LinearRegression": lambda: LinearRegression(),
        "KMeans": lambda: KMeans(2, random_state=0, n_init=1),
    }

    def told(make):
        try:
            with sklearn.config_context(array_api_dispatch=True):
                model = make().fit(lazy, y)
                call = getattr(model, "transform", None) or model.predict
                found = np.abs(np.asarray(call(lazy)))
        except (AttributeError, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        model = make().fit(X, y.compute())
        call = getattr(model, "transform", None) or model.predict
        np.testing.assert_allclose(found, np.abs(call(X)), rtol=1e-6, atol=1e-9)
        return "works"

    for name, make in MADE.items():
        plain = told(make)
        with gpusched.enable():
            fused = told(make)
        print(name, "|", plain, "|", fused)
"""

WORKS = {"MinMaxScaler", "PCA full", "PCA randomized"}


def test_array_api_of_sklearn() -> None:
    """In a process of its own: scipy reads the environment as it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(" | ") for line in done.stdout.splitlines()]
    assert len(rows) == 7
    for name, plain, fused in rows:
        assert plain == fused, name
        assert plain == "works" or (": " in plain and name not in WORKS), f"{name}: {plain}"


def test_dask_ml(random: np.random.Generator, launched: Compute) -> None:
    preprocessing = pytest.importorskip(
        "dask_ml.preprocessing", reason="dask-ml comes with the extra interop-test"
    )
    decomposition = pytest.importorskip("dask_ml.decomposition")
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    values = random.standard_normal((200, 5)) * 3 + 1
    x = da.from_array(values, chunks=(50, 5))
    scaled, launches = launched(lambda: preprocessing.StandardScaler().fit_transform(x).compute())
    np.testing.assert_allclose(scaled, StandardScaler().fit_transform(values), atol=1e-12)
    assert launches
    pca = {"n_components": 2, "svd_solver": "full"}
    turned, _ = launched(lambda: decomposition.PCA(**pca).fit_transform(x).compute())
    np.testing.assert_allclose(abs(turned), abs(PCA(**pca).fit_transform(values)), atol=1e-9)
