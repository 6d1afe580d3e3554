"""What is known of functions of Python's, NumPy's, dask's and our own: one table for all who ask.

A function has traits; which ones there are, and what each means, is in `TRAITS`. NumPy's functions
that can be recorded are those that `gpusched.record.handlers.HANDLERS` has, and the ufuncs of
`gpusched.emit.operations`. Other libraries' functions, such as numba's ufuncs, know no lazy chunks:
`LIBRARIES` says what knows them.

Only calls that are known to leave their arguments as they are (`why_changing`) are made on computed
arrays while a program is recorded: a recording that fails later must be able to start again, on
inputs that nothing has changed.
"""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dask.utils import methodcaller
from toolz import curry  # type: ignore[import-untyped]

from gpusched.breaks import GraphBreak, Reason

if TYPE_CHECKING:
    from gpusched.record.recorded import OfLibrary

TRAITS = {
    "recorded": "may be given lazy chunks, or has something that may be in its place",
    "view": "computes nothing",
    "elementwise": "has at each place a value of the operands at that place only",
    "passes": "returns some of its arguments",
    "moves": "only moves elements: CuPy's arrays come out of it with the values of NumPy's",
    "portable": "gives for CuPy's arrays what it gives for NumPy's, and is not a kernel",
    "keeps": "moves elements, and has a result of no more of them than what it takes",
    "cuts": "takes time for its result only, whatever the size of what it is given",
    "picks": "takes a piece by an index",
    "several": "computes something of several chunks in a list, and nothing of a single one",
    "reads": "takes a piece of something that is not an array yet, such as a file",
    "draws": "is what dask draws random chunks with",
    "quick": "takes no longer than to write its result, and changes nothing",
    "lean": "allocates no more than its result, but for a few KiB",
    "fresh": "has a result that shares memory with nothing",
    "changes": "changes its first argument",
    "early": "writes to `out`, or what it changes, before it has read all that it is given",
    "pure": "changes nothing, unless an argument such as `out` asks for it",
    "examined": "is gone through as the user's functions are, since it calls one of these",
}
"""What each trait says of a function that has it."""

IMPLIED = {
    "view": ("recorded", "quick", "lean"),
    "several": ("recorded",),
    "picks": ("view", "cuts", "keeps", "recorded", "quick", "lean", "moves"),
    "keeps": ("moves", "quick", "lean"),
    "elementwise": ("recorded", "lean"),
    "passes": ("view", "elementwise", "recorded", "quick", "lean"),
    "reads": ("quick", "lean"),
    "draws": ("quick", "lean"),
}
"""Traits that a function with another one has, too."""

METHODS = "ndarray"
"""Stands for a module: the names are of methods of arrays, which have no implied traits."""

