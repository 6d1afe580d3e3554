"""A raw kernel's tree -> plain Python: positions are variables, atomics calls, indices checked."""

from __future__ import annotations

import ast
from dataclasses import field
from typing import Any

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.emit.parsing import parse_expression
from gpusched.kernels.errors import NotCompiledError
from gpusched.kernels.host.cuda_names import (
    ATOMICS,
    WARP,
    CudaNames,
    Path,
    dtype_named,
    numpy_dtype,
)

AXES = ("x", "y", "z")
POSITIONS = {"threadIdx": "thread", "blockIdx": "block", "blockDim": "threads", "gridDim": "blocks"}
CONTEXT = tuple(f"{name}_{axis}" for name in POSITIONS.values() for axis in AXES)
"""Variables that hold where a thread is: ``thread_x`` and so on."""


@dataclass(frozen=True)
class Site:
    """An index in the user's file."""

    line: int
    array: str
    axis: int


@dataclass(frozen=True)
class Memory:
    """An array that a kernel declares."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    shared: bool
    """Whether a block has it, rather than each thread."""


@dataclass
class Rewritten:
    """A kernel without `numba.cuda`."""

    body: list[ast.stmt]
    parameters: list[str]
    memory: list[Memory] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    atomics: bool = False
    suffix: str = ""
    """What is put behind each name of ours, so that it is none of the user's."""


class Barrier(ast.Pass):
    """Where all threads of a block wait for each other."""


def rewrite(tree: ast.FunctionDef, names: CudaNames) -> Rewritten:
    """Return a kernel without `numba.cuda`.

    Raises
    ------
    NotCompiledError
        If it holds what has no counterpart on the CPU.
    """
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {*names.outside}
    parameters = [argument.arg for argument in tree.args.args]
    suffix = ""
    while any(_ours(name, suffix) for name in used | {*parameters}):
        suffix += "_"
    found = Rewritten([], parameters, suffix=suffix)
    rewriter = _Rewriter(names, found)
    for statement in tree.body:
        memory = rewriter.declared(statement)
        if memory is not None:
            found.memory.append(memory)
        else:
            found.body.append(rewriter.visit(statement))
    _check_declared(found)
    return found


_OURS = (*CONTEXT, "slot", "fault", "inside", "threads", "nan", "kernel", "whole")
_PREFIXES = ("kept_", "region_", "test_", "atomic_", "next_", "end_", "step_", "active_",
             "count_")  # fmt: skip


def _ours(name: str, suffix: str) -> bool:
    """Return whether a user's name could be one that is written here, with that suffix."""
    bare = name[: len(name) - len(suffix)]
    return name.endswith(suffix) and (bare in _OURS or bare.startswith(_PREFIXES))


def _check_declared(found: Rewritten) -> None:
    names = [memory.name for memory in found.memory]
    stored = [n.id for s in found.body for n in ast.walk(s)
              if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]  # fmt: skip
    for name in names:
        if names.count(name) > 1 or name in stored or name in found.parameters:
            raise NotCompiledError(f"{name} is more than one array")


