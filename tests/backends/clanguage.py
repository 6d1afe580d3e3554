"""A trial backend: the text that kernels have for the CPU, translated to C.

Python's text says no types; they follow from those of the kernel's arrays and constants. Each
function is translated once for each tuple of types that it is called with.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from gpusched.emit import hostloops
from gpusched.emit.kernel import Kernel
from gpusched.emit.policy import PART

C_TYPES = {
    "bool": "unsigned char", "float16": "uint16_t", "float32": "float", "float64": "double",
    "complex64": "float _Complex", "complex128": "double _Complex",
} | {
    f"{u}int{bits}": f"{u}int{bits}_t" for u in ("", "u") for bits in (8, 16, 32, 64)
}  # fmt: skip
"""By dtype; arrays are of type ``*float32``, and results ``(float32,bool)``."""

HEAD = """
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#define inf INFINITY
#define nan NAN
static int64_t errors(void) {  /* as bits of gpusched.emit.floatingpoint */
    return (fetestexcept(FE_INVALID) ? 1 : 0) | (fetestexcept(FE_DIVBYZERO) ? 4 : 0)
        | (fetestexcept(FE_OVERFLOW) ? 8 : 0) | (fetestexcept(FE_UNDERFLOW) ? 16 : 0);
}
static float from_float16(uint16_t x) {
    int exponent = x >> 10 & 31, digits = x & 1023;
    float size = exponent == 31 ? (digits ? NAN : INFINITY)
        : exponent ? ldexpf(1024 + digits, exponent - 25) : ldexpf(digits, -24);
    return x >> 15 ? -size : size;
}
static uint16_t to_float16(float x) {  /* rounds to even, as C does */
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float size = fabsf(x);
    if (x != x) return sign | 0x7e00;
    if (size >= 65520) return sign | 0x7c00;
    int exponent = size < 0x1p-14f ? -14 : ilogbf(size);
    int digits = (int)rintf(ldexpf(size, 10 - exponent));  /* 2048 carries into the exponent */
    return sign | (uint16_t)(((exponent + 14) << 10) + digits);
}
static float round_to_float16(float x) { return from_float16(to_float16(x)); }
static int32_t to_int32(double x) { return (int32_t)x; }
static int64_t to_int64(double x) { return (int64_t)x; }
static unsigned char unseen(double x) { volatile double computed = x; return 0; }
"""

PYTHON = """
def compensated_add(total, lost, value):
    new = total + value
    part = new - total
    return new, lost if new - new != 0 else lost + ((total - (new - part)) + (value - part))

def minimum(a, b):
    return a if a != a else (b if b != b else (a if a < b else b))

def maximum(a, b):
    return a if a != a else (b if b != b else (a if a > b else b))

def fmin(a, b):
    return b if a != a else (a if b != b else (a if a < b else b))

def fmax(a, b):
    return b if a != a else (a if b != b else (a if a > b else b))

def number_or(x, other):
    return x if x == x else other

def is_worse(result, operand):
    infinite = fabs(result) == inf and fabs(operand) != inf
    return operand == operand and (result != result or infinite)
"""
"""What backends bind in plain Python, translated as what kernels bring along is."""

MATH = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "power": "pow",
        "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "gamma": "tgamma"}  # fmt: skip
"""C's names of NumPy's functions, where they differ."""

SAME = ("fabs", "sqrt", "floor", "ceil", "trunc", "rint", "fmod", "copysign", "exp", "exp2",
        "log1p")  # fmt: skip

TEXTS = {
    "element": "{0}[{1}]", "spread": "{0}", "ahead": "{0}", "past_line": "0",
    "min": "(({0}) < ({1}) ? ({0}) : ({1}))", "max": "(({0}) > ({1}) ? ({0}) : ({1}))",
    "floating_point_errors": "errors()", "bits": "8 * sizeof({0})",
}  # fmt: skip
STATEMENTS = {
    "prefetch": "", "drain": "", "restore_subnormals": "",
    "clear_floating_point_errors": "feclearexcept(FE_ALL_EXCEPT);",
    "stream": "memcpy({0}, {1}, ({2}) * sizeof *({0}));",
}  # fmt: skip

CONVERSIONS = {"from_float16": "float32", "to_float16": "float16", "round_to_float16": "float32",
               "to_int32": "int32", "to_int64": "int64", "unseen": "bool"}  # fmt: skip
"""Functions of `HEAD`, with the dtype that they return."""

OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.And: "&&", ast.Or: "||", ast.Not: "!", ast.USub: "-", ast.Invert: "~",
}  # fmt: skip

Typed = tuple[str, str]
"""Source in C, and its type."""


def source(kernel: Kernel) -> str:
    """Return the text of a kernel in C, with a function ``kernel``."""
    tree = ast.parse(PYTHON + hostloops.source(kernel))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    text = _Program(functions)
    taken = [f"*{operand.dtype}" for operand in kernel.operands] + list(kernel.parameters)
    count = len(functions["kernel"].args.args) - len(taken)
    text.function("kernel", tuple(taken + ["int64"] * count), exported=True)
    return HEAD + "\n".join(text.parts)


def ctype(kind: str) -> str:
    """Return C's name of a type."""
    if kind.startswith("*"):
        return C_TYPES[kind[1:]] + " *"
    return f"struct {_mangled(kind)}" if kind.startswith("(") else C_TYPES[kind]


