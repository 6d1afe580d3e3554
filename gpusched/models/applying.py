"""`gpusched.apply`: a model over the chunks of dask arrays."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from dask.array import Array, asanyarray, blockwise
from dask.array.core import unify_chunks
from dask.array.utils import meta_from_array
from dask.base import is_dask_collection, tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes

from gpusched.adapters.tasks import DataNode, Task
from gpusched.models import axes, outputs, recognise
from gpusched.models.base import Packed
from gpusched.models.call import Call, Part, Places, plain
from gpusched.models.errors import WritesInputError
from gpusched.models.outputs import Outputs
from gpusched.models.views import placed
from gpusched.models.weights import Loaded, Weights, received

SAMPLE = 2
"""Rows that a model is tried on."""


def apply(
    model: Any,
    *arrays: Any,
    dtype: Any = None,
    shape: Any = None,
    meta: Any = None,
    method: str | None = None,
    device: str | None = None,
    library: str | None = None,
    cast: Any = False,
    batch: int | str | None = None,
    core: Any = None,
    dims: Any = None,
    **kwargs: Any,
) -> Any:
    """Call a model on the rows of arrays, chunk by chunk.

    Parameters
    ----------
    model : callable or model
        A torch module, TorchScript or exported program; a JAX function; a TensorFlow function,
        module or Keras model; an ONNX model or its bytes; a scikit-learn estimator; the path of a
        file or folder with one of these; any function of arrays; or a function without arguments
        that returns one of these, and is called once in each process.
    *arrays
        dask, xarray or NumPy arrays, with the same rows in the same order.
    dtype : dtype_like, sequence of dtype_like or dict, optional
        Dtype that the results are converted to: one, or one for each of several results. If not
        given, it is found by calling the model on a sample.
    shape : tuple of int, sequence of tuple or dict, optional
        Shape of one row's result; with ``dtype``, no sample is needed. ``()`` for a number.
    meta : array or sequence of array, optional
        Dtype and shape in one: an array of no rows, such as ``np.empty((0, 10), "float32")``, or
        a tuple or dictionary of them for several results.
    method : str, optional
        Name of the model's method to call, such as ``"predict_proba"``, instead of the model.
    device : str, optional
        Device, as the model's library names it. If not given, the worker's GPU, or else the CPU.
    library : str, optional
        ``"torch"``, ``"jax"`` or ``"tensorflow"`` for a plain function of that library's arrays.
    cast : bool or dtype_like
        Whether inputs of another dtype than the model's are converted to it, rather than refused;
        or the dtype that all inputs are converted to.
    batch : int or str, optional
        Rows that the model is given at a time at most; or bytes of them, such as ``"64 MiB"``.
        If not given, whole chunks; for torch modules on the CPU pieces that stay in the cache.
    core : int or sequence of int, optional
        How many axes at the end make up one row; all but the first if not given. For xarray, the
        names of dimensions.
    dims : sequence of str, optional
        Names of the dimensions of one row's result, for xarray.
    **kwargs
        Further arguments for the model.

    Returns
    -------
    array, or tuple or dict of arrays
        As the model returns them. Lazy, unless all `arrays` are NumPy's.

    Raises
    ------
    gpusched.models.ModelError
        If the model cannot be sent or tried, or is in training mode.
    TypeError
        If the model takes another dtype.
    ValueError
        If rows are spread over several chunks, or arrays have different rows.

    Notes
    -----
    The model is packed when `apply` is called: what becomes of it later changes nothing. It goes
    to each worker once, and is loaded there once; it is given up with the last task that needs it.
    Unless shapes and dtypes are given, it is tried here on two rows of ones.

    Examples
    --------
    >>> import dask.array as da, gpusched, numpy as np
    >>> def norms(rows):
    ...     return np.sqrt((rows**2).sum(axis=1))
    >>> x = da.ones((6, 4), chunks=(3, 4))
    >>> gpusched.apply(norms, x).compute()
    array([2., 2., 2., 2., 2., 2.])
    """
    if not arrays:
        raise ValueError("apply takes a model and at least one array")
    recognise.check(model)
    lazy = [name for name, value in kwargs.items() if is_dask_collection(value)]
    if lazy:
        raise TypeError(
            f"{lazy} are lazy, and the model would get them so: pass arrays with the same rows by "
            "position, after the first one"
        )
    pairs = [axes.rows_and_core(_array(array), core) for array in arrays]
    cores = tuple(count for _, count in pairs)
    unlabelled = [axes.data_of(array) for array, _ in pairs]
    loops = unlabelled[0].ndim - cores[0]
    _check_rows(unlabelled, loops, cores)
    restore = axes.restorer(pairs[0][0], loops, dims)
    packed = recognise.pack(model)
    if library is not None:
        recognise.library(library)
    weights = Weights(packed, device, library)
    call = Call(packed.name, _library(packed, library), method, kwargs, _cast(cast),
                _batch(batch, unlabelled, cores), cores)  # fmt: skip
    call = _with_outputs(call, weights, unlabelled, dtype, shape, meta)
    if not any(isinstance(data, Array) for data in unlabelled):
        found = _now(call, weights, unlabelled, loops)
    else:
        found = _lazy(call, weights, unlabelled, loops)
    return _arranged(call, [restore(one) for one in found])


def _array(value: Any) -> Any:
    if isinstance(value, Array | np.ndarray) or axes.is_xarray(value):
        return value
    if is_dask_collection(value) or not hasattr(value, "__array__"):
        raise TypeError(
            f"apply takes dask, xarray and NumPy arrays, not a {type(value).__name__}"
            + (": pass the arrays in it" if hasattr(value, "data_vars") else "")
        )
    return np.asanyarray(value)


def _check_rows(unlabelled: list[Any], loops: int, cores: tuple[int, ...]) -> None:
    first = unlabelled[0].shape[:loops]
    for data, core in zip(unlabelled, cores, strict=True):
        rows = data.shape[: data.ndim - core]
        if len(rows) != loops or any(a != b for a, b in zip(rows, first, strict=True) if a == a):
            raise ValueError(f"arrays with different rows: {rows} beside {first}")
        if isinstance(data, Array):
            axes.check_core_chunks(data, core)


def _library(packed: Packed, library: str | None) -> str:
    names = {"function_models": "Python", "onnx": "onnxruntime", "sklearn": "scikit-learn"}
    return library or names.get(packed.kind, packed.kind)


def _cast(cast: Any) -> bool | np.dtype:
    return cast if isinstance(cast, bool) else np.dtype(cast)


def _batch(batch: int | str | None, unlabelled: list[Any], cores: tuple[int, ...]) -> int | None:
    """Return the rows of a piece."""
    if isinstance(batch, str):
        row = sum(
            data.dtype.itemsize * prod(data.shape[data.ndim - core :])
            for data, core in zip(unlabelled, cores, strict=True)
        )
        batch = max(int(parse_bytes(batch)) // max(int(row), 1), 1)
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ValueError(f"batch={batch!r}: a number of rows, or bytes such as '64 MiB'")
    return batch


def _with_outputs(
    call: Call, weights: Weights, unlabelled: list[Any], dtype: Any, shape: Any, meta: Any
) -> Call:
    """Return the call with what it will give: as the user says, or as a sample shows."""
    told = outputs.declared(meta, dtype, shape)
    if told is not None:
        return replace(call, outputs=told, converts=shape is not None)
    found, copies = _tried(call, weights, unlabelled, dtype)
    return replace(call, outputs=found, converts=dtype is not None, copies=copies)


def _tried(call: Call, weights: Weights, unlabelled: list[Any], dtype: Any) -> tuple[Outputs, bool]:
    """Return what the model gives for a few rows, and whether it writes to its input."""
    try:
        loaded = weights.loaded()
        rows = loaded.model.rows or SAMPLE
        samples = [
            _sample(data, core, rows) for data, core in zip(unlabelled, call.core, strict=True)
        ]
        with np.errstate(all="ignore"):
            found, copies = _run_on_copies(call, loaded, samples)
        return outputs.of_sample(found, loaded.model, samples[0], rows, dtype), copies
    except Exception as error:
        error.add_note(
            f"gpusched: raised as the model {call.name} was tried on a few rows of ones. If it "
            f"cannot be here, or not on such rows, {outputs.HINT}"
        )
        raise
    finally:
        weights.let_go()


def _run_on_copies(call: Call, loaded: Loaded, samples: list[Any]) -> tuple[Any, bool]:
    """Return what a model gives, and whether it writes to its input."""
    given = [sample.copy() for sample in samples]
    try:
        found = call.run(loaded, given)
    except WritesInputError:
        return replace(call, copies=True).run(loaded, samples), True
    pairs = zip(given, samples, strict=True)
    return found, any(one.tobytes() != other.tobytes() for one, other in pairs)


def _sample(data: Any, core: int, rows: int) -> Any:
    """Return rows of ones like those of an array."""
    like = plain(meta_from_array(data) if isinstance(data, Array) else data)
    size = (rows, *map(int, data.shape[data.ndim - core :]))
    fill = np.ones if data.dtype.kind in "biufc" else np.zeros
    return placed(fill(size, data.dtype), like)


def _now(call: Call, weights: Weights, unlabelled: list[Any], loops: int) -> list[Any]:
    assert call.outputs is not None
    try:
        place = Places(tuple((n,) for n in unlabelled[0].shape[:loops]))[(0,) * loops]
        found = call(weights, place, *unlabelled)
    finally:
        weights.let_go()
    return [found] if call.outputs.keys is None else [found[key] for key in call.outputs.keys]


def _lazy(call: Call, weights: Weights, unlabelled: list[Any], loops: int) -> list[Array]:
    """Return the results as dask arrays; several come of one task per chunk."""
    dask_arrays = [asanyarray(data) for data in unlabelled]
    letters = tuple(range(loops))
    pairs: list[Any] = []
    for number, (data, core) in enumerate(zip(dask_arrays, call.core, strict=True)):
        own = _indices(1 + number, core)
        pairs += [data, (*letters, *own)]
    _, dask_arrays = unify_chunks(*pairs)
    pairs[::2] = dask_arrays
    chunks = dask_arrays[0].chunks[:loops]
    call = replace(call, tasks=prod(map(len, chunks)))
    assert call.outputs is not None
    like = meta_from_array(dask_arrays[0])
    common = (_key(weights), None, Places(chunks), letters)
    if call.outputs.keys is None:
        return [_result(call, common, pairs, letters, like)]
    name = f"{call.__name__}-{tokenize(call, weights, *dask_arrays)}"
    whole = blockwise(
        call, letters, *common, *pairs, name=name, dtype=object, align_arrays=False,
        meta=np.empty((0,) * loops, object),
    )  # fmt: skip
    return [
        _part(whole, Part(key, call.library), meta, letters, like)
        for key, meta in zip(call.outputs.keys, call.outputs.metas, strict=True)
    ]


def _indices(group: int, count: int) -> tuple[int, ...]:
    """Return names of axes that are not those of rows, others for each group of them."""
    # dask names axes by numbers or letters, and sorts them; NumPy's arrays have at most 64.
    return tuple(range(100 * (group + 1), 100 * (group + 1) + count))


def _result(call: Call, common: Any, pairs: list[Any], letters: tuple[int, ...], like: Any) -> Any:
    """Return a single result, whose axes are those of the first array as far as it has them.

    An axis that is in the input only would come in a list, and be one more thing to look through.
    """
    assert call.outputs is not None
    (meta,) = call.outputs.metas
    sizes = meta.shape[1:]
    given = pairs[1][len(letters) :]
    kept = given[: len(sizes)]
    new = _indices(0, len(sizes) - len(kept))
    index = (*letters, *kept, *new)
    name = f"{call.__name__}-{tokenize(call, common[0].key, *pairs[::2])}"
    return blockwise(
        call, index, *common, *pairs, name=name, dtype=meta.dtype, align_arrays=False,
        adjust_chunks=dict(zip(kept, sizes, strict=False)),
        new_axes=dict(zip(new, sizes[len(kept) :], strict=True)),
        meta=meta_from_array(like, len(index), meta.dtype),
    )  # fmt: skip


def _part(whole: Array, part: Part, meta: np.ndarray, letters: tuple[int, ...], like: Any) -> Any:
    new = _indices(0, meta.ndim - 1)
    index = (*letters, *new)
    return blockwise(
        part, index, whole, letters, dtype=meta.dtype,
        new_axes=dict(zip(new, meta.shape[1:], strict=True)),
        meta=meta_from_array(like, len(index), meta.dtype),
    )  # fmt: skip


def _key(weights: Weights) -> Delayed:
    """Return the model as a key of the graph."""
    name = f"model-{weights.packed.name}-{weights.token}"
    task = Task(name, received, DataNode(None, weights))
    return Delayed(name, HighLevelGraph.from_collections(name, {name: task}))


def _arranged(call: Call, found: list[Any]) -> Any:
    assert call.outputs is not None
    keys = call.outputs.keys
    if keys is None:
        return found[0]
    counted = keys == tuple(range(len(keys)))
    return tuple(found) if counted else dict(zip(keys, found, strict=True))