class _Rewriter(ast.NodeTransformer):
    """Replaces what is of `numba.cuda`."""

    def __init__(self, names: CudaNames, found: Rewritten) -> None:
        self._names = names
        self._found = found

    def own(self, name: str) -> ast.Name:
        return ast.Name(name + self._found.suffix, ast.Load())

    # Memory -----------------------------------------------------------------------------

    def declared(self, statement: ast.stmt) -> Memory | None:
        """Return the memory that a statement declares, if it does."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                path = self._names.path(call.func)
                if path in (("shared", "array"), ("local", "array")):
                    assert path is not None
                    return self._memory(name, call, shared=path[0] == "shared")
        return None

    def _memory(self, name: str, call: ast.Call, shared: bool) -> Memory:
        given = dict(zip(("shape", "dtype"), call.args, strict=False))
        given |= {str(k.arg): k.value for k in call.keywords}
        if len(call.args) > 2 or given.keys() != {"shape", "dtype"}:
            raise NotCompiledError(f"{name} is declared with other than a shape and a dtype")
        shape = self._names.constant(given["shape"])
        lengths = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(n, int | np.integer) and n > 0 for n in lengths):
            raise NotCompiledError(f"{name} has the shape {shape!r}")
        dtype = numpy_dtype(self._names.constant(given["dtype"]))
        return Memory(name, tuple(map(int, lengths)), dtype, shared)

    # Names of numba.cuda ------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        path = self._names.path(node)
        return self.generic_visit(node) if path is None else self._value(path)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        path = self._names.path(node)
        return node if path is None else self._value(path)

    def _value(self, path: Path) -> ast.AST:
        """Return what stands for a name that is not called."""
        if len(path) == 2 and path[0] in POSITIONS and path[1] in AXES:
            return self.own(f"{POSITIONS[path[0]]}_{path[1]}")
        if path == ("warpsize",):
            return ast.Constant(WARP)
        raise _unknown(path)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call):
            path = self._names.path(node.value.func)
            if path == ("syncthreads",):
                return ast.copy_location(Barrier(), node)
            if path in (("threadfence",), ("threadfence_block",)):
                return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        path = self._names.path(node.func)
        if path is None:
            return self.generic_visit(node)
        if path[0] in ("grid", "gridsize") and len(path) == 1:
            return self._grid(path[0], node)
        if path[0] == "atomic" and len(path) == 2 and path[1] in (*ATOMICS, "cas"):
            return self._atomic(path[1], node)
        if len(path) == 1 and dtype_named(path[0]) is not None:
            raise NotCompiledError(f"cuda.{path[0]}(...) is a conversion; import it from numba")
        raise _unknown(path)

    def _grid(self, name: str, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(args=[ast.Constant(value=int(count))], keywords=[]) if 1 <= count <= 3:
                pass
            case _:
                raise NotCompiledError(f"{ast.unparse(node)} has no constant number of axes")
        text = "block_{0}{1} * threads_{0}{1} + thread_{0}{1}"
        if name == "gridsize":
            text = "blocks_{0}{1} * threads_{0}{1}"
        places = [_expression(text.format(a, self._found.suffix)) for a in AXES[:count]]
        return places[0] if count == 1 else ast.Tuple(places, ast.Load())

    def _atomic(self, name: str, node: ast.Call) -> ast.expr:
        expected = 4 if name == "cas" else 3
        if len(node.args) != expected or node.keywords:
            raise NotCompiledError(f"{ast.unparse(node)} needs {expected} arguments in order")
        array = node.args[0]
        if not isinstance(array, ast.Name):
            raise NotCompiledError(f"{ast.unparse(node)} changes an expression")
        index = self._checked(array, node.args[1], node.lineno)
        values = [self.visit(value) for value in node.args[2:]]
        self._found.atomics = True
        return ast.Call(self.own(f"atomic_{name.rstrip('_')}"), [array, index, *values], [])

    # Indices ------------------------------------------------------------------------------

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        base = node.value
        if isinstance(base, ast.Attribute) and base.attr in ("shape", "strides"):
            return self.generic_visit(node)
        if not isinstance(base, ast.Name):
            raise NotCompiledError(f"{ast.unparse(node)} is an index into an expression")
        node.slice = self._checked(base, node.slice, node.lineno)
        return node

    def _checked(self, array: ast.Name, index: ast.expr, line: int) -> ast.expr:
        """Return an index that is checked against the shape before it is used."""
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        checked = [self._item(array, item, axis, line) for axis, item in enumerate(items)]
        return ast.Tuple(checked, ast.Load()) if isinstance(index, ast.Tuple) else checked[0]

    def _item(self, array: ast.Name, item: ast.expr, axis: int, line: int) -> ast.expr:
        if isinstance(item, ast.Slice):
            ends = (item.lower, item.upper, item.step)
            return ast.Slice(*(end and self.visit(end) for end in ends))
        if isinstance(item, ast.Starred) or (
            isinstance(item, ast.Constant) and not isinstance(item.value, int)
        ):
            raise NotCompiledError(f"{ast.unparse(item)} is an index of {array.id}")
        self._found.sites.append(Site(line, array.id, axis))
        numbers: list[ast.expr] = [ast.Constant(axis), ast.Constant(len(self._found.sites) - 1)]
        name = ast.Name(array.id, ast.Load())
        return ast.Call(
            self.own("inside"), [self.visit(item), name, *numbers, self.own("fault")], []
        )

    # What has a scope or an order of its own ----------------------------------------------

    def _refuse(self, node: Any) -> ast.AST:
        raise NotCompiledError(f"it has {_WORDS[type(node).__name__]}")

    visit_FunctionDef = visit_Lambda = visit_ListComp = visit_SetComp = _refuse
    visit_DictComp = visit_GeneratorExp = visit_NamedExpr = visit_Match = visit_Delete = _refuse


_WORDS = {
    "FunctionDef": "a function inside", "Lambda": "a function inside",
    "ListComp": "a comprehension", "SetComp": "a comprehension", "DictComp": "a comprehension",
    "GeneratorExp": "a generator", "NamedExpr": "an assignment inside an expression",
    "Match": "a match statement", "Delete": "a del statement",
}  # fmt: skip


def _unknown(path: Path) -> NotCompiledError:
    return NotCompiledError(f"it uses cuda.{'.'.join(path)} where the CPU has nothing like it")


def _expression(text: str) -> ast.expr:
    return parse_expression(text)
