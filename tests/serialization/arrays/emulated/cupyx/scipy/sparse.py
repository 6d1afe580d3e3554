"""Sparse matrices that only know their parts."""

from __future__ import annotations

from typing import Any


class spmatrix:
    """Of any format."""

    format = ""
    names: tuple[str, ...] = ("data", "indices", "indptr")

    def __init__(self, arrays: Any, shape: Any) -> None:
        flat = [arrays[0], *arrays[1]] if self.format == "coo" else arrays
        for name, array in zip(self.names, flat, strict=True):
            setattr(self, name, array)
        self.shape = shape


class csr_matrix(spmatrix):
    format = "csr"


class csc_matrix(spmatrix):
    format = "csc"


class coo_matrix(spmatrix):
    format = "coo"
    names = ("data", "row", "col")


class dia_matrix(spmatrix):
    format = "dia"
    names = ("data", "offsets")
