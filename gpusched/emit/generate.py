"""Kernel -> readable Python source: its scalar `point` function, its names, its reductions."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Container
from functools import cache
from string import ascii_lowercase

import numpy as np

from gpusched.emit import scalars
from gpusched.emit.dtypes import computed_name
from gpusched.emit.kernel import (
    BY_LINES,
    EXACT,
    FIRSTS,
    LAST_NUMBER,
    Access,
    Kernel,
    Output,
    Statement,
    Test,
)
from gpusched.emit.operations import DEFINED, JOINS, ScalarFunction, has, named
from gpusched.emit.parsing import parse, source_of


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
        if access in (Access.STRIDED, Access.LABELLED)
    ]


def arguments(kernel: Kernel) -> list[str]:
    """Return the kernel's arguments in order: arrays, constants, loop sizes, strides.

    Last comes how many rows were joined before, where the kernel `resumes`.
    """
    sizes = [f"n{level}" for level in range(len(kernel.loops))]
    strides = [name for _, _, name in stride_names(kernel)]
    arrays = input_names(kernel) + output_names(kernel)
    resumed = ["n_before"] if kernel.resumes else []
    return arrays + parameter_names(kernel) + sizes + strides + resumed


@cache
def helper(name: str) -> str:
    """Return the source of a function in `scalars`, without types."""
    function = parse(source_of(getattr(scalars, name)))
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    return ast.unparse(function)


def expression(statement: Statement, operands: list[str]) -> str:
    """Return the Python expression of one statement."""
    template = named(statement.operation).template(np.dtype(statement.operand), statement.output)
    if template is None:
        raise KeyError(f"{statement.operation} has no template for {statement.operand}")
    operand, result = computed_name(statement.operand), computed_name(statement.dtype)
    width = "f32" if operand == "float32" else "f64"
    found = template.format(*operands, T=result, P=operand, W=width)
    exact = result == statement.dtype or has(statement.operation, "exact")
    return found if exact else f"round_to_float16({found})"


def point_source(kernel: Kernel) -> str:
    """Return the source of the scalar function: one NumPy operation a line, its dtype beside it.

    Behind its results it returns what `Kernel.tested` names.
    """
    names: list[str] = input_names(kernel) + parameter_names(kernel)
    halves = {names[k] for k in kernel.values if kernel.inputs[k].dtype == "float16"}
    given = [names[k] for k in kernel.values]
    taken = [f"{name}_half" if name in halves else name for name in given]
    taken += parameter_names(kernel)
    lines = [f"def point({', '.join(taken)}):"]
    lines += [f"    {name} = from_float16({name}_half)" for name in given if name in halves]
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
    results = [_result(output, names) for output in kernel.outputs]
    for name in kernel.tested:
        lines += _tests(kernel, names, name)
    results += kernel.tested
    lines.append(f"    return {', '.join(results)}")
    return "\n".join(lines)


def _result(output: Output, names: list[str]) -> str:
    """Return what `point` returns for an output, as source."""
    found = output.value if isinstance(output.value, str) else names[output.value]
    return f"to_float16({found})" if output.value_dtype == "float16" else found


def _tests(kernel: Kernel, names: list[str], found: str) -> list[str]:
    """Return the lines that find whether statements raise errors, by a name in `TESTS`."""
    conditions = [_test(kernel, names, test, found) for test in kernel.tests if found in test.names]
    return [
        f"    {found} = {f'{found} | ' * bool(number)}{condition}"
        for number, condition in enumerate(dict.fromkeys(conditions))
    ]


def _test(kernel: Kernel, names: list[str], test: Test, found: str) -> str:
    """Return the expression of whether a statement has raised errors."""
    first = len(names) - len(kernel.statements)
    statement = kernel.statements[test.statement]
    operands = [a if isinstance(a, str) else names[a] for a in statement.arguments]
    if test.shown:
        return f"unseen({names[first + test.statement]})"
    kind, condition = np.dtype(statement.operand).kind, ""
    own = named(statement.operation).tests.get(kind)
    if own is not None and (found == "wrong" or kind != "f"):
        dtypes = {"T": computed_name(statement.dtype), "P": computed_name(statement.operand)}
        condition = f"({own.format(*operands, **dtypes)})"
        if not statement.dtype == statement.operand == "float16":
            return condition
        condition += " | "  # What is rounded to float16 may be infinite.
    given = [i.dtype for i in kernel.inputs] + list(kernel.parameters)
    given += [s.dtype for s in kernel.statements]
    numbers = [a for a in statement.arguments if isinstance(a, int)]
    floats = {names[a]: computed_name(given[a]) for a in numbers if given[a].startswith("float")}
    result, several = names[first + test.statement], len(statement.arguments) > 1
    return f"{condition}({_TESTS[found](result, statement.dtype, floats, several)})"


def _is_worse(result: str, dtype: str, floats: dict[str, str], several: bool) -> str:
    kind = computed_name(dtype)
    operands = floats or {literal(0.0, dtype): kind}
    return " & ".join(_worse(result, kind, x, other) for x, other in operands.items())


def _worse(result: str, kind: str, x: str, other: str) -> str:
    """Return the comparison of a result with an operand, in the wider dtype of both."""
    wider = max(kind, other)
    pair = [
        name if of == wider else f"{wider}({name})" for name, of in ((result, kind), (x, other))
    ]
    return f"is_worse({', '.join(pair)})"


def _is_new_nan(result: str, dtype: str, floats: dict[str, str], several: bool) -> str:
    return " & ".join([f"({result} != {result})", *(f"({x} == {x})" for x in floats)])


def _is_new_infinity(result: str, dtype: str, floats: dict[str, str], several: bool) -> str:
    finite = [f"(fabs({x}) != {kind}(inf))" for x, kind in floats.items()]
    return " & ".join([f"(fabs({result}) == {computed_name(dtype)}(inf))", *finite])


def _is_tiny(result: str, dtype: str, floats: dict[str, str], several: bool) -> str:
    least = f"(fabs({result}) < {literal(float(np.finfo(dtype).tiny), dtype)})"
    nonzero = " & ".join(f"({x} != 0)" for x in floats)
    if not (several and floats):
        return f"{least} & {nonzero}" if floats else least
    # One operand that is zero makes most results zero, but nextafter's; others may be constants.
    return f"{least} & (({result} != 0) | {nonzero})"


_TESTS = {
    "wrong": _is_worse,
    "invalid": _is_new_nan,
    "infinite": _is_new_infinity,
    "tiny": _is_tiny,
}
"""By name in `gpusched.emit.floatingpoint.TESTS`, how a result shows that there was such an
error: it is so, and no operand is.

