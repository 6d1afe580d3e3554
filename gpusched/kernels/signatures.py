"""Declared dtypes, and those that arguments are given to a kernel in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import DECLARABLE
from gpusched.kernels.errors import KernelError
from gpusched.kernels.typed import Dtypes, is_narrow

Kinds = tuple[Any, ...]
"""Of each argument: its dtype, or the type of a Python number, whose width adapts."""

_TEXT = re.compile(r"^\s*(?P<results>[\w\s,()]*?)\s*\((?P<arguments>[\w\s,]+)\)\s*$")


@dataclass(frozen=True)
class Signature:
    """What was declared."""

    results: Dtypes | None
    """None where they are inferred."""
    arguments: Dtypes | None = None
    """None where any are taken."""

    def accepts(self, kinds: Kinds) -> bool:
        """Return whether arguments can be given without loss."""
        if self.arguments is None:
            return True
        if len(kinds) != len(self.arguments):
            return False
        pairs = zip(kinds, self.arguments, strict=True)
        return all(_fits(kind, dtype) for kind, dtype in pairs)


def _fits(kind: Any, dtype: np.dtype) -> bool:
    if isinstance(kind, np.dtype):
        return bool(np.can_cast(kind, dtype, "safe"))
    return "biuf".index(dtype.kind) >= {bool: 0, int: 1, float: 3}[kind]


def parse(declared: Any) -> tuple[Signature, ...]:
    """Return what `declared` says: strings such as ``"float32(float32, int64)"``, or dtypes.

    Examples
    --------
    >>> parse("float32(float32, int64)")[0].results
    (dtype('float32'),)
    >>> parse("(float32, bool)(float64)")[0].arguments
    (dtype('float64'),)
    """
    if isinstance(declared, str):
        return (_parse_one(declared),)
    return tuple(_parse_one(text) for text in declared)


def _parse_one(text: str) -> Signature:
    match = _TEXT.match(text)
    if match is None:
        raise KernelError(
            f"{text!r} is not a signature; write for example 'float32(float32, int64)'"
        )
    results = dtypes_of(match["results"].strip("() \t").split(","))
    return Signature(results, dtypes_of(match["arguments"].split(",")))


def dtypes_of(declared: Any) -> Dtypes:
    """Return dtypes from one or several names, types or dtypes.

    Raises
    ------
    KernelError
        If kernels cannot hold one of them.
    """
    several = isinstance(declared, Iterable) and not isinstance(declared, str | np.dtype | type)
    found = []
    for item in declared if several else (declared,):
        try:
            dtype = np.dtype(item.strip() if isinstance(item, str) else item)
        except TypeError as error:
            raise KernelError(f"{item!r} is not a dtype") from error
        found.append(checked(dtype))
    return tuple(found)


def checked(dtype: np.dtype) -> np.dtype:
    """Return `dtype` in the machine's byte order; `KernelError` if kernels cannot hold it."""
    native = dtype.newbyteorder("=")
    if native not in DECLARABLE:
        raise KernelError(f"kernels hold bool, integers, float32 and float64; not {dtype}")
    return native


def resolve(
    signatures: tuple[Signature, ...], kinds: Kinds, name: str
) -> tuple[Dtypes, Dtypes | None]:
    """Return the dtypes that a kernel takes such arguments in, and the declared ones it returns.

    Without a declaration integers come as int64 (uint64 as itself), as Python's own; a Python
    float comes as float32 beside float32 arguments, and as float64 otherwise.

    Raises
    ------
    KernelError
        If no declared signature takes them.
    """
    chosen = next((s for s in signatures if s.accepts(kinds)), None)
    if signatures and chosen is None:
        shown = ", ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise KernelError(f"kernel {name} is not declared for ({shown})")
    if chosen is not None and chosen.arguments is not None:
        return chosen.arguments, chosen.results
    dtypes = [_widened(kind) if isinstance(kind, np.dtype) else None for kind in kinds]
    floating = np.dtype(np.float32 if is_narrow(tuple(d for d in dtypes if d)) else np.float64)
    weak = {bool: np.dtype(bool), int: np.dtype(np.int64), float: floating}
    found = tuple(d or weak[kind] for d, kind in zip(dtypes, kinds, strict=True))
    return found, chosen.results if chosen else None


def _widened(dtype: np.dtype) -> np.dtype:
    native = checked(dtype)
    return np.dtype(np.int64) if native.kind in "iu" and native != np.uint64 else native
