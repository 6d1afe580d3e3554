"""Every name that an operation's source uses is bound for CUDA."""

from __future__ import annotations

import ast

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda compiles; it is in the extra cuda13")

from gpusched.backends.cuda import bindings
from gpusched.emit import generate
from gpusched.emit.operations import OPERATIONS

BUILTINS = {"abs", "min", "max", "True", "False"}


def names_used(source: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(source, mode="eval")) if isinstance(n, ast.Name)}


PARTS = {"complex", "real", "imag"}
"""Operations that are resolved before kernels are written: complex numbers are their parts."""


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - PARTS))
def test_names_of_templates_are_bound(name: str) -> None:
    bound = set(bindings.namespace()) | set(generate._helpers()) | BUILTINS | set("abcde")
    for table in OPERATIONS[name].templates:
        for kind, template in table.items():
            for width, dtype in (("f32", "float32"), ("f64", "float64")):
                # Kernels compute float16 in float32.
                others = {"b": "bool", "i": "int32", "u": "uint8", "e": "float32"}
                dtype = dtype if kind == "f" else others[kind]
                source = template.format(*"abcde", T=dtype, P=dtype, W=width)
                assert names_used(source) - {"bool"} <= bound
