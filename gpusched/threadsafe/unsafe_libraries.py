"""Libraries that are known not to be thread-safe, what protects them, and who says so.

The table of docs/reference/thread-safety.md is made from this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpusched import config
from gpusched.threadsafe.policies import parse

OFF = "off"
"""The policy of what is left as it is."""


@dataclass(frozen=True)
class Case:
    """One library.

    Examples
    --------
    >>> from gpusched.threadsafe.unsafe_libraries import CASES
    >>> next(case.policy for case in CASES if case.library == "netCDF4")
    'lock(hdf5)'
    """

    library: str
    """Its name in Python."""
    policy: str
    """As in settings; `OFF` for none."""
    targets: tuple[str, ...]
    """What is replaced, as ``module:name``; ``*`` stands for all public functions and classes, and
    after a class for all its public methods."""
    why: str
    """What goes wrong, in one sentence."""
    evidence: tuple[str, ...]
    """Addresses of upstream pages and threads that say so."""
    results: bool = False
    """Whether what calls return is wrapped, too. Not where it is passed to unwrapped C code."""
    only_while: str = ""
    """The attribute of a method's object that must be true for the policy to hold."""
    joins: str = ""
    """A lock of the library's own, as ``module:name``, taken after the policy's each time."""


def _methods(module: str, kind: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}:{kind}.{name}" for name in names)


_GITHUB = "https://github.com/"