NAMES: dict[str, dict[str, str]] = {
    "recorded": {
        "dask.array.chunk": "astype",
        "dask.array.einsumfuncs": "chunk_einsum",
        "dask.array.reductions": "chunk_max chunk_min mean_chunk moment_chunk",
        "dask.array.routines": "variadic_choose",
        "gpusched.adapters.arrays": "matmul select tensordot",
    },
    "view": {
        "gpusched.adapters.arrays": "take trim",
        METHODS: "conj conjugate ravel reshape squeeze swapaxes transpose",
        "gpusched.adapters.tasks": "renamed",
        "numpy": "atleast_1d atleast_2d atleast_3d broadcast_to expand_dims flip fliplr flipud "
        "imag moveaxis ravel real reshape rollaxis squeeze swapaxes transpose",
    },
    "elementwise": {
        METHODS: "astype",
        "gpusched.adapters.arrays": "sqrt",
        "numpy": "clip where",
        "operator": "abs add and_ eq floordiv ge gt inv invert le lshift lt mod mul ne neg or_ "
        "pos pow rshift sub truediv xor",
    },
    "moves": {
        "dask.array.chunk": "trim",
        "gpusched.adapters.tasks": "renamed",
        "gpusched.adapters.arrays": "concatenate_arrays take trim",
        METHODS: "flatten ravel repeat reshape squeeze transpose",
        "numpy": "atleast_1d atleast_2d atleast_3d broadcast_to copy flip fliplr flipud moveaxis "
        "ravel repeat roll rollaxis stack swapaxes tile",
    },
    "keeps": {
        "dask.array.core": "concatenate3 concatenate_axes concatenate_shaped",
        "gpusched.adapters.arrays": "concatenate2",
        "gpusched.plan.grids": "concatenate_shaped",
        "numpy": "concatenate expand_dims reshape squeeze transpose",
    },
    "cuts": {
        "gpusched.adapters.arrays": "take",
        "numpy": "expand_dims squeeze transpose",
    },
    "picks": {
        "dask.array.chunk": "getitem",
        "operator": "getitem",
    },
    "several": {
        "gpusched.adapters.arrays": "chunk_sum",
    },
    "reads": {
        "dask.array.core": "getter getter_inline getter_nofancy",
    },
    "draws": {
        "gpusched.adapters.arrays": "apply_random apply_random_func",
    },
    "quick": {
        "dask.array.chunk": "arange argmax argmin astype linspace sum trim view",
        "dask.array.dispatch": "concatenate_lookup",
        "dask.array.reductions": "arg_agg arg_chunk arg_combine mean_agg mean_combine moment_agg "
        "moment_combine",
        "gpusched.adapters.arrays": "broadcast_trick chunk_sum concatenate_arrays enforce_dtype "
        "pass_located",
        "numpy": "empty empty_like full full_like max min ones ones_like stack sum zeros "
        "zeros_like",
    },
    "lean": {
        "dask.array.chunk": "arange astype linspace max min prod sum",
        "dask.array.core": "finalize",
        "dask.array.dispatch": "concatenate_lookup",
        "dask.array.reductions": "chunk_max chunk_min mean_agg mean_chunk mean_combine",
        "gpusched.adapters.arrays": "broadcast_trick chunk_sum matmul",
        "numpy": "all any argmax argmin copy cumprod cumsum empty empty_like full full_like max "
        "mean min ones ones_like prod repeat roll sort stack sum tile zeros zeros_like",
    },
    "fresh": {
        METHODS: "all any argmax argmin argsort clip copy cumprod cumsum flatten max mean min prod "
        "std sum var",
        "numpy": "all amax amin any argmax argmin argsort clip concatenate copy cumprod cumsum "
        "digitize empty_like full_like isclose max mean median min nan_to_num nanargmax nanargmin "
        "nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile "
        "nanstd nansum nanvar ones_like partition percentile prod quantile ravel_multi_index "
        "searchsorted sort stack std sum take_along_axis var where zeros_like",
    },
    "early": {
        "numpy": "argmax argmin concatenate fill_diagonal nanargmax nanargmin place ptp stack",
    },
    "pure": {
        METHODS: "argmax argmin argsort choose clip compress copy cumprod cumsum diagonal dot "
        "flatten item max mean min nonzero prod ravel repeat reshape round searchsorted squeeze "
        "std sum swapaxes take tolist trace transpose var",
        "numpy": "allclose append argpartition argsort argwhere array_equal array_equiv "
        "array_split block column_stack compress convolve corrcoef correlate cov cross "
        "delete diag diag_indices_from diagflat diagonal divide dot dsplit dstack "
        "ediff1d einsum extract flatnonzero geomspace histogram2d histogram_bin_edges "
        "hsplit hstack i0 inner insert intersect1d iscomplex isin isreal ix_ kron "
        "lexsort logspace matmul meshgrid nanstd nanvar nonzero outer packbits pad "
        "partition poly polyadd polyder polydiv polyfit polyint polymul polysub resize "
        "roots rot90 setdiff1d setxor1d sort sort_complex split take_along_axis "
        "tensordot trace tril_indices_from trim_zeros triu_indices_from union1d unique "
        "unique_all unique_counts unique_inverse unique_values unpackbits unravel_index "
        "vander vdot vsplit vstack",
        "numpy.fft": "fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 "
        "irfftn rfft rfft2 rfftn",
        "numpy.linalg": "cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq "
        "matrix_norm matrix_power matrix_rank multi_dot pinv qr slogdet solve svd "
        "svdvals tensorinv tensorsolve trace vector_norm",
    },
}
"""Functions by trait and module, and methods of arrays, those of the traits that are implied left
out. What something records, or is called for in its place, is not here either (`learn`)."""

