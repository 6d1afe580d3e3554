"""Hands SciPy's LAPACK to the emulated cuBLAS and cuSOLVER, as addresses of C functions.

SciPy offers them to C code in the table of `scipy.linalg.cython_lapack` and `cython_blas`.
"""

from __future__ import annotations

import ctypes
from types import ModuleType

from . import emulator

_BLAS = ("trsm",)
_LAPACK = ("getrf", "getrs", "getri", "potrf", "potrs", "geqrf", "orgqr", "ormqr", "ungqr", "unmqr",
           "gesvd", "syevd", "heevd")  # fmt: skip
_bound = False


def install(_: ModuleType) -> None:
    """Hand them over, once; without SciPy the libraries say that they do not support a function."""
    global _bound
    if _bound:
        return
    _bound = True
    try:
        from scipy.linalg import cython_blas, cython_lapack
    except ModuleNotFoundError:
        return
    for module, names in ((cython_blas, _BLAS), (cython_lapack, _LAPACK)):
        table = module.__pyx_capi__
        for name in (letter + each for each in names for letter in "sdcz"):
            if name in table:  # Some are of real numbers only, or of complex ones.
                emulator.driver.emulator_set_lapack(name.encode(), _address(table[name]))


def _address(capsule: object) -> ctypes.c_void_p:
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    name = api.PyCapsule_GetName(ctypes.py_object(capsule))
    return ctypes.c_void_p(
        api.PyCapsule_GetPointer(ctypes.py_object(capsule), ctypes.c_char_p(name))
    )