def _mangled(kind: str) -> str:
    return kind.translate(str.maketrans({"(": "r", ")": "", ",": "_", "*": "p"}))


def _joined(first: str, second: str) -> str:
    """Return the type of arithmetic with two others; Python's own numbers take the other's."""
    return first if first == second else str(np.result_type(first, second))


class _Program:
    """Functions as far as they are translated, each before those that call it."""

    def __init__(self, functions: dict[str, ast.FunctionDef]) -> None:
        self.functions = functions
        self.parts: list[str] = []
        self._made: dict[tuple[str, tuple[str, ...]], Typed] = {}

    def function(self, name: str, taken: tuple[str, ...], exported: bool = False) -> Typed:
        """Return a function's name for some types of arguments, and the type of its result."""
        if (name, taken) not in self._made:
            shown = name if exported else f"{name}_{len(self._made)}"
            body = _Function(self, self.functions[name], taken)
            self.parts.append(body.text(shown, exported))
            self._made[name, taken] = shown, body.result or "int64"
        return self._made[name, taken]

    def struct(self, kind: str) -> None:
        """Define the type of several results, once."""
        fields = " ".join(f"{ctype(k)} x{n};" for n, k in enumerate(kind[1:-1].split(",")))
        text = f"struct {_mangled(kind)} {{ {fields} }};"
        if text not in self.parts:
            self.parts.append(text)