_LEARNED: dict[int, tuple[Any, frozenset[str]]] = {}
"""Functions by their identity, with the traits that they have since something records them."""


def learn(functions: Iterable[Any], *traits: str) -> None:
    """Give traits to functions of NumPy's or dask's, as what records them is imported."""
    for function in functions:
        _LEARNED[id(function)] = function, _with(*traits) | own_traits(function)
    _table.cache_clear()


_OWN = "__gpusched_traits__"
"""Attribute of functions of gpusched's own with their traits."""

_SHOWN = "__gpusched_shown__"
"""Attribute of functions of gpusched's own with the name that users see."""

_NONE: frozenset[str] = frozenset()
_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def _table() -> dict[int, tuple[Any, frozenset[str]]]:
    """Return functions by their identity, since some cannot be hashed; the table keeps them."""
    found = dict(_LEARNED)
    for trait, modules in NAMES.items():
        for module, names in modules.items():
            if module == METHODS:
                continue
            namespace, traits = importlib.import_module(module), _with(trait)
            for name in names.split():
                # A library may be of a version that lacks it.
                function = getattr(namespace, name, None)
                function = function.func if isinstance(function, curry) else function
                if function is not None:
                    before = found.get(id(function), (function, _NONE))[1]
                    found[id(function)] = function, before | traits
    return found


def _with(*traits: str) -> frozenset[str]:
    unknown = set(traits) - TRAITS.keys()
    if unknown:
        raise ValueError(f"no such traits of functions: {', '.join(sorted(unknown))}")
    return frozenset(traits).union(*(IMPLIED.get(trait, ()) for trait in traits))


def own(*traits: str, shown: str | None = None) -> Callable[[_Function], _Function]:
    """Return a decorator that gives traits to a function of gpusched's own.

    Parameters
    ----------
    *traits
        What it has, of `TRAITS`.
    shown
        The name that users see: that of the function of dask's which it is called instead of; empty
        for one that is called instead of none.

    Examples
    --------
    >>> from gpusched.record.catalogue import has, own
    >>> @own("quick")
    ... def first(values):
    ...     return values[0]
    >>> has(first, "quick"), has(first, "view")
    (True, False)
    """

    def decorate(function: _Function) -> _Function:
        setattr(function, _OWN, _with(*traits))
        if shown is not None:
            setattr(function, _SHOWN, shown)
        return function

    return decorate


def shown_name(function: Any) -> str | None:
    """Return the name that users see of a function of gpusched's own; None if that is its name.

    Examples
    --------
    >>> from gpusched.record.catalogue import own, shown_name
    >>> @own("keeps", shown="concatenate")
    ... def own_part(part):
    ...     return part.copy()
    >>> shown_name(own_part), shown_name(max)
    ('concatenate', None)
    """
    return vars(function).get(_SHOWN) if type(function) is types.FunctionType else None


def own_traits(function: Any) -> frozenset[str]:
    """Return the traits of a function of gpusched's own; none of any other one."""
    return vars(function).get(_OWN, _NONE) if type(function) is types.FunctionType else _NONE