`is_worse` finds a NaN that is made of numbers and an infinity that is made of finite numbers at
once, in four instructions.

An underflow may have been where a result is tiny; it may have been exact, too.
"""


def defined_functions(kernel: Kernel) -> dict[str, ScalarFunction]:
    """Return the users' functions that a kernel's source calls, by the names it has for them."""
    used = [s.operation for s in kernel.statements]
    used += [o.combine for o in kernel.outputs if o.combine and o.combine not in BY_LINES]
    functions = {name: named(name).function for name in used}
    return {name: function for name, function in functions.items() if function is not None}


def called_names(text: str) -> set[str]:
    """Return the names of what a source calls; of those in modules and objects, none.

    Examples
    --------
    >>> sorted(called_names("t0 = exp_f32(my_exp(a)) + math.sqrt(b)"))
    ['exp_f32', 'my_exp']
    """
    return set(re.findall(r"(?<![.\w])(\w+)\(", text))


def is_helper(name: str) -> bool:
    """Return whether `scalars` has a function of that name, which sources may call."""
    return inspect.isfunction(vars(scalars).get(name))


def helper_source(text: str, there: Container[str] = ()) -> str:
    """Return the source of the functions of `scalars` that a source calls.

    Parameters
    ----------
    text
        The source.
    there
        Functions that it has.
    """
    names = called_names(text)
    here = [name for name in vars(scalars) if name in names and is_helper(name)]
    return "".join(f"{helper(name)}\n\n\n" for name in here if name not in there)


def combine(output: Output, so_far: str, value: str, dtype: str = "") -> str:
    """Return the expression that joins two values of a reduction."""
    assert output.combine is not None
    dtype = dtype or output.dtype
    operands = [
        text if "]" in text or text.isidentifier() else f"({text})" for text in (so_far, value)
    ]
    if output.combine in JOINS and np.dtype(dtype).kind == "f":
        return JOINS[output.combine].format(*operands)
    return expression(Statement(output.combine, 0, (), dtype, dtype), operands)


def identity_value(combine_name: str, dtype: np.dtype) -> bool | int | float:
    """Return the value that changes nothing when joined.

    Examples
    --------
    >>> identity_value("minimum", np.dtype("int8"))
    127
    """
    # The first of all values that are no more than what nothing is joined to is at 0.
    combine_name = FIRSTS.get(combine_name, combine_name)
    if combine_name in BY_LINES:
        return dtype.type(0).item()
    if combine_name in DEFINED:
        return dtype.type(DEFINED[combine_name].identity).item()
    if combine_name in ("add", "logical_or", "bitwise_or", "bitwise_xor"):
        if dtype.kind == "f":
            return 0.0  # NumPy's sum of negative zeros is positive.
        return False if dtype.kind == "b" else dtype.type(0).item()
    if combine_name in ("multiply", "logical_and"):
        return True if dtype.kind == "b" else dtype.type(1).item()
    if combine_name == "bitwise_and":
        return True if dtype.kind == "b" else (~dtype.type(0)).item()
    low = combine_name in ("maximum", "fmax")
    if dtype.kind == "f":
        skips = combine_name in ("fmin", "fmax", LAST_NUMBER)
        return float("nan") if skips else (-np.inf if low else np.inf)
    if dtype.kind == "b":
        return not low
    limits = np.iinfo(dtype)
    return int(limits.min if low else limits.max)


def identity(output: Output, dtype: str) -> str:
    """Return the identity of a reduction as source."""
    assert output.combine is not None
    return literal(identity_value(output.combine, np.dtype(dtype)), dtype)


def first_total(output: Output) -> str:
    """Return what a scan starts from: joined with that, the first element stays what it is.

    With a user's function it need not, such as a zero that is negative: see `joined_total`.
    """
    dtype = np.dtype(output.dtype)
    assert output.combine is not None
    found = identity_value(output.combine, dtype)
    if output.combine == "add" and dtype.kind == "f":
        found = -0.0  # A sum of negative zeros is one.
    return literal(found, output.dtype)


def joined_total(output: Output, total: str, element: str, is_first: str) -> str:
    """Return what an element joined to a scan's total gives, rounded as NumPy rounds each one.

    `is_first` says in source whether there is no element before; a user's function is not called
    then.
    """
    assert output.combine is not None
    statement = Statement(output.combine, 0, (), output.dtype, output.dtype)
    found = expression(statement, [f if f.isidentifier() or f[-1] in ")]" else f"({f})"
                                   for f in (total, element)])  # fmt: skip
    return f"{element} if {is_first} else {found}" if output.combine in DEFINED else found


def loaded(output: Output, element: str) -> str:
    """Return an element in the dtype that is computed in."""
    return f"from_float16({element})" if output.dtype == "float16" else element


def stored(output: Output, value: str) -> str:
    """Return a value as an element of the output."""
    return f"to_float16({value})" if output.dtype == "float16" else value


def literal(value: bool | int | float, dtype: str) -> str:
    """Return a number of a dtype as source of what stands for it.

    Examples
    --------
    >>> literal(0.5, "float32")
    'float32(0.5)'
    """
    return repr(bool(value)) if dtype == "bool" else f"{computed_name(dtype)}({value!r})"


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
