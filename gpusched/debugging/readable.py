"""A kernel's source with the user's names, run in plain Python: whole, or at one element."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from gpusched.backends import python
from gpusched.debugging.origins import broadcast
from gpusched.emit import hostloops
from gpusched.emit.parsing import register
from gpusched.inspection.source import annotated
from gpusched.inspection.variant import KernelUse
from gpusched.plan.expression import Apply, Node, Reduce, Scan, Segments
from gpusched.plan.layout import passed
from gpusched.plan.plan import Allocation
from gpusched.store import codefiles, kernelfiles
from gpusched.store.kernelfiles import directory

Index = tuple[int, ...]
STOP = "__gpusched_stop__"
"""What a function's source calls, with its arguments, to learn whether to stop there."""


class ReadableKernel:
    """One launch of a kernel, as `gpusched.explain` shows its source.

    Parameters
    ----------
    use
        The launch, on the arrays that it is to be run on.
    """

    def __init__(self, use: KernelUse) -> None:
        self.use = use
        plain = hostloops.source(use.kernel, checked=False)
        self.edited = use.kernel.original is not None
        """Whether it is the user's version of a kernel, which has names of its own."""
        self.text = plain if self.edited else annotated(use, plain)
        self._plain = ast.parse(plain)

    @cached_property
    def filename(self) -> str:
        """A file with the source, or a made-up name where nothing is kept on disk."""
        return shown(self.text, self.use.kernel.name)

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def statements(self) -> tuple[tuple[str, str], ...]:
        """Of each statement, the variable and the expression; none of a user's version."""
        if self.edited:
            return ()
        named, plain = _point(self._tree).body, _point(self._plain).body
        lines = self.text.splitlines()
        found: list[tuple[str, str]] = []
        shared: dict[str, str] = {}
        for mine, original in zip(named[:-1], plain, strict=False):
            code = lines[mine.lineno - 1].partition("  # ")[0].strip()
            name, _, expression = code.partition(" = ")
            if _is_statement(original):
                for call, text in shared.items():
                    expression = expression.replace(f"{call}[", f"{text}[")
                found.append((name, expression))
            else:
                # A function with several results, called once for all of them.
                shared[name] = expression
        return tuple(found)

    @cached_property
    def parameters(self) -> list[str]:
        """What `point` takes: the kernel's inputs, then constants; none of a user's version."""
        if self.edited:
            return []
        return [argument.arg for argument in _point(self._tree).args.args]

    @cached_property
    def _all_values(self) -> Callable[..., Any]:
        """`point`, returning all of its values."""
        tree = ast.parse(self.text)
        names = ", ".join(f"{name}" for name, _ in self.statements)
        _point(tree).body[-1] = ast.parse(f"return ({names},)" if names else "return ()").body[0]
        ast.fix_missing_locations(tree)
        point: Callable[..., Any] = self._compiled(tree, {})["point"]
        return point

    def values(self, element: Index) -> tuple[Any, ...]:
        """Return the values of all statements at an element of the iteration space."""
        return self.values_of(*self.arguments(element))

    def values_of(self, *arguments: Any) -> tuple[Any, ...]:
        """Return the values of all statements for such arguments of `point`."""
        with np.errstate(all="ignore"):
            found: tuple[Any, ...] = self._all_values(*arguments)
        return found

    def arguments(self, element: Index) -> tuple[Any, ...]:
        """Return what `point` is given at an element of the iteration space."""
        builder = self.use.builder
        read = [
            python.Window(array)  # which kernels get, too
            if number in builder.tables
            else array[broadcast(builder.place(number, element), array.shape)]
            for number, array in zip(self.use.kernel.values, self.arrays, strict=True)
        ]
        return (*read, *self.use.launch.constants)

    @property
    def arrays(self) -> list[Any]:
        """The inputs that `point` takes."""
        builder = self.use.builder
        return [builder.arrays[builder.registers[k]] for k in self.use.kernel.values]

    def stopping(self, wanted: Callable[..., bool]) -> Callable[..., Any]:
        """Return the kernel in plain Python, stopping in `point` where that is wanted.

        Returns
        -------
        Callable
            To be called as compiled kernels are.
        """
        tree = ast.parse(self.text)
        insert_stop(_first_function(tree))
        return self._call(self._compiled(tree, {STOP: wanted}))

    def _compiled(self, tree: ast.Module, names: dict[str, Any]) -> dict[str, Any]:
        return python.define(self.use.kernel, tree, self.filename, names)

    def _call(self, found: dict[str, Any]) -> Callable[..., Any]:
        return python.callable_of(self.use.kernel, found)

    def at(self, call: Callable[..., Any], output: int, element: Index) -> Any:
        """Return one element of an output, computed by a call of the kernel for it alone."""
        builder, launch = self.use.builder, self.use.launch
        allocations = launch.outputs
        where = self.region(element)
        inputs = [builder.part(number, where) for number in range(len(builder.registers))]
        if isinstance(node := builder.group.nodes[0], Segments):
            marks = self.use.kernel.labels
            assert marks is not None
            inputs[marks] = np.where(inputs[marks] == element[node.axes[0]], 0, -1)
        numbers = self._numbers(where)
        if isinstance(node, Scan):
            steps = [self._step(k) * element[node.axes[0]] for k in range(len(allocations))]
        else:
            steps = [0] * len(allocations)
        buffers = [_buffer(a, 1 + step) for a, step in zip(allocations, steps, strict=True)]
        call(*inputs, *buffers, *numbers)
        return _finished(allocations[output], buffers[output][steps[output] :])

    def _step(self, output: int) -> int:
        """Return the elements of an output from one to the next along the loop that is scanned."""
        loops = self.use.launch.loops
        return loops.strides[len(self.use.kernel.inputs) + output][loops.reduced.index(True)]

    def region(self, element: Index) -> tuple[slice, ...]:
        """Return the part of the iteration space that an output's element is made of."""
        group = self.use.builder.group
        node = group.nodes[0]
        kept = list(element)
        if isinstance(node, Scan):
            return tuple(
                slice(0 if axis in group.axes else k, k + 1) for axis, k in enumerate(kept)
            )
        if isinstance(node, Reduce) and not node.keepdims and not isinstance(node, Segments):
            for axis in group.axes:
                kept.insert(axis, 0)
        return tuple(
            slice(None) if axis in group.axes else slice(k, k + 1) for axis, k in enumerate(kept)
        )

    def _numbers(self, where: tuple[slice, ...]) -> tuple[Any, ...]:
        """Return constants, loop sizes and strides for one element of the outputs."""
        loops, joined = self.use.launch.loops, self.use.builder.group.nodes[0]
        sizes = [n if own else 1 for n, own in zip(loops.sizes, loops.reduced, strict=True)]
        if isinstance(joined, Scan):
            sizes[loops.reduced.index(True)] = where[joined.axes[0]].stop
        found = replace(loops, sizes=tuple(sizes))
        return passed(self.use.kernel, self.use.launch.constants, found)