CASES = (
    Case(
        "netCDF4", "lock(hdf5)", ("netCDF4:*",),
        "The C libraries netCDF and HDF5 share state between files, and the GIL is released "
        "inside; concurrent calls crash, also on different files.",
        (f"{_GITHUB}Unidata/netcdf4-python/issues/844",
         f"{_GITHUB}Unidata/netcdf4-python/issues/1405",
         f"{_GITHUB}Unidata/netcdf-c/issues/1373"),
        results=True,
    ),
    Case(
        "h5py", "lock(hdf5)", (),
        "h5py takes a lock of its own around each call, which other users of the same HDF5 "
        "library do not; calls under this policy take it, too.",
        ("https://docs.h5py.org/en/stable/threads.html",
         f"{_GITHUB}opendatacube/datacube-core/issues/704"),
        joins="h5py._objects:phil",
    ),
    Case(
        "tables", "lock(hdf5)", ("tables:open_file",),
        "PyTables keeps a registry of files without a lock, and does not lock HDF5.",
        (f"{_GITHUB}PyTables/PyTables/blob/master/doc/source/cookbook/threading.rst",),
        results=True,
    ),
    Case(
        "rasterio", "lock(gdal, each=True)",
        _methods("rasterio.io", "DatasetReader", "read", "read_masks", "dataset_mask", "sample",
                 "statistics", "close")
        + _methods("rasterio.io", "DatasetWriter", "read", "read_masks", "write", "write_mask",
                   "write_colormap", "build_overviews", "update_tags", "close"),
        "A dataset of GDAL's may be used by one thread at a time; different ones may run at once.",
        ("https://gdal.org/user/multithreading.html",
         f"{_GITHUB}rasterio/rasterio/issues/2847",
         f"{_GITHUB}pydata/xarray/pull/1260"),
    ),
    Case(
        "osgeo", "lock(osgeo)",
        ("osgeo.gdal:MajorObject.*", "osgeo.gdal:Dataset.*", "osgeo.gdal:Band.*",
         "osgeo.ogr:MajorObject.*", "osgeo.ogr:DataSource.*", "osgeo.ogr:Layer.*"),
        "A dataset, its bands and its layers may be used by one thread at a time; which of them "
        "belong together is not known, so that all wait for each other.",
        ("https://gdal.org/user/multithreading.html",
         "https://gdal.org/development/rfc/rfc101_raster_dataset_threadsafety.html"),
    ),
    Case(
        "pyfftw.builders", "per_thread(fftw)", ("pyfftw.builders:*",),
        "A plan owns its input and output arrays, so two threads that execute one plan overwrite "
        "each other's; planning itself has pyFFTW's own lock.",
        ("https://fftw.org/fftw3_doc/Thread-safety.html",
         f"{_GITHUB}pyFFTW/pyFFTW/pull/78", f"{_GITHUB}pyFFTW/pyFFTW/issues/346"),
        results=True,
    ),
    Case(
        "matplotlib", "lock(matplotlib)",
        (*_methods("matplotlib.figure", "Figure", "savefig", "draw", "tight_layout"),
         *_methods("matplotlib.backend_bases", "FigureCanvasBase", "print_figure"),
         "matplotlib.pyplot:*"),
        "Fonts, the parser of mathematical text and pyplot's current figure are shared by all "
        "figures; drawing in two threads crashes.",
        ("https://matplotlib.org/stable/users/faq.html#work-with-threads",
         f"{_GITHUB}matplotlib/matplotlib/issues/19560",
         f"{_GITHUB}matplotlib/matplotlib/issues/26289"),
    ),
    Case(
        "torch", "lock(torch training)", ("torch.nn.modules.module:Module.__call__",),
        "In training mode a module's call changes its buffers, such as running means, and "
        "concurrent ones have crashed in cuDNN; evaluation is left alone.",
        (f"{_GITHUB}pytorch/pytorch/issues/1868",
         f"{_GITHUB}libffcv/ffcv/issues/183",
         f"{_GITHUB}pytorch/pytorch/issues/23920"),
        only_while="training",
    ),
    Case(
        "keras", "lock(keras)",
        _methods("keras", "Model", "fit", "evaluate", "predict", "train_on_batch",
                 "test_on_batch", "predict_on_batch"),
        "A model builds its functions at the first call, without a lock.",
        (f"{_GITHUB}keras-team/keras/issues/6124",
         f"{_GITHUB}keras-team/keras/pull/13116",
         f"{_GITHUB}tensorflow/tensorflow/issues/61298"),
    ),
    Case(
        "tensorflow", "lock(tensorflow graphs)",
        _methods("tensorflow", "Graph", "create_op", "_create_op_internal"),
        "Adding operations to a graph is not thread-safe; running a session is.",
        ("https://www.tensorflow.org/api_docs/python/tf/Graph",
         f"{_GITHUB}keras-team/keras/issues/5640"),
    ),
    Case(
        "jax", OFF, (),
        "Functions may be called, and compiled, in any number of threads.",
        ("https://docs.jax.dev/en/latest/concurrency.html", f"{_GITHUB}jax-ml/jax/issues/1037"),
    ),
    Case(
        "onnxruntime", OFF,
        _methods("onnxruntime.capi.onnxruntime_inference_collection", "Session", "run",
                 "run_with_iobinding", "run_with_ort_values"),
        "A session has no state that a run changes.",
        (f"{_GITHUB}microsoft/onnxruntime/issues/114",
         f"{_GITHUB}microsoft/onnxruntime/issues/22967"),
    ),
    Case(
        "sklearn", OFF, (),
        "Predictions and transformations only read what was fitted, as far as is known; fitting "
        "an estimator that others use is not safe. `gpusched.apply` keeps to a policy set here.",
        (f"{_GITHUB}scikit-learn/scikit-learn/issues/18530",),
    ),
    Case(
        "cupy", OFF, (),
        "CuPy itself keeps cuFFT plans, cuBLAS and cuSOLVER handles for each thread and device; "
        "handles that you make yourself want per_thread.",
        ("https://docs.cupy.dev/en/stable/reference/generated/cupy.fft._cache.PlanCache.html",
         f"{_GITHUB}cupy/cupy/issues/1109", f"{_GITHUB}cupy/cupy/pull/2053"),
    ),
    Case(
        "sqlite3", OFF, ("sqlite3:connect",),
        "A connection used by another thread than its own raises an error by itself; with "
        "one_thread(each=True) it works instead.",
        (f"{_GITHUB}python/cpython/issues/128697",
         "https://docs.python.org/3/library/sqlite3.html#sqlite3.connect"),
        results=True,
    ),
)  # fmt: skip
"""Every known library."""


def cases() -> tuple[Case, ...]:
    """Return the known libraries with the policies that the settings give them.

    Raises `ValueError` if a setting is not a policy.

    Examples
    --------
    >>> import dask.config
    >>> from gpusched.threadsafe.unsafe_libraries import cases
    >>> with dask.config.set({"gpusched.threadsafe.policies": {"mylibrary": "lock"}}):
    ...     cases()[-1].targets
    ('mylibrary:*',)
    """
    chosen: Mapping[str, Any] = config.get("threadsafe.policies") or {}
    texts = {library: _text(policy) for library, policy in chosen.items()}
    known = tuple(replace(c, policy=texts.pop(c.library, c.policy)) for c in CASES)
    return known + tuple(
        Case(library, policy, (f"{library}:*",), "Set by you.", (), results=True)
        for library, policy in texts.items()
    )


def _text(policy: Any) -> str:
    # YAML reads a bare "off" as false.
    if policy is False or policy == OFF:
        return OFF
    return str(parse(policy))
