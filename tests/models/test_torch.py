"""`gpusched.apply` with torch: modules, TorchScript, exported programs, files and functions."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import gpusched
from gpusched import models, threadsafe
from gpusched.models import ModelError
from gpusched.models.errors import WritesInputError
from gpusched.models.torch import adopt
from tests.models.given import FEATURES, address, only_chunk, rows, values, watched
from tests.tiers import in_host_memory

torch = pytest.importorskip("torch", reason="torch comes with the extra models-test")
on_the_host = in_host_memory(torch.cuda.is_available())

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def network(*layers: Any) -> Any:
    torch.manual_seed(0)
    made = layers or (torch.nn.Linear(FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return torch.nn.Sequential(*made).eval()


def expected(model: Any, x: np.ndarray | None = None) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = model(torch.from_numpy(values() if x is None else x)).numpy()
    return found


def exported(rows: int | None = None) -> Any:
    batch = None if rows else {"input": {0: torch.export.Dim("rows")}}
    return torch.export.export(network(), (torch.ones(rows or 4, FEATURES),), dynamic_shapes=batch)


FORMS = {
    "module": network,
    "scripted": lambda: torch.jit.script(network()),
    "traced": lambda: torch.jit.trace(network(), torch.ones(2, FEATURES)),
    "exported": exported,
    "exported for 7 rows": lambda: exported(7),
    "symbolic": lambda: torch.fx.symbolic_trace(network()),
}


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch 2.11's own.
@pytest.mark.parametrize("form", FORMS)
def test_result_is_that_of_the_whole_array(form: str) -> None:
    y = gpusched.apply(FORMS[form](), rows())
    assert (y.shape, y.dtype) == ((100, 3), np.float32)
    np.testing.assert_allclose(y.compute(), expected(network()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["module.pt", "scripted.pt", "scripted.ts", "exported.pt2"])
def test_files(form: str, tmp_path: Path) -> None:
    path = tmp_path / form
    model = FORMS[path.stem]()
    if path.stem == "module":
        torch.save(model, path)
    elif path.stem == "scripted":
        torch.jit.save(model, path)
    else:
        torch.export.save(model, path)
    y = gpusched.apply(path, rows())
    np.testing.assert_allclose(y.compute(), expected(network()), rtol=1e-5, atol=1e-6)


def test_a_file_of_weights_is_refused(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(
        ModelError, match="holds a OrderedDict, which is not a model but its weights"
    ):
        gpusched.apply(tmp_path / "weights.pt", rows())


def test_functions_of_tensors() -> None:
    y = gpusched.apply(lambda x: (x.relu(), torch.sum(x, 1)), rows(), library="torch")
    np.testing.assert_array_equal(y[0].compute(), np.maximum(values(), 0))
    loaded = gpusched.apply(lambda: network(), rows())
    np.testing.assert_allclose(loaded.compute(), expected(network()), rtol=1e-5, atol=1e-6)


def test_outputs_in_a_dictionary() -> None:
    class Heads(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, scale: float = 1.0) -> dict[str, Any]:
            return {"mean": x.mean(1) * scale, "signs": x > 0}

        def largest(self, x: Any) -> Any:
            return x.max(1).values

    found = gpusched.apply(Heads().eval(), rows(), scale=2.0)
    np.testing.assert_allclose(found["mean"].compute(), values().mean(1) * 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["signs"].compute(), values() > 0)
    largest = gpusched.apply(Heads().eval(), rows(), method="largest")
    np.testing.assert_array_equal(largest.compute(), values().max(1))


class Watch(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Notes where its input lies, and how it is called."""

    seen: list[Any] = []  # noqa: RUF012

    def forward(self, x: Any) -> Any:
        Watch.seen.append((x.data_ptr(), torch.is_inference_mode_enabled()))
        return x.view(x.shape)


@on_the_host
@pytest.mark.parametrize("read_only", [False, True])
def test_tensors_share_the_chunks_memory(read_only: bool) -> None:
    x, chunks = watched(read_only)
    y = gpusched.apply(Watch().eval(), x)
    Watch.seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = only_chunk(y)
    assert Watch.seen == [(address(chunks[0]), True)]
    assert address(found) == address(chunks[0])


@on_the_host
def test_a_result_shares_the_tensors_memory() -> None:
    model = adopt(network(), None)
    tensor = model.run(None, [values()], {}, False, False)
    found = model.array(tensor, values(), None)
    assert address(found) == tensor.data_ptr()
    assert not tensor.requires_grad


def test_arrays_that_run_backwards() -> None:
    y = gpusched.apply(network(), rows()[:, ::-1])
    np.testing.assert_allclose(
        y.compute(), expected(network(), values()[:, ::-1].copy()), rtol=1e-5, atol=1e-6
    )


