"""`gpusched.apply` with scikit-learn's estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusched
from gpusched.models import ModelError
from gpusched.models.weights import Weights
from tests.models.given import address, rows, values, watched

pytest.importorskip("sklearn", reason="scikit-learn comes with the extra models-test")

from sklearn.cluster import DBSCAN
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

LABELS = np.where(values()[:, 0] > 0, "right", "left")


def fitted(estimator: Any, labels: Any = LABELS) -> Any:
    return estimator.fit(values(), labels)


@pytest.mark.parametrize("method", [None, "predict", "predict_proba", "decision_function"])
def test_methods(method: str | None) -> None:
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()))
    y = gpusched.apply(model, rows(), method=method)
    whole = getattr(model, method or "predict")(values())
    assert (y.shape, y.dtype) == (whole.shape, whole.dtype)
    if method in (None, "predict"):
        np.testing.assert_array_equal(y.compute(), whole)
    else:
        np.testing.assert_allclose(y.compute(), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("estimator", [LinearRegression(), RandomForestClassifier(5)])
def test_estimators(estimator: Any) -> None:
    model = fitted(estimator, values()[:, 0] > 0)
    y = gpusched.apply(model, rows())
    np.testing.assert_allclose(y.compute(), model.predict(values()), rtol=1e-5, atol=1e-5)


def test_transform_where_there_is_nothing_to_predict() -> None:
    model = fitted(StandardScaler())
    y = gpusched.apply(model, rows())
    np.testing.assert_allclose(y.compute(), model.transform(values()), rtol=1e-5, atol=1e-6)


def test_one_that_scales_in_place_gets_copies() -> None:
    model = fitted(StandardScaler(copy=False))
    held = rows().persist()
    gpusched.apply(model, held).compute()
    np.testing.assert_array_equal(held.compute(), values())


class Watch(StandardScaler):
    """Notes where its input lies."""

    seen: list[int] = []  # noqa: RUF012

    def transform(self, X: Any, copy: Any = None) -> Any:
        Watch.seen.append(address(X))
        return X


def test_chunks_are_not_copied() -> None:
    x, chunks = watched(read_only=True)
    y = gpusched.apply(fitted(Watch()), x)
    Watch.seen.clear()
    y.compute(scheduler="synchronous")
    assert Watch.seen == [address(chunks[0])]


def test_files(tmp_path: Path) -> None:
    import joblib

    model = fitted(LogisticRegression())
    joblib.dump(model, tmp_path / "model.joblib")
    y = gpusched.apply(tmp_path / "model.joblib", rows())
    np.testing.assert_array_equal(y.compute(), model.predict(values()))


class TestRefused:
    def test_not_fitted(self) -> None:
        with pytest.raises(NotFittedError):
            gpusched.apply(LogisticRegression(), rows())

    def test_no_such_method(self) -> None:
        with pytest.raises(ModelError, match=r"has no predict or transform: pass method=; it has"):
            gpusched.apply(fitted(DBSCAN()), rows())
        with pytest.raises(ModelError, match=r"no predict_proba.* it has \['predict'\]"):
            gpusched.apply(fitted(LinearRegression(), values()[:, 0]), rows(),
                           method="predict_proba")  # fmt: skip

    def test_sparse_results(self) -> None:
        with pytest.raises(ModelError, match="sparse_output=False"):
            gpusched.apply(OneHotEncoder(handle_unknown="ignore").fit(values()), rows())

    def test_a_device(self) -> None:
        with pytest.raises(ModelError, match="called on the CPU, not on 'cuda'"):
            gpusched.apply(fitted(LogisticRegression()), rows(), device="cuda")

    def test_another_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        y = gpusched.apply(fitted(LogisticRegression()), rows())
        monkeypatch.setattr("gpusched.models.weights.version", lambda name: "0.1")
        with pytest.raises(ModelError, match=r"packed with scikit-learn [\d.]+, and .* has 0\.1"):
            y.compute()

    def test_too_few_features(self) -> None:
        with pytest.raises(ValueError, match="expecting 8 features"):
            gpusched.apply(fitted(LogisticRegression()), rows()[:, :3])


def test_weights_say_how_large_they_are() -> None:
    from dask.sizeof import sizeof

    from gpusched.models.recognise import pack

    packed = pack(fitted(RandomForestClassifier(50)))
    assert sizeof(Weights(packed)) >= len(packed.content) > 10_000