def has(function: Any, trait: str) -> bool:
    """Return whether a function is known to have a trait; functions may be unhashable.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.catalogue import has
    >>> has(np.transpose, "view"), has(np.transpose, "recorded"), has(np.sort, "view")
    (True, True, False)
    """
    if type(function) is methodcaller:
        return method_has(function.method, trait)
    found = _table().get(id(function))
    return trait in (own_traits(function) if found is None else found[1])


def method_has(name: str, trait: str) -> bool:
    """Return whether an array's method is known to have a trait.

    Examples
    --------
    >>> from gpusched.record.catalogue import method_has
    >>> method_has("transpose", "view"), method_has("sort", "pure")
    (True, False)
    """
    return name in NAMES.get(trait, {}).get(METHODS, "").split()


FUSIBLE = "__gpusched_fusible__"
"""Attribute of functions whose author asked for them to be recorded."""


def fusible(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function as one that may be given lazy chunks.

    gpusched records NumPy's functions, and functions of your own that it can show to be safe.
    Mark others that you know to be: they must not change their arguments in place, nor depend on
    the exact type of them, nor handle exceptions of NumPy's.  A marked function that cannot be
    shown to be safe is recorded again for each chunk, since it may depend on something that
    changes; where it does what a lazy chunk cannot do, it runs on real arrays.

    Parameters
    ----------
    function : callable
        A function of chunks, as `dask.array.map_blocks` takes, a method, a partial application, or
        an object with ``__call__``. What it calls in the end is marked, and it is returned.

    Raises
    ------
    TypeError
        If it cannot be marked, as functions that are written in C.

    Examples
    --------
    >>> import gpusched, numpy as np
    >>> @gpusched.fusible
    ... def relu(x):
    ...     return np.maximum(x, 0)
    >>> class Scale:
    ...     factor = 2
    ...     @gpusched.fusible
    ...     def __call__(self, x):
    ...         return x * self.factor
    """
    try:
        setattr(_marked(function), FUSIBLE, True)
    except AttributeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{name} cannot be marked: mark a function that calls it") from None
    return function


def is_marked(function: Any) -> bool:
    """Return whether the author of a function, or of an object's ``__call__``, has marked it.

    Examples
    --------
    >>> from functools import partial
    >>> from gpusched.record.catalogue import fusible, is_marked
    >>> is_marked(partial(fusible(lambda x, n: x.clip(n)), n=1)), is_marked(max)
    (True, False)
    """
    function = _marked(function)
    called = inspect.getattr_static(type(function), "__call__", None)
    return bool(getattr(function, FUSIBLE, False) or getattr(called, FUSIBLE, False))


def _marked(function: Any) -> Any:
    """Return what has the mark of a function, a method or a partial application."""
    while type(function) is partial:
        function = function.func
    return function.__func__ if type(function) is types.MethodType else function


LIBRARIES: dict[str, str] = {}
"""By the module of the type that functions of a library have, or by their own module, the module
that knows those.

Its ``owns(function)`` returns whether a function is one of them, and leaves its arguments alone;
its ``form(function)`` what records it as it is now, or None if nothing can. It is imported for the
first such function.
"""


def _library_of(function: Any) -> Any:
    """Return the module that knows a function of another library; None if there is none."""
    name = LIBRARIES.get(type(function).__module__)
    if name is None:
        own = getattr(function, "__module__", None)
        name = LIBRARIES.get(own) if type(own) is str else None
    found = None if name is None else importlib.import_module(name)
    return found if found is not None and found.owns(function) else None


def is_foreign(function: Any) -> bool:
    """Return whether a function is one of another library that is known here.

    Examples
    --------
    >>> from gpusched.record.catalogue import is_foreign
    >>> is_foreign(max)
    False
    """
    return _library_of(function) is not None


def recorded_form(function: Any) -> OfLibrary | None:
    """Return what records a function of another library as it is now; else None."""
    library = _library_of(function)
    form: OfLibrary | None = None if library is None else library.form(function)
    return form


CHANGING = {"out": None, "copy": True, "overwrite_input": False}
"""Parameters through which a function changes what it is given, with the value that does not."""


def why_changing(function: Any, args: Any, kwargs: Any) -> Reason | None:
    """Return why a call of NumPy's may change what it is given; None if it does not.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.catalogue import why_changing
    >>> x = np.ones(3)
    >>> why_changing(np.sum, (x,), {}) is None
    True
    >>> why_changing(np.sum, (x, 0, None, x), {})
    'calls sum with out='
    >>> why_changing(np.put, (x, 0, 1), {})
    'calls put, which may change its arguments'
    """
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, np.ufunc) or is_foreign(function):
        given = _has_output(function, args, kwargs)
        return GraphBreak.CHANGES(f"calls {name} with out=") if given else None
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc) and name in ("reduce", "accumulate", "outer", "reduceat"):
        given = kwargs.get("out") is not None or len(args) > 3
        return GraphBreak.CHANGES(f"calls {owner.__name__}.{name} with out=") if given else None
    if not has(function, "pure"):
        return GraphBreak.CHANGES(f"calls {name}, which may change its arguments")
    return _why(name, _signature(function), args, kwargs)


def why_method_changing(name: str, args: Any, kwargs: Any) -> Reason | None:
    """Return why a method of an array's may change it or its arguments; None if it does not.

    Parameters
    ----------
    name
        Of the method.
    args, kwargs
        What it is given besides the array.
    """
    if not method_has(name, "pure"):
        return GraphBreak.CHANGES(f"calls the method {name}, which may change the array")
    if kwargs.get("out") is not None:
        return GraphBreak.CHANGES(f"calls {name} with out=")
    signature = _signature(getattr(np, name, None))
    if signature is None or "out" not in signature.parameters:
        return None  # nor has the method
    return _why(name, signature, (None, *args), kwargs)


def _why(name: str, signature: inspect.Signature | None, args: Any, kwargs: Any) -> Reason | None:
    if signature is None:
        return GraphBreak.CHANGES(f"calls {name}, whose parameters are not known")
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        return GraphBreak.CHANGES(f"calls {name}: {error}")  # NumPy says so on real arrays
    parameter = _asked(given)
    return GraphBreak.CHANGES(f"calls {name} with {parameter}=") if parameter else None


def _has_output(ufunc: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return len(args) > getattr(ufunc, "nin", len(args)) or kwargs.get("out") is not None


def changing_place(function: Any) -> int | None:
    """Return the place of the first argument by which a function may be asked for a change.

    None if there is no such place, or if it is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.catalogue import changing_place
    >>> changing_place(np.clip), changing_place(np.nan_to_num), changing_place(np.where)
    (3, 1, None)
    """
    signature = _signature(function)
    parameters = signature.parameters.values() if signature is not None else ()
    places = [k for k, p in enumerate(parameters) if p.name in CHANGING and p.kind <= 1]
    return min(places, default=None)


def _asked(given: Mapping[str, Any]) -> str | None:
    """Return the parameter by which a call asks for a change; None if it does not."""
    given = {**given, **given.get("kwargs", {})}
    asked = [name for name, least in CHANGING.items() if given.get(name, least) is not least]
    return asked[0] if asked else None


def asks_for_change(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call of a function that changes nothing by itself asks it for a change.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.catalogue import asks_for_change
    >>> x = np.ones(3)
    >>> [asks_for_change(np.nan_to_num, args, {}) for args in ((x,), (x, True), (x, False))]
    [False, False, True]
    """
    if isinstance(function, np.ufunc) or has(function, "pure"):
        return why_changing(function, args, kwargs) is not None
    # Other functions may have parameters of these names that mean something else.
    return kwargs.get("out") is not None


@lru_cache(maxsize=512)
def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # not a function, or compiled without a signature
        return None
