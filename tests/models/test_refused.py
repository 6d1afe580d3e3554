"""What `gpusched.apply` does not take, and what its errors tell."""

from __future__ import annotations

import sys
import threading
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.models import ModelError
from tests.models.given import FEATURES, rows, values


def same(x: Any) -> Any:
    return x


META = {"meta": np.empty((0, FEATURES), "float32")}


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"batch": 0}, "batch=0: a number of rows, or bytes such as '64 MiB'"),
            ({"batch": True}, "batch=True: a number of rows"),
            ({"core": 2}, "core=2: an array of 2 axes has rows of 0 to 1"),
            ({"core": "x"}, "names dimensions, which only xarray's arrays have"),
            ({"dims": "x"}, "names dimensions, which only xarray's arrays have"),
            ({"library": "numpy"}, "functions can take arrays of torch, jax, tensorflow"),
            ({"shape": 3}, "needs dtype beside it"),
            ({"meta": 3}, "meta is 3: pass meta=, an array of no rows"),
            ({**META, "dtype": "f4"}, "leave out dtype and shape"),
        ],
    )
    def test_values(self, arguments: dict[str, Any], told: str) -> None:
        with pytest.raises(ValueError, match=told):
            gpusched.apply(same, rows(), **arguments)

    def test_device_of_a_function(self) -> None:
        with pytest.raises(ModelError, match="pass library= with it"):
            gpusched.apply(same, rows(), device="cuda")

    def test_no_array(self) -> None:
        with pytest.raises(ValueError, match="a model and at least one array"):
            gpusched.apply(same)

    @pytest.mark.parametrize("value", [3, "text", [1, 2], dask.delayed(1)])
    def test_no_arrays(self, value: Any) -> None:
        with pytest.raises(TypeError, match="takes dask, xarray and NumPy arrays"):
            gpusched.apply(same, value)

    def test_lazy_keywords(self) -> None:
        with pytest.raises(TypeError, match=r"\['other'\] are lazy.* by position"):
            gpusched.apply(lambda x, other: x, rows(), other=rows())

    def test_no_axes(self) -> None:
        with pytest.raises(ValueError, match=r"has no rows: give it one, as with x\[None\]"):
            gpusched.apply(same, da.ones(()))

    def test_other_rows(self) -> None:
        with pytest.raises(ValueError, match=r"different rows: \(7,\) beside \(100,\)"):
            gpusched.apply(lambda a, b: a, rows(), rows()[:7])

    def test_rows_over_several_chunks(self) -> None:
        with pytest.raises(
            ValueError, match=r"axes \[1\].* several chunks.*x.rechunk\(\{1: -1\}\)"
        ):
            gpusched.apply(same, rows().rechunk((30, 3)))


class TestModels:
    @pytest.mark.parametrize("value", [3, None, [1]])
    def test_no_model(self, value: Any) -> None:
        with pytest.raises(TypeError, match="a model or a function is wanted"):
            gpusched.apply(value, rows())

    def test_no_model_is_said_before_anything_of_the_arrays(self) -> None:
        with pytest.raises(TypeError, match="a model or a function is wanted, not 3"):
            gpusched.apply(3, rows().rechunk((30, 3)))

    def test_a_class(self) -> None:
        with pytest.raises(TypeError, match=r"Thread is a class.*apply\(lambda: Thread\(\), x\)"):
            gpusched.apply(threading.Thread, rows())

    def test_an_object_that_cannot_be_called(self) -> None:
        with pytest.raises(ModelError, match="cannot be called: pass method="):
            gpusched.apply(np.random.default_rng(), rows())

    def test_a_file_of_another_kind(self) -> None:
        with pytest.raises(
            ModelError, match=r"weights.h5 is not a model: files end with .pt, .pth"
        ):
            gpusched.apply("weights.h5", rows())

    def test_one_that_cannot_be_pickled(self) -> None:
        lock = threading.Lock()
        told = r"cannot be sent to workers \(TypeError: .*\): save it to a file .*apply\(lambda:"
        with pytest.raises(ModelError, match=told):
            gpusched.apply(lambda x: (lock, x)[1], rows())

    def test_a_loader_that_loads_nothing(self) -> None:
        with pytest.raises(ModelError, match="should return a model; it returned None"):
            gpusched.apply(lambda: None, rows())

    def test_a_library_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        y = gpusched.apply(needs_one, rows(), **META)
        monkeypatch.setitem(sys.modules, "fractions", None)
        with pytest.raises(ModuleNotFoundError, match="the model needs_one needs fractions, which "
                           "is not installed for this process on"):  # fmt: skip
            y.compute()


