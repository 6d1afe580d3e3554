"""The functions that a file may name: NumPy's, Python's operators, and those of dask's own graphs.

A name in a file is looked up in this table and nowhere else, so that a file can call nothing but
what is listed here. Nothing listed opens a file, runs text, or reads an attribute by its name
(but for `getattr` on random generators, see `check_call`): whoever adds to it, look at that.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from toolz import curry  # type: ignore[import-untyped]

from gpusched.serialization.frames import CorruptFrameError

# As in `np.load`, `np.fromfile`, `np.save` and `np.memmap`, whatever touches files is left out;
# so are `as_strided`, which reads anywhere in memory, and `vectorize` and `frompyfunc`.
_NUMPY = """
all allclose amax amin angle any append apply_along_axis arange argmax argmin argpartition argsort
argwhere around array array_equal asanyarray asarray ascontiguousarray atleast_1d atleast_2d
atleast_3d average bincount block broadcast_to choose clip column_stack compress concatenate copy
corrcoef count_nonzero cov cross cumprod cumsum delete diag diagflat diagonal diff digitize dot
dstack ediff1d einsum empty empty_like expand_dims extract eye fix flatnonzero flip fliplr flipud
full full_like gradient histogram histogram2d histogramdd hstack hypot i0 identity imag indices
inner insert interp isclose iscomplex iscomplexobj isin isreal isrealobj kron lexsort linspace
logspace max mean median meshgrid min moveaxis nan_to_num nanargmax nanargmin nancumprod nancumsum
nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar ndim nonzero
ones ones_like outer pad partition percentile piecewise prod ptp put_along_axis quantile ravel
ravel_multi_index real repeat reshape resize result_type roll rollaxis rot90 round searchsorted
select shape sinc size sort split squeeze stack std sum swapaxes take take_along_axis tensordot tile
trace transpose trapezoid tri tril triu union1d unique unravel_index unwrap var vdot vstack where
zeros zeros_like
"""

_MODULES = {
    "numpy.fft": "fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2"
    " irfftn rfft rfft2 rfftfreq rfftn",
    "numpy.linalg": "cholesky det eig eigh eigvals eigvalsh inv lstsq matrix_norm matrix_power"
    " matrix_rank norm pinv qr slogdet solve svd vector_norm",
    "numpy.lib.stride_tricks": "sliding_window_view",
    "numpy.ma": "count filled fix_invalid getdata getmaskarray masked_equal masked_greater"
    " masked_greater_equal masked_inside masked_invalid masked_less masked_less_equal"
    " masked_not_equal masked_outside masked_values masked_where",
    "numpy.random": "MT19937 PCG64 PCG64DXSM Philox RandomState SFC64",
    "gpusched.record.recorded": "one_of",
    "operator": "abs add and_ eq floordiv ge getitem gt invert le lshift lt matmul mod mul ne neg"
    " or_ pos pow rshift sub truediv xor",
    "builtins": "abs bool complex divmod float int len list max min object round slice sum tuple",
    "scipy.linalg": "cholesky lu solve_triangular",
    "dask.array._shuffle": "_getitem concatenate_arrays",
    "dask.array.chunk": "all any arange argmax argmin argtopk argtopk_aggregate argtopk_preprocess"
    " astype coarsen getitem linspace max min nanargmax nanargmin nancumprod nancumsum nanmax"
    " nanmin nanprod nansum prod slice_with_int_dask_array slice_with_int_dask_array_aggregate sum"
    " topk topk_aggregate trim view",
    "dask.array.core": "_concatenate2 _enforce_dtype _pass_extra_kwargs _vindex_merge"
    " _vindex_slice_and_transpose concatenate_axes concatenate_shaped concatenate3 deepfirst"
    " dotmany getter getter_inline getter_nofancy transposelist",
    "dask.array.creation": "expand_pad_value linear_ramp_chunk wrapped_pad_func",
    "dask.array.dispatch": "concatenate_lookup divide_lookup einsum_lookup empty_lookup"
    " nannumel_lookup numel_lookup percentile_lookup take_lookup tensordot_lookup",
    "dask.array.einsumfuncs": "chunk_einsum",
    "dask.array.fft": "_fftfreq_block",
    "dask.array.linalg": "_cholesky_lower _conj_transpose _cumsum_part _nanmin _reverse"
    " _solve_triangular_lower _wrapped_qr",
    "dask.array.ma": "_chunk_count _masked_array _wrap_masked",
    "dask.array.numpy_compat": "divide moveaxis rollaxis",
    "dask.array.overlap": "_fill_with_last_one _push _trim",
    "dask.array.percentile": "_percentiles_from_tdigest _tdigest_chunk merge_percentiles",
    "dask.array.random": "_apply_random _apply_random_func _choice_rng _choice_rs _shuffle",
    "dask.array.reductions": "_arg_combine _cumprod_merge _cumsum_merge _custom_nanquantile"
    " _nanargmax _nanargmin _nanmax_skip _nanmin_skip _prefixscan_combine _prefixscan_first _sqrt"
    " arg_agg arg_chunk arg_combine chunk_max chunk_min divide mean_agg mean_chunk mean_combine"
    " moment_agg moment_chunk moment_combine nanarg_agg nannumel numel safe_sqrt",
    "dask.array.routines": "_asarray_isnull _average _bincount_agg _block_hist"
    " _block_histogramdd_multiarg _block_histogramdd_rect _chunk_sum _gradient_kernel"
    " _inner_apply_along_axis _int_piecewise _isin_kernel _isnonzero _linspace _matmul _partition"
    " _searchsorted_block _select _sum_wo_cat _tensordot _tensordot_is_sparse _unique_internal"
    " _unravel_index_kernel variadic_choose",
    "dask.array.slicing": "concatenate_array_chunks getitem_variadic setitem",
    "dask.array.utils": "array_safe asanyarray_safe asarray_safe solve_triangular_safe",
    "dask.array.wrap": "_broadcast_trick_inner",
    "dask.utils": "apply",
}

METHODS = frozenset(
    ["astype", "conj", "copy", "ravel", "reshape", "squeeze", "sum", "transpose", "view"]
)
"""Methods of arrays that a file may name, as `dask.utils.methodcaller` calls them."""

_DISTRIBUTIONS = frozenset(
    name
    for kind in (np.random.Generator, np.random.RandomState)
    for name, member in inspect.getmembers(kind, callable)
    if not name.startswith("_") and name not in ("get_state", "seed", "set_state", "spawn")
)
_DRAWS = {
    "dask.array.random._apply_random": "numpy.random.RandomState",
    "dask.array.random._apply_random_func": None,
}


@cache
def table() -> dict[str, Any]:
    """Return every function that a file may name, by its name.

    What a library of another version lacks is left out.
    """
    found: dict[str, Any] = {}
    for module, names in {"numpy": _NUMPY, **_MODULES}.items():
        if module.startswith("scipy") and importlib.util.find_spec("scipy") is None:
            continue
        home = importlib.import_module(module)
        for name in names.split():
            function = getattr(home, name, None)
            if isinstance(function, curry):
                function = function.func
            if callable(function):
                found[f"{module}.{name}"] = function
    for name in dir(np):
        if isinstance(getattr(np, name), np.ufunc):
            found[f"numpy.{name}"] = getattr(np, name)
    for kind in {*map(np.dtype, np.typecodes["All"].replace("O", ""))}:
        found[f"numpy.{kind.type.__name__}"] = kind.type
    return found


@cache
def _names() -> dict[int, str]:
    # By id, since some of them cannot be hashed; the table keeps them alive.
    names: dict[int, str] = {}
    for name, function in table().items():
        names.setdefault(id(function), name)
    return names


def name_of(function: Any) -> str | None:
    """Return the name by which a file may call a function, or None if it may not.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.saving.permitted_functions import name_of
    >>> name_of(np.exp), name_of(np.save)
    ('numpy.exp', None)
    """
    return _names().get(id(function))


def find(name: Any, called: bool = False) -> Any:
    """Return the function of a name.

    Raises `CorruptFrameError` if a file may not name it.

    Parameters
    ----------
    name
        From any source.
    called
        Whether the function is called where it stands, and not handed to another one, so that
        `check_call` sees its arguments.

    Examples
    --------
    >>> from gpusched.saving.permitted_functions import find
    >>> find("numpy.exp")
    <ufunc 'exp'>
    >>> find("os.system")
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: 'os.system' is not a function a file may name
    """
    found = table().get(name) if isinstance(name, str) else None
    if found is None or (name in _DRAWS and not called):
        raise CorruptFrameError(f"{name!r:.200} is not a function a file may name")
    return found


def check_call(function: Any, args: Sequence[Any]) -> None:
    """Refuse a call of dask's random functions that names anything but a distribution.

    Raises `CorruptFrameError` if it does.
    """
    name = name_of(function)
    if name not in _DRAWS:
        return
    kind = name_of(args[0]) if args else None
    wanted = _DRAWS[name]
    fits = kind == wanted if wanted else kind is not None and kind.startswith("numpy.random.")
    if len(args) < 2 or not fits or not isinstance(args[1], str) or args[1] not in _DISTRIBUTIONS:
        raise CorruptFrameError(f"{name} of {args[:2]!r:.200} draws from no distribution")