class _Function:
    """One function for arguments of some types."""

    def __init__(self, program: _Program, node: ast.FunctionDef, taken: tuple[str, ...]) -> None:
        self.program, self.node = program, node
        self.arguments = {a.arg: t for a, t in zip(node.args.args, taken, strict=True)}
        self.types = dict(self.arguments)
        self.scratch: dict[str, str] = {}
        self.result: str | None = None
        self.lines = [line for statement in node.body for line in self.statement(statement)]

    def text(self, name: str, exported: bool) -> str:
        taken = ", ".join(f"{ctype(t)} {n}" for n, t in self.arguments.items())
        made = {n: t for n, t in self.types.items() if n not in self.arguments}
        names = [f"{ctype(t)} {n};" for n, t in made.items() if n not in self.scratch]
        names += [f"{C_TYPES[t]} {n}[{PART}];" for n, t in self.scratch.items()]
        static = "" if exported else "static "
        end = ["return 0;"] if self.result is None else []
        head = f"{static}{ctype(self.result or 'int64')} {name}({taken}) {{"
        return "\n".join([head, *names, *self.lines, *end, "}"])

    def statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Assign(targets=[target], value=value):
                return self.assign(target, value)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args)):
                return [STATEMENTS[name].format(*(self.value(a)[0] for a in args))]
            case ast.Return(value=value) if value is not None:
                text, kind = self.value(value)
                self.result = kind if self.result in (None, kind) else _joined(self.result, kind)
                return [f"return {text};"]
            case ast.If(test=test, body=body, orelse=orelse):
                rest = ["} else {", *self.block(orelse)] if orelse else []
                return [f"if ({self.value(test)[0]}) {{", *self.block(body), *rest, "}"]
            case ast.While(test=test, body=body):
                return [f"while ({self.value(test)[0]}) {{", *self.block(body), "}"]
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=bounds), body=body):
                given = [self.value(b)[0] for b in bounds]
                start, stop, step = (["0", *given, "1"] if len(given) == 1 else [*given, "1"])[:3]
                self.types[name] = "int64"
                head = f"for ({name} = {start}; {name} < {stop}; {name} += {step}) {{"
                return [head, *self.block(body), "}"]
        raise NotImplementedError(ast.unparse(node))

    def block(self, body: list[ast.stmt]) -> list[str]:
        return [line for statement in body for line in self.statement(statement)]

    def assign(self, target: ast.expr, value: ast.expr) -> list[str]:
        match value:
            case ast.Call(func=ast.Name(id="scratch"), args=[array]):
                name, kind = ast.unparse(target), self.value(array)[1]
                self.types[name], self.scratch[name] = kind, kind[1:]
                return []
            case ast.Call(func=ast.Name(id="flush_subnormals")):
                return self.assign(target, ast.Constant(0))
        text, kind = self.value(value)
        if not isinstance(target, ast.Tuple):
            return [f"{self.place(target, kind)} = {text};"]
        kinds = kind[1:-1].split(",")
        places = [self.place(t, k) for t, k in zip(target.elts, kinds, strict=True)]
        each = [f"{place} = all.x{n};" for n, place in enumerate(places)]
        return [f"{{ {ctype(kind)} all = {text};", *each, "}"]

    def place(self, target: ast.expr, kind: str) -> str:
        if isinstance(target, ast.Name):
            self.types.setdefault(target.id, kind)
        return self.value(target)[0]

    def value(self, node: ast.expr) -> Typed:
        match node:
            case ast.Name(id="inf" | "nan" as name):
                return name, "float64"
            case ast.Name(id=name):
                return name, self.types[name]
            case ast.Constant(value=bool() as number):
                return str(int(number)), "bool"
            case ast.Constant(value=number):
                return repr(number), "float64" if isinstance(number, float) else "int64"
            case ast.Subscript(value=array, slice=index):
                text, kind = self.value(array)
                return f"{text}[{self.value(index)[0]}]", kind[1:]
            case ast.Tuple(elts=elements):
                found = [self.value(each) for each in elements]
                kind = f"({','.join(k for _, k in found)})"
                self.program.struct(kind)
                return f"({ctype(kind)}){{{', '.join(t for t, _ in found)}}}", kind
            case ast.IfExp(test=test, body=body, orelse=orelse):
                (one, first), (other, second) = self.value(body), self.value(orelse)
                return f"({self.value(test)[0]} ? {one} : {other})", _joined(first, second)
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return self.joined(type(operator), [left, right], "bool")
            case ast.BoolOp(op=ast.Or(), values=values) if self.value(values[0])[1] == "int64":
                # The first that is not 0, as in Python.
                return f"({' ?: '.join(f'({self.value(v)[0]})' for v in values)})", "int64"
            case ast.BoolOp(op=operator, values=values):
                return self.joined(type(operator), values, "bool")
            case ast.BinOp(left=left, op=operator, right=right):
                return self.joined(type(operator), [left, right])
            case ast.UnaryOp(op=operator, operand=operand):
                text, kind = self.value(operand)
                return f"({OPERATORS[type(operator)]}({text}))", kind
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, [self.value(a) for a in args])
            case ast.Attribute(value=number, attr="real" | "imag" as name):
                text, kind = self.value(number)
                return f"(__{name}__ {text})", "float32" if kind == "complex64" else "float64"
        raise NotImplementedError(ast.unparse(node))

    def joined(self, operator: type[Any], values: list[ast.expr], kind: str = "") -> Typed:
        found = [self.value(each) for each in values]
        text = f" {OPERATORS[operator]} ".join(f"({t})" for t, _ in found)
        for _, other in found:
            kind = kind or other
        return f"({text})", "bool" if kind == "bool" else _joined(found[0][1], found[-1][1])

    def call(self, name: str, given: list[Typed]) -> Typed:
        texts, kinds = [t for t, _ in given], [k for _, k in given]
        if name in self.program.functions:
            shown, result = self.program.function(name, tuple(kinds))
            return f"{shown}({', '.join(texts)})", result
        if name in C_TYPES:
            return f"(({C_TYPES[name]})({texts[0]}))", name
        if name == "complex":
            kind = "complex64" if kinds[0] == "float32" else "complex128"
            return f"__builtin_complex({', '.join(texts)})", kind
        if name in CONVERSIONS:
            return f"{name}({texts[0]})", CONVERSIONS[name]
        if name == "shift":
            return f"({texts[0]} + ({texts[1]}))", kinds[0]
        if name in TEXTS:
            kind = kinds[0][1:] if name == "element" else "int64"
            return f"({TEXTS[name].format(*texts)})", kind
        function, _, width = name.rpartition("_")
        single = kinds[0] == "float32" if name in SAME or name == "abs" else width == "f32"
        bare = "fabs" if name == "abs" else name if name in SAME else function
        found = f"{MATH.get(bare, bare)}{'f' * single}({', '.join(texts)})"
        return found, "float32" if single else "float64"