def _buffer(allocation: Allocation, size: int) -> Any:
    initial = 0 if allocation.initial is None else allocation.initial
    return np.full(size, initial, allocation.dtype)


def _finished(allocation: Allocation, buffer: Any) -> Any:
    with np.errstate(over="ignore"):
        return buffer.astype(allocation.result_dtype)[0]


def needed(use: KernelUse, node: Node) -> set[int]:
    """Return the numbers of the statements that a result of a kernel is made of."""
    wanted: set[int] = set()
    work = [node.argument if isinstance(node, Reduce) else node]
    numbers = {id(each): number for number, each in enumerate(use.builder.order)}
    while work:
        each = work.pop()
        number = numbers.get(id(each))
        if number is not None and number not in wanted:
            wanted.add(number)
            assert isinstance(each, Apply)
            work += each.arguments
    return wanted


def _point(tree: ast.Module) -> ast.FunctionDef:
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "point")


def _first_function(tree: ast.Module) -> ast.FunctionDef:
    """Return `point`, or the loops of a user's version that has none."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return functions.get("point") or functions["kernel"]


def _is_statement(line: ast.stmt) -> bool:
    """Return whether a line of plain source is an operation."""
    assert isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)
    return line.targets[0].id.startswith("t")


def insert_stop(function: ast.FunctionDef) -> None:
    """Let a function stop before its first line, where `STOP` says so of its arguments.

    What is assigned counts as that line and what is called as the line above, so that debuggers,
    which stop at the next line or the next instruction, all stop there.
    """
    names = ", ".join(argument.arg for argument in function.args.args)
    # With `and`, what follows the call in the bytecode is the assignment, without a jump between.
    text = f"__stopped__ = {STOP}({names}) and breakpoint()"
    statement = ast.parse(text).body[0]
    first = function.body[0]
    assert isinstance(statement, ast.Assign)
    for node in ast.walk(statement):
        ast.copy_location(node, function.args.args[0] if function.args.args else function)
    for target in (statement, statement.targets[0]):
        ast.copy_location(target, first)
    function.body.insert(0, statement)


def shown(text: str, name: str) -> str:
    """Return the name of a file with that source, which debuggers can show.

    It is beside the compiled kernels; where nothing is kept on disk, the name is one that only
    `linecache` knows.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    root = directory()
    if root is not None:
        path = root / "debug" / f"{name}-{digest}.py"
        try:
            if not path.exists():
                codefiles.write(path, text.encode())
            return str(path)
        except OSError as error:
            kernelfiles.warn_unwritable(path, error)
    return register(f"<gpusched {name}-{digest}>", text)