class TestDtypes:
    def test_another_is_refused_by_name(self) -> None:
        with pytest.raises(TypeError, match="takes float32, and was given float64: pass cast=True"):
            gpusched.apply(network(), rows("float64"))

    @pytest.mark.parametrize("cast", [True, "float32", np.float32])
    def test_cast(self, cast: Any) -> None:
        y = gpusched.apply(network(), rows("float64"), cast=cast)
        whole = expected(network(), values("float64").astype("float32"))
        np.testing.assert_allclose(y.compute(), whole, rtol=1e-5, atol=1e-6)

    def test_integers_are_left_to_embeddings(self) -> None:
        embedding = torch.nn.Embedding(10, 4).eval()
        y = gpusched.apply(embedding, rows("int64"))
        assert y.compute().shape == (100, FEATURES, 4)

    def test_bfloat16_is_none_of_numpy_s(self) -> None:
        half = network().to(torch.bfloat16)
        with pytest.raises(ModelError, match="bfloat16, which NumPy lacks: pass dtype='float32'"):
            gpusched.apply(half, rows(), cast=True)
        y = gpusched.apply(half, rows(), cast=True, dtype="float32")
        np.testing.assert_allclose(y.compute(), expected(network()), atol=0.05)

    def test_a_model_s_own_error_comes_through(self) -> None:
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            gpusched.apply(network(), rows()[:, :3])


class TestModes:
    def test_training_is_refused(self) -> None:
        with pytest.raises(ModelError, match=r"is in training mode.*call model.eval\(\) first"):
            gpusched.apply(network().train(), rows())
        with pytest.raises(ModelError, match="is in training mode"):
            gpusched.apply(torch.jit.script(network().train()), rows())
        with pytest.raises(ModelError, match="is in training mode"):
            gpusched.apply(lambda: network().train(), rows())

    def test_a_part_in_training_mode_is_called_as_the_registry_has_it(self) -> None:
        model = network(torch.nn.Dropout(0.5))
        model[0].train()
        before = _calls()
        y = gpusched.apply(model, rows())
        found = y.compute()
        assert _calls() == before + 5
        assert set(np.unique(found / (2 * values()))) == {0, 1}

    def test_evaluation_takes_no_lock(self) -> None:
        before = _calls()
        gpusched.apply(network(), rows()).compute()
        assert _calls() == before


def _calls() -> int:
    counts = threadsafe.statistics().get("lock(torch training)")
    return 0 if counts is None else counts.calls


class TestWriting:
    """Models that change their input in place, which is somebody else's chunk."""

    def test_a_sample_shows_it(self) -> None:
        held = rows().persist()
        y = gpusched.apply(network(torch.nn.ReLU(inplace=True)), held)
        np.testing.assert_array_equal(y.compute(), np.maximum(values(), 0))
        np.testing.assert_array_equal(held.compute(), values())

    def test_without_a_sample_it_is_an_error(self) -> None:
        meta = np.empty((0, FEATURES), "float32")
        y = gpusched.apply(network(torch.nn.ReLU(inplace=True)), rows(), meta=meta)
        with pytest.raises(WritesInputError, match="has changed its input in place"):
            y.compute()


def test_what_training_does_later_changes_nothing() -> None:
    model = network()
    y = gpusched.apply(model, rows())
    whole = expected(model)
    with torch.no_grad():
        model[0].weight.zero_()
    np.testing.assert_allclose(y.compute(), whole, rtol=1e-5, atol=1e-6)


def test_the_model_is_as_it_was() -> None:
    model = network()
    gpusched.apply(model, rows()).compute()
    assert all(p.requires_grad and p.device.type == "cpu" for p in model.parameters())


def test_nothing_is_left_after_a_computation() -> None:
    y = gpusched.apply(Named().eval(), rows())
    assert Named.__name__ not in models.loaded()
    y.compute()
    gc.collect()
    assert Named.__name__ not in models.loaded()


class Named(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Is seen among the models that are loaded while it is called."""

    def forward(self, x: Any) -> Any:
        assert "Named" in models.loaded()
        return x


def test_two_models_at_once() -> None:
    y, z = gpusched.apply(network(), rows()), gpusched.apply(network(torch.nn.Tanh()), rows())
    found = dask.compute(y, z, y + 1)
    np.testing.assert_allclose(found[0], expected(network()), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], np.tanh(values()), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], found[0] + 1)


def test_a_device_that_is_not_here() -> None:
    with pytest.raises((RuntimeError, AssertionError), match=r"(?i)cuda|device|nvidia"):
        gpusched.apply(network(), rows(), device="cuda:99")