def needs_one() -> Any:
    import fractions

    return fractions.Fraction


class TestResults:
    def test_other_than_one_for_each_row(self) -> None:
        with pytest.raises(ModelError, match=r"shape \(8,\) for 2 rows.*use map_blocks"):
            gpusched.apply(lambda x: x.sum(0), rows())
        with pytest.raises(ModelError, match=r"shape \(\) for 2 rows"):
            gpusched.apply(lambda x: x.sum(), rows())

    def test_other_than_was_told(self) -> None:
        y = gpusched.apply(same, rows(), meta=np.empty((0, 3), "float32"))
        with pytest.raises(ModelError, match=r"shape \(\d+, 8\) .* \(\d+, 3\) was expected"):
            y.compute(scheduler="synchronous")
        y = gpusched.apply(same, rows(), meta=np.empty((0, FEATURES), "float64"))
        with pytest.raises(ModelError, match="gave float32, where float64 was expected"):
            y.compute()
        y = gpusched.apply(same, rows(), meta=(np.empty((0, FEATURES), "float32"),) * 2)
        with pytest.raises(ModelError, match="gave one array, and should give 2 arrays"):
            dask.compute(*y)

    def test_as_many_as_the_first_time(self) -> None:
        y = gpusched.apply(lambda x: x[:2], rows())
        with pytest.raises(ModelError, match=r"shape \(2, 8\) for [13]0 rows"):
            y.compute()

    def test_a_dtype_that_would_cut_off(self) -> None:
        y = gpusched.apply(same, rows(), dtype="int32")
        with pytest.raises(ModelError, match="gave float32, which dtype='int32' would cut off"):
            y.compute()

    @pytest.mark.parametrize("value", ["text", None, {1, 2}])
    def test_no_arrays(self, value: Any) -> None:
        with pytest.raises(ModelError, match="which is not an array"):
            gpusched.apply(lambda x: value, rows())


class TestChunks:
    """Whose meaning a model would lose."""

    def test_masked(self) -> None:
        x = da.ma.masked_greater(rows(), 0)
        with pytest.raises(ModelError, match=r"numpy.ma.*map_blocks\(np.ma.filled\)"):
            gpusched.apply(same, x, **META).compute()

    def test_what_they_are_is_told_by_their_meta(self) -> None:
        with pytest.raises(ModelError, match="MaskedArray"):
            gpusched.apply(same, da.ma.masked_greater(rows(), 0))


class TestFailing:
    """A model that fails where no sample could show it."""

    def test_its_own_error_with_the_chunk_s_place(self) -> None:
        y = gpusched.apply(fail_far_out, rows())
        with pytest.raises(ZeroDivisionError) as caught:
            y.compute()
        assert "in the model fail_far_out, chunk (3,)" in "".join(caught.value.__notes__)

    def test_in_a_fused_task(self) -> None:
        with gpusched.enable():
            y = gpusched.apply(fail_far_out, rows() * 1) * 2 + 1
            with pytest.raises(ZeroDivisionError) as caught:
                y.compute()
        assert "in the model fail_far_out, chunk (3,)" in "".join(caught.value.__notes__)


def fail_far_out(x: Any) -> Any:
    if np.array_equal(x, values()[90:]):
        raise ZeroDivisionError
    return x
