"""Kernel -> readable Python source: a scalar `point` function and the loops around it.

The same text runs in plain Python (the reference, and what pdb steps through) and through numba
on the CPU.  Two small functions hide pointer arithmetic: ``shift(a, k)`` is `a` starting `k`
elements further, ``element(a, k)`` its element `k`, where `k` may be negative.
"""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from string import ascii_lowercase

import numpy as np

from gpusched.fusion import editions, scalars
from gpusched.fusion.kernel import EXACT, Access, Kernel, Output, Statement
from gpusched.fusion.operations import DEFINED, ScalarFunction, named
from gpusched.fusion.parsing import parse

BLOCK = 512
"""Elements summed in one go before the partial sum joins a wider, compensated total."""

PART = 512
"""Elements that a streamed kernel computes in the cache before they go to memory at once."""

VERSION = 2
"""Raise when the same kernel generates other source."""


def block(kernel: Kernel) -> int:
    """Return the elements that a reduction joins before their result joins the rest."""
    return kernel.options.block or BLOCK


def input_names(kernel: Kernel) -> list[str]:
    """Return the names of the kernel's inputs in its source: a, b, ..., y, a1, ..."""
    # The others are the loops' own, here and on GPUs, or begin the names of sizes and constants.
    letters = [c for c in ascii_lowercase if c not in "ijnstxz"]
    count = len(letters)
    names = range(len(kernel.inputs))
    return [letters[k % count] + (str(k // count) if k >= count else "") for k in names]


def output_names(kernel: Kernel) -> list[str]:
    """Return the names of the kernel's outputs in its source."""
    if len(kernel.outputs) == 1:
        return ["out"]
    return [f"out{k}" for k in range(len(kernel.outputs))]


def parameter_names(kernel: Kernel) -> list[str]:
    """Return the names of the user's constants that are passed at launch."""
    return [f"s{k}" for k in range(len(kernel.parameters))]


def stride_names(kernel: Kernel) -> list[tuple[int, int, str]]:
    """Return (operand, loop, name) of each stride passed at launch."""
    names = input_names(kernel) + output_names(kernel)
    return [
        (k, level, f"{names[k]}_s{level}")
        for k, operand in enumerate(kernel.operands)
        for level, access in enumerate(operand.access)
        if access is Access.STRIDED
    ]


def arguments(kernel: Kernel) -> list[str]:
    """Return the kernel's arguments in order: arrays, constants, loop sizes, strides."""
    sizes = [f"n{level}" for level in range(len(kernel.loops))]
    strides = [name for _, _, name in stride_names(kernel)]
    arrays = input_names(kernel) + output_names(kernel)
    return arrays + parameter_names(kernel) + sizes + strides


@lru_cache(maxsize=1)
def _helpers() -> dict[str, str]:
    """Return the source of each function in `scalars` by name."""
    tree = parse(inspect.getsource(scalars))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    return {n.name: ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef)}


def expression(statement: Statement, operands: list[str]) -> str:
    """Return the Python expression of one statement."""
    kind = np.dtype(statement.operand).kind
    template = named(statement.operation).template(kind, statement.output)
    if template is None:
        raise KeyError(f"{statement.operation} has no template for {statement.operand}")
    width = "f32" if statement.operand == "float32" else "f64"
    return template.format(*operands, T=statement.dtype, P=statement.operand, W=width)


def point_source(kernel: Kernel) -> str:
    """Return the source of the scalar function: one NumPy operation a line, its dtype beside it."""
    names: list[str] = input_names(kernel) + parameter_names(kernel)
    lines = [f"def point({', '.join(names)}):"]
    called: dict[tuple[str, tuple[str, ...]], str] = {}
    for number, statement in enumerate(kernel.statements):
        operands = [a if isinstance(a, str) else names[a] for a in statement.arguments]
        simple = [o if o.isidentifier() or "(" in o else f"({o})" for o in operands]
        target = f"t{number}"
        if statement.operation in DEFINED and len(named(statement.operation).templates) > 1:
            # Called once for all of its results.
            call = statement.operation, tuple(simple)
            if call not in called:
                called[call] = f"all{number}"
                lines.append(f"    all{number} = {call[0]}({', '.join(simple)})")
            simple = [called[call]]
        code = f"    {target} = {expression(statement, simple)}"
        lines.append(f"{code:<48}  # {statement.dtype}  {statement.operation}")
        names.append(target)
    results = [o.value if isinstance(o.value, str) else names[o.value] for o in kernel.outputs]
    lines.append(f"    return {', '.join(results)}")
    return "\n".join(lines)


def defined_functions(kernel: Kernel) -> dict[str, ScalarFunction]:
    """Return the users' functions that a kernel's source calls, by the names it has for them."""
    used = [s.operation for s in kernel.statements]
    used += [o.combine for o in kernel.outputs if o.combine]
    functions = {name: named(name).function for name in used}
    return {name: function for name, function in functions.items() if function is not None}


def helper_source(point: str) -> str:
    """Return the source of the functions of `scalars` that `point` calls."""
    used = [text for name, text in _helpers().items() if f"{name}(" in point]
    return "".join(f"{text}\n\n\n" for text in used)


class _Loops:
    """Writes the loop nest of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.inputs = input_names(kernel)
        self.outputs = output_names(kernel)
        self.operands = kernel.operands
        self.lines = [f"def kernel({', '.join(arguments(kernel))}):"]
        self.depth = 1
        self.current = dict(
            zip(self.inputs + self.outputs, self.inputs + self.outputs, strict=True)
        )

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def open(self, line: str) -> None:
        self.write(line)
        self.depth += 1

    def source(self) -> str:
        innermost = len(self.kernel.loops) - 1
        if self.kernel.checked:
            self.write("clear_floating_point_errors()")
        if self.kernel.streamed:
            for name in self.outputs:
                self.write(f"{name}_part = scratch({name})")
        for level in range(innermost):
            self.open(f"for i{level} in range(n{level}):")
            for name, operand in zip(self.inputs + self.outputs, self.operands, strict=True):
                if operand.access[level] is Access.STRIDED:
                    self.advance(name, f"i{level} * {name}_s{level}", f"_{level}")
        if self.kernel.reduces_innermost:
            self.reduce(innermost)
        elif self.kernel.streamed:
            self.stream(innermost)
        else:
            self.map(innermost)
        self.depth = 1
        if self.kernel.streamed:
            self.write("drain()")
        if self.kernel.checked:
            self.write("return floating_point_errors()")
        return "\n".join(self.lines)

    def advance(self, name: str, distance: str, suffix: str) -> None:
        self.write(f"{name}{suffix} = shift({self.current[name]}, {distance})")
        self.current[name] = name + suffix

    def values(self, level: int, index: str) -> str:
        """Return the arguments of `point` at `index`."""
        found = []
        for name, operand in zip(self.inputs, self.kernel.inputs, strict=True):
            array, access = self.current[name], operand.access[level]
            if access is Access.BROADCAST:
                found.append(f"{name}_value")
            elif access is Access.UNIT:
                found.append(f"{array}[{index}]")
            else:
                found.append(f"element({array}, {index} * {name}_s{level})")
        return ", ".join(found + parameter_names(self.kernel))

    def hoist(self, level: int) -> None:
        """Read what does not move in the innermost loop."""
        for name, operand in zip(self.inputs, self.kernel.inputs, strict=True):
            if operand.access[level] is Access.BROADCAST:
                self.write(f"{name}_value = {self.current[name]}[0]")

    def place(self, name: str, output: Output, level: int, index: str) -> str:
        array, access = self.current[name], output.access[level]
        if access is Access.BROADCAST:
            return f"{array}[0]"
        return (
            f"{array}[{index}]" if access is Access.UNIT else f"{array}[{index} * {name}_s{level}]"
        )

    def map(self, level: int) -> None:
        self.hoist(level)
        self.open(f"for i in range(n{level}):")
        outputs = list(zip(self.outputs, self.kernel.outputs, strict=True))
        places = [self.place(name, output, level, "i") for name, output in outputs]
        call = f"point({self.values(level, 'i')})"
        if not self.kernel.reduces:
            self.write(f"{', '.join(places)} = {call}")
            return
        self.write(f"{', '.join(f'value{k}' for k in range(len(outputs)))} = {call}")
        for k, (place, (_, output)) in enumerate(zip(places, outputs, strict=True)):
            self.write(f"{place} = {combine(output, place, f'value{k}')}")

    def stream(self, level: int) -> None:
        """Compute parts where they stay in the cache, and write each past it to memory.

        A line of memory that is written whole that way is not read first, as it is otherwise.
        """
        self.hoist(level)
        self.open_blocks(level, PART)
        self.write(f"count = min({PART}, n{level} - start)")
        self.open("for i in range(count):")
        places = ", ".join(f"{name}_part[i]" for name in self.outputs)
        self.write(f"{places} = point({self.values(level, 'i')})")
        self.depth -= 1
        for name in self.outputs:
            self.write(f"stream(shift({self.current[name]}, start), {name}_part, count)")

    def open_blocks(self, level: int, size: int) -> None:
        """Open a loop over blocks of the innermost loop, each input at its start in them."""
        self.open(f"for start in range(0, n{level}, {size}):")
        for name, operand in zip(self.inputs, self.kernel.inputs, strict=True):
            if operand.access[level] is Access.UNIT:
                self.advance(name, "start", "_block")
            elif operand.access[level] is Access.STRIDED:
                self.advance(name, f"start * {name}_s{level}", "_block")

    def reduce(self, level: int) -> None:
        self.hoist(level)
        outputs = list(zip(self.outputs, self.kernel.outputs, strict=True))
        for k, (_, output) in enumerate(outputs):
            self.write(f"total{k} = {identity(output, output.dtype)}")
            if _compensated(output):
                self.write(f"lost{k} = {identity(output, output.dtype)}")
        size = block(self.kernel)
        self.open_blocks(level, size)
        for k, (_, output) in enumerate(outputs):
            self.write(f"part{k} = {identity(output, output.value_dtype)}")
        self.open(f"for i in range(min({size}, n{level} - start)):")
        names = ", ".join(f"value{k}" for k in range(len(outputs)))
        self.write(f"{names} = point({self.values(level, 'i')})")
        for k, (_, output) in enumerate(outputs):
            self.write(f"part{k} = {combine(output, f'part{k}', f'value{k}', output.value_dtype)}")
        self.depth -= 1
        for k, (_, output) in enumerate(outputs):
            if _compensated(output):
                self.write(f"total{k}, lost{k} = compensated_add(total{k}, lost{k}, part{k})")
            else:
                self.write(f"total{k} = {combine(output, f'total{k}', f'part{k}')}")
        self.depth -= 1
        for k, (name, output) in enumerate(outputs):
            total = f"total{k}"
            if _compensated(output):
                self.write(f"total{k} = total{k} + lost{k} if lost{k} != 0 else total{k}")
            place = f"{self.current[name]}[0]"
            self.write(f"{place} = {combine(output, place, total)}")


def _compensated(output: Output) -> bool:
    return output.combine == "add" and output.dtype == "float64"


def combine(output: Output, so_far: str, value: str, dtype: str = "") -> str:
    """Return the expression that joins two values of a reduction."""
    assert output.combine is not None
    dtype = dtype or output.dtype
    operands = [
        text if "]" in text or text.isidentifier() else f"({text})" for text in (so_far, value)
    ]
    return expression(Statement(output.combine, 0, (), dtype, dtype), operands)


def identity_value(combine_name: str, dtype: np.dtype) -> bool | int | float:
    """Return the value that changes nothing when joined.

    Examples
    --------
    >>> identity_value("minimum", np.dtype("int8"))
    127
    """
    if combine_name in DEFINED:
        return dtype.type(DEFINED[combine_name].identity).item()
    if combine_name in ("add", "logical_or"):
        if dtype.kind == "f":
            return -0.0
        return False if dtype.kind == "b" else dtype.type(0).item()
    if combine_name in ("multiply", "logical_and"):
        return True if dtype.kind == "b" else dtype.type(1).item()
    low = combine_name in ("maximum", "fmax")
    if dtype.kind == "f":
        return float("nan") if combine_name in ("fmin", "fmax") else (-np.inf if low else np.inf)
    if dtype.kind == "b":
        return not low
    limits = np.iinfo(dtype)
    return int(limits.min if low else limits.max)


def identity(output: Output, dtype: str) -> str:
    """Return the identity of a reduction as source."""
    assert output.combine is not None
    return literal(identity_value(output.combine, np.dtype(dtype)), dtype)


def literal(value: bool | int | float, dtype: str) -> str:
    """Return a number as source of exactly that dtype.

    Examples
    --------
    >>> literal(0.5, "float32")
    'float32(0.5)'
    """
    return repr(bool(value)) if dtype == "bool" else f"{dtype}({value!r})"


def header(kernel: Kernel, title: str) -> str:
    """Return the comments above a kernel: its arrays, and its mathematics where not exact."""
    names = input_names(kernel) + output_names(kernel)
    lines = [f"# {title}, written by gpusched"]
    lines += [
        f"#   {name}: {o.dtype} [{', '.join(o.access)}]"
        for name, o in zip(names, kernel.operands, strict=True)
    ]
    if kernel.mathematics != EXACT:
        lines.append(f"#   mathematics: {kernel.mathematics}")
    return "\n".join(lines)


def _loops(kernel: Kernel) -> str:
    """Return the source of the loops, in which subnormal numbers are zero where fast is enough."""
    text = _Loops(kernel).source()
    if kernel.mathematics == EXACT:
        return text
    head, *body = text.split("\n")
    last = [body.pop()] if kernel.checked else []
    before, after = "    before = flush_subnormals()", "    restore_subnormals(before)"
    return "\n".join([head, before, *body, after, *last])


def source(kernel: Kernel) -> str:
    """Return the whole text of a kernel for the CPU and for plain Python."""
    if kernel.edition is not None:
        return editions.with_loops(kernel.edition, "cpu", _loops(kernel))
    point = point_source(kernel)
    parts = [helper_source(point) + point, _loops(kernel)]
    return "\n\n\n".join([header(kernel, kernel.name), *parts]) + "\n"
