"""The table of operations: NumPy function -> scalar expression, for the dtypes it accepts.

A template is Python source.  ``{0}``, ``{1}``, ``{2}`` are the operands, ``{T}`` the result's dtype
(a callable of that name converts), ``{P}`` the first operand's dtype, ``{W}`` the suffix (f32, f64)
of a mathematical function.  Which template applies depends on the kind of the loop's first input
dtype: ``b`` bool, ``i`` signed, ``u`` unsigned, ``f`` floating, ``c`` complex; ``e`` is float16
where that has a template of its own.  A kind that is not there is not fused.  Operands of float16
are float32 in a template, and what it gives is rounded to float16 where the operation is not
"exact" (`TRAITS`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from gpusched.dataclass import dataclass
from gpusched.emit.dtypes import HALF
from gpusched.emit.floatingpoint import mask


class ScalarFunction(Protocol):
    """A user's scalar function, for each way to run a kernel."""

    @property
    def only_here(self) -> bool:
        """Whether nothing but a kernel computes it on arrays."""

    @property
    def for_python(self) -> Callable[..., Any]:
        """As the reference calls it."""

    @property
    def for_cpu(self) -> Any:
        """Compiled by numba, for calls from kernels."""

    @property
    def for_cuda(self) -> Any:
        """As numba-cuda compiles it, for calls from kernels."""


@dataclass(frozen=True)
class Operation:
    """One scalar operation."""

    name: str
    """Name of the NumPy function, or of the conversion."""
    templates: tuple[dict[str, str], ...]
    """Source by kind of dtype, one mapping per output; under "e" and "q" that of float16 and int64,
    where it is another one."""
    ulp: int = 0
    """Largest distance from the true value, in units in the last place; 0 is NumPy's result. Where
    two numbers are added that may cancel (`logaddexp`), the units are those of the larger."""
    heavy: bool = False
    """Whether it costs much more than an addition."""
    function: ScalarFunction | None = None
    """What the template calls by the operation's name, where a user has defined it."""
    identity: Any = None
    """What a user's function changes nothing with, where it joins the values of a reduction."""
    reports: dict[str, str] = field(default_factory=dict)
    """By kind of dtype, `numpy.errstate`'s names of the errors that NumPy may report of it."""
    tests: dict[str, str] = field(default_factory=dict)
    """By kind of dtype, when there is any error that is no underflow; floats whose results show it
    need none."""
    traits: frozenset[str] = frozenset()
    """Names in `TRAITS`."""

    def template(self, dtype: np.dtype, output: int = 0) -> str | None:
        """Return an output's template for operands of a dtype, or None."""
        found = self.templates[output]
        if dtype == HALF:
            return None if "bitwise" in self.traits else found.get("e", found.get("f"))
        return found.get("q", found.get("i")) if dtype == np.int64 else found.get(dtype.kind)

    def errors(self, kind: str) -> int:
        """Return the errors that NumPy may report of it, but of rounding its result to float16."""
        return mask(self.reports.get(kind, ""))


SEARCHED = 12
"""Steps of the longest search: tables of 4,095 numbers, which stay in the cache beside chunks."""

CLIP: np.ufunc = np._core.umath.clip  # type: ignore[attr-defined]
"""The ufunc behind `numpy.clip`, which has no public name."""

OPERATIONS: dict[str, Operation] = {}
"""Every scalar operation by name."""
DEFINED: dict[str, Operation] = {}
"""The same, of users' own functions; a name ends in a digest of all that the function depends on,
so that equal names mean equal functions in every process."""


TRAITS = {
    "arithmetic": "its machine code raises the floating-point errors that NumPy reports of it, and "
    "no other",
    "overflows": "its machine code raises an overflow where NumPy reports one, or the operand is "
    "infinite, and no other error but underflows",
    "choosing": "its result is one of its operands",
    "exact": "it gives a float16 of float16, so that nothing is left to round",
    "bitwise": "it goes by the bits of float16, which numbers in kernels have not",
    "hiding": "an operand may not matter to it, so that the compiler need not compute that for "
    "each element as it is written",
    "keeping": "of integers, its result depends on each operand, whatever the other one is",
    "few": "of floats it has few results, which the compiler knows",
    "costly": "it takes several times as long as an addition, and is not heavy",
    "alone": "NumPy computes it as fast, or faster, where there is nothing to fuse it with",
    "special": "it is looked up in `scipy.special` too, where that is loaded",
    "any-zero": "of zeros of both signs it may give the other one than NumPy does "
    "(docs/explanation/floating-point.md)",
    "sees-zeros": "its result depends on the sign of a zero, and is more than another zero",
    "sees-signs": "its result depends on the sign of NaN, too, which NumPy's loops give now one "
    "sign and now the other",
}
"""What each trait says of an operation that has it."""

_NAMES = {trait: frozenset(names.split()) for trait, names in {
    "arithmetic": "add subtract multiply divide square reciprocal sqrt negative positive absolute "
    "fabs astype degrees rad2deg radians deg2rad",
    "choosing": "where minimum maximum fmin fmax clip clip_by_arrays last_number",
    "exact": "where minimum maximum fmin fmax clip clip_by_arrays last_number negative positive "
    "absolute fabs conjugate sign floor ceil trunc rint copysign heaviside modf frexp fmod",
    "bitwise": "nextafter",
    "hiding": "where sign heaviside equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_xor logical_not astype_bool isnan isfinite isinf signbit "
    "copysign",
    "keeping": "add subtract bitwise_xor",
    "few": "sign heaviside",
    "overflows": "exp exp2 expm1 sinh cosh hypot",
    "costly": "divide reciprocal sqrt",
    "alone": "arccosh arctanh cbrt float_power ldexp power",
    "special": "erf erfc expit gamma exp2 expm1 log1p cbrt",
    "any-zero": "minimum maximum fmin fmax clip clip_by_arrays",
    "sees-zeros": "divide reciprocal floor_divide divmod",
    "sees-signs": "signbit copysign",
}.items()}  # fmt: skip
"""Operations of this table by trait."""

_REPORTS = {
    "add": "invalid over", "subtract": "invalid over", "multiply": "invalid over under",
    "divide": "invalid divide over under", "square": "over under",
    "reciprocal": "divide over under", "sqrt": "invalid",
    "floor_divide": "invalid divide over under", "remainder": "invalid",
    "divmod": "invalid divide over under", "fmod": "invalid", "nextafter": "over under",
    "ldexp": "over under", "deg2rad": "under", "radians": "under", "rad2deg": "over under",
    "degrees": "over under", "logaddexp": "invalid", "logaddexp2": "invalid", "exp": "over under",
    "exp2": "over under", "expm1": "over under", "log": "invalid divide", "log2": "invalid divide",
    "log10": "invalid divide", "log1p": "invalid divide under", "sin": "invalid under",
    "cos": "invalid", "tan": "invalid under", "arcsin": "invalid under", "arccos": "invalid",
    "arctan": "under", "sinh": "over under", "cosh": "over", "tanh": "under", "arcsinh": "under",
    "arccosh": "invalid", "arctanh": "invalid divide under", "cbrt": "under",
    "power": "invalid divide over under", "float_power": "invalid divide over under",
    "arctan2": "under", "hypot": "over under", "astype_int32": "invalid", "astype_int64": "invalid",
    "astype_uint32": "invalid", "astype_uint64": "invalid", "astype_float16": "over under",
}  # fmt: skip
"""The errors that NumPy may report of floats; SciPy's functions report none."""


def named(name: str) -> Operation:
    """Return an operation, this table's or a user's; `KeyError` if nobody has defined it here."""
    return OPERATIONS.get(name) or DEFINED[name]


def has(name: str, trait: str) -> bool:
    """Return whether an operation has one of `TRAITS`; users' own have none.

    Examples
    --------
    >>> from gpusched.emit.operations import has
    >>> has("add", "arithmetic"), has("exp", "arithmetic")
    (True, False)
    """
    return trait in named(name).traits


COMBINES = {"add": 8, "multiply": 64, "minimum": 0, "maximum": 0, "fmin": 0, "fmax": 0,
            "logical_or": 0, "logical_and": 0, "bitwise_or": 0, "bitwise_and": 0,
            "bitwise_xor": 0}  # fmt: skip
"""Operations that reductions use, with the largest distance from NumPy's result per partial sum,
in units in the last place."""

JOINS = {"minimum": "minimum({0}, {1})", "maximum": "maximum({0}, {1})"}
"""Templates by which reductions join floats, where another one than the operation's is faster: the
largest of rows takes a quarter of the time (AMD EPYC)."""


def _add(name: str, *templates: dict[str, str], ulp: int = 0, heavy: bool = False) -> None:
    reports = {"f": _REPORTS[name]} if name in _REPORTS else {}
    traits = frozenset(trait for trait, names in _NAMES.items() if name in names)
    OPERATIONS[name] = Operation(name, templates, ulp, heavy, reports=reports, traits=traits)


def _kinds(kinds: str, template: str) -> dict[str, str]:
    return dict.fromkeys(kinds, template)


def _arithmetic() -> None:
    # LLVM takes it that no sum of int64 overflows, and that x + 1 < x is false. Smaller integers
    # are computed with as int64, of which the lower bits are kept.
    minus = "int64(~uint64({0}) + uint64(1))"
    for name, symbol in (("add", "+"), ("subtract", "-"), ("multiply", "*")):
        table = _kinds("f", f"{{0}} {symbol} {{1}}") | _kinds("iu", f"{{T}}({{0}} {symbol} {{1}})")
        _add(name, {**table, "q": f"int64(uint64({{0}}) {symbol} uint64({{1}}))"})
    OPERATIONS["add"].templates[0]["b"] = "{0} | {1}"
    OPERATIONS["multiply"].templates[0]["b"] = "{0} & {1}"
    _add("divide", {"f": "{0} / {1}"})
    _add("negative", {"f": "-{0}", "i": "{T}(-{0})", "u": "{T}(~{0} + {T}(1))", "q": minus})
    _add("positive", _kinds("iuf", "{0}"))
    _add("absolute", {"f": "fabs({0})", "i": "{T}(abs({0}))", "u": "{0}", "b": "{0}",
                      "q": f"{{0}} if {{0}} >= 0 else {minus}"})  # fmt: skip
    _add("fabs", {"f": "fabs({0})"})
    _add("square", {"f": "{0} * {0}", **_kinds("iu", "{T}({0} * {0})"),
                    "q": "int64(uint64({0}) * uint64({0}))"})  # fmt: skip
    _add("reciprocal", {"f": "{T}(1) / {0}"})
    _add("conjugate", _kinds("iuf", "{0}"))
    _add("sign", {"f": "sign_float({0}, {T}(0), {T}(1))",
                  "i": "{T}({T}({0} > 0) - {T}({0} < 0))", "u": "{T}({0} > 0)"})  # fmt: skip
    _add("floor_divide", {"f": "{T}(floor_divide_float({0}, {1}, {T}(1)))",
                          "i": "{T}(floor_divide_int({0}, {1}, -{0}))",
                          "q": f"floor_divide_int({{0}}, {{1}}, {minus})",
                          "u": "{T}(floor_divide_uint({0}, {1}))"}, heavy=True)  # fmt: skip
    _add("remainder", {"f": "{T}(remainder_float({0}, {1}))", "i": "{T}(remainder_int({0}, {1}))",
                       "u": "{T}(remainder_uint({0}, {1}))"}, heavy=True)  # fmt: skip
    _add("divmod", OPERATIONS["floor_divide"].templates[0], OPERATIONS["remainder"].templates[0],
         heavy=True)  # fmt: skip
    _add("fmod", {"f": "{T}(fmod({0}, {1}))", "i": "{T}(fmod_int({0}, {1}))",
                  "u": "{T}(remainder_uint({0}, {1}))"}, heavy=True)  # fmt: skip


def _bits() -> None:
    for name, symbol in (("bitwise_and", "&"), ("bitwise_or", "|"), ("bitwise_xor", "^")):
        table = _kinds("iu", f"{{T}}({{0}} {symbol} {{1}})")
        _add(name, {**table, "b": f"{{0}} {symbol} {{1}}"})
    _add("invert", {**_kinds("iu", "{T}(~{0})"), "b": "{0} ^ True"})
    _add("left_shift", {"i": "{T}({0} << {1}) if 0 <= {1} < bits({0}) else {T}(0)",
                        "u": "{T}({0} << {1}) if {1} < bits({0}) else {T}(0)"})  # fmt: skip
    _add("right_shift", {"i": "{T}({0} >> {1}) if 0 <= {1} < bits({0}) else {T}(-{T}({0} < 0))",
                         "u": "{T}({0} >> {1}) if {1} < bits({0}) else {T}(0)"})  # fmt: skip


def _comparisons() -> None:
    symbols = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
               "greater_equal": ">="}  # fmt: skip
    for name, symbol in symbols.items():
        _add(name, _kinds("iufb", f"{{0}} {symbol} {{1}}"))
    for name, expression in (("and", "{0} & {1}"), ("or", "{0} | {1}"), ("xor", "{0} ^ {1}")):
        truth = expression.replace("{0}", "({0} != 0)").replace("{1}", "({1} != 0)")
        _add(f"logical_{name}", {"b": expression, **_kinds("iuf", truth)})
    _add("logical_not", {"b": "{0} ^ True", **_kinds("iuf", "{0} == 0")})
    _add("isnan", {"f": "{0} != {0}", **_kinds("iub", "False")})
    _add("isfinite", {"f": "({0} == {0}) & (fabs({0}) != {P}(inf))", **_kinds("iub", "True")})
    _add("isinf", {"f": "fabs({0}) == {P}(inf)", **_kinds("iub", "False")})
    _add("signbit", {"f": "copysign({P}(1), {0}) < 0"})
    ints = "{{0}} if {{0}} {} {{1}} else {{1}}"
    for name, symbol, boolean in (("minimum", "<=", "&"), ("maximum", ">=", "|")):
        table = {**_kinds("iu", ints.format(symbol)), "b": f"{{0}} {boolean} {{1}}"}
        # Of equal numbers, such as zeros of both signs, NumPy's loop of float16 takes the first.
        first = f"{{0}} if ({{0}} {symbol} {{1}}) | ({{0}} != {{0}}) else {{1}}"
        _add(name, {**table, "f": f"{name}_float({{0}}, {{1}})", "e": first})
        short = "fmin" if name == "minimum" else "fmax"
        first = f"{{0}} if ({{0}} {symbol} {{1}}) | ({{1}} != {{1}}) else {{1}}"
        _add(short, {**table, "f": f"{short}({{0}}, {{1}})", "e": first})
    clip = "{1} if {0} < {1} else {0}"
    _add("clip", {"f": "clip_float({0}, {1}, {2})",
                  **_kinds("iu", f"{{2}} if ({clip}) > {{2}} else ({clip})")})  # fmt: skip
    _add("last_number", {"f": "last_number({0}, {1})"})
    _add("clip_by_arrays", {"f": "minimum_float(maximum_float({0}, {1}), {2})"})
    _add("where", _kinds("b", "{1} if {0} else {2}"))
    for side in ("left", "right"):
        _add(f"search_{side}", _kinds("iuf", f"search_{side}({{0}}, {{1}}, {{2}})"), heavy=True)
    # Places are known to be in the table; what changes them meanwhile may not reach beyond it.
    _add("element", _kinds("iufb", "{0}[max(min({1}, {2} - 1), 0)]"))
    place = "min(search_right({0}, {1}, {4}), {3})"
    _add("interpolate", {"f": f"interpolated({{0}}, {{2}}, {place})"}, heavy=True)
    lane = "shift({0}, {1})"
    _add("select", {"f": f"selected({lane}, {{2}}, {{3}}, {{T}}(inf), {{T}}(nan))"}, heavy=True)
    found = f"following({lane}, {{2}}, {{3}}, {{4}}, {{T}}(inf), {{T}}(nan))"
    _add("select_next", {"f": found}, heavy=True)
    _add("select_sorted", {"f": f"ordered({lane}, {{2}}, {{3}}, {{T}}(nan))"})
    _add("heaviside", {"f": "heaviside_float({0}, {1}, {T}(0), {T}(1))"})


def _floating() -> None:
    for name in ("floor", "ceil", "trunc", "rint"):
        _add(name, {"f": f"{name}({{0}})", **_kinds("iub", "{0}")})
    _add("sqrt", {"f": "sqrt({0})"})
    _add("copysign", {"f": "copysign({0}, {1})"})
    _add("nextafter", {"f": "{T}(nextafter({0}, {1}))"}, heavy=True)
    _add("modf", {"f": "{T}(modf_fraction({0}, {T}(0)))"}, {"f": "trunc({0})"})
    _add("frexp", {"f": "{T}(frexp({0})[0])"}, {"f": "{T}(frexp({0})[1])"}, heavy=True)
    _add("ldexp", {"f": "{T}(ldexp({0}, int32(min(max({1}, -5000), 5000))))"}, heavy=True)
    _add("deg2rad", {"f": "{0} * {T}(0.017453292519943295)"}, ulp=1)
    _add("radians", OPERATIONS["deg2rad"].templates[0], ulp=1)
    _add("rad2deg", {"f": "{0} * {T}(57.29577951308232)"}, ulp=1)
    _add("degrees", OPERATIONS["rad2deg"].templates[0], ulp=1)
    # float32 is computed in float64, where the sum's two parts may cancel.
    for name in ("logaddexp", "logaddexp2"):
        _add(name, {"f": f"{{T}}({name}_float(float64({{0}}), float64({{1}})))"}, ulp=4, heavy=True)


UNARY_MATH = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "cbrt",
    "erf",
    "erfc",
    "expit",
    "gamma",
]
"""Functions of one number that each backend binds as ``name_f32`` and ``name_f64``."""

BINARY_MATH = ["power", "arctan2", "hypot"]
"""The same, of two numbers."""


def _mathematics() -> None:
    for name in UNARY_MATH:
        _add(name, {"f": f"{name}_{{W}}({{0}})"}, ulp=16 if "gamma" in name else 6, heavy=True)
    for name in BINARY_MATH:
        _add(name, {"f": f"{name}_{{W}}({{0}}, {{1}})"}, ulp=6, heavy=True)
    _add("float_power", OPERATIONS["power"].templates[0].copy(), ulp=6, heavy=True)
    power = "{T}(power_int({0}, {1}, {T}(1)))"
    wrapped = "int64(power_int(uint64({0}), {1}, uint64(1)))"
    OPERATIONS["power"].templates[0].update({"i": power, "u": power, "q": wrapped})


def _conversions() -> None:
    # Converting a float beyond the integer's range is undefined in C. What NumPy's loops give is
    # what the processor's instructions do, and `to_int32` and `to_int64` do everywhere. x86's
    # convert to 32 or 64 bits, the lowest number for all beyond.
    _add("astype", _kinds("biuf", "{T}({0})"))
    _add("astype_int32", {"f": "{T}(to_int32({0}))"})
    _add("astype_int64", {"f": "{T}(to_int64({0}))"})
    for bits, signed in ((32, "to_int32"), (64, "to_int64")):
        half = 1 << (bits - 1)
        above = f"{{T}}({signed}({{0}} - {{P}}({half}))) + {{T}}({half})"
        _add(f"astype_uint{bits}",
             {"f": f"{above} if {{0}} >= {{P}}({half}) else {{T}}({signed}({{0}}))"})  # fmt: skip
    OPERATIONS["astype_uint32"].templates[0]["e"] = "{T}(to_int64({0}))"
    _add("astype_bool", _kinds("iuf", "{0} != 0"))
    # NumPy rounds float64 once, and integers by way of float32.
    _add("astype_float16", {"f": "{0}", **_kinds("biu", "{T}({0})")})


def _parts() -> None:
    _add("real", {"c": "{0}.real"})
    _add("imag", {"c": "{0}.imag"})
    _add("complex", {"f": "{T}(complex({0}, {1}))"})


def conversion(source: np.dtype, target: np.dtype) -> str:
    """Return the name of the operation that converts between two supported dtypes."""
    if target.kind == "b":
        return "astype_bool"
    if target == HALF:
        return "astype_float16"
    if source.kind == "f" and target.kind in "iu":
        wide = target.itemsize == 8
        unsigned = target.kind == "u" and target.itemsize >= 4
        return f"astype_{'u' * unsigned}int{64 if wide else 32}"
    return "astype"


def _reports() -> None:
    for kind in "iu":
        _report_of_integers("astype_float16", kind, "over", "fabs({T}({0})) >= {T}(65520)")
    zero, least = "{1} == 0", "({1} == -1) & ({0} < 0) & ({0} == {T}(-{0}))"
    for name in ("floor_divide", "divmod"):
        _report_of_integers(name, "i", "divide over", f"({zero}) | ({least})")
        _report_of_integers(name, "u", "divide", zero)
    for name in ("remainder", "fmod"):
        _report_of_integers(name, "i", "divide over", f"({zero}) | ({least})")
        _report_of_integers(name, "u", "divide", zero)
    # NaN is not less than anything.
    for name, inside in (
        ("astype_int32", "fabs({0}) < {P}(2147483648)"),
        ("astype_int64", "fabs({0}) < {P}(9223372036854775808)"),
        ("astype_uint32", "({0} > {P}(-2147483649)) & ({0} < {P}(4294967296))"),
        # 2**64 as a float: numba has no integer as large.
        (
            "astype_uint64",
            "({0} >= {P}(-9223372036854775808)) & ({0} < {P}(1.8446744073709552e19))",
        ),
    ):
        OPERATIONS[name].tests["f"] = f"not ({inside})"
    for names, outside in (
        ("log log2 log10", "{0} <= {P}(0)"),
        ("log1p", "{0} <= {P}(-1)"),
        ("sin cos tan", "fabs({0}) == {P}(inf)"),
        ("arcsin arccos", "fabs({0}) > {P}(1)"),
        ("arccosh", "{0} < {P}(1)"),
        ("arctanh", "fabs({0}) >= {P}(1)"),
        # Infinity follows the largest number where the other operand is infinite, too.
        ("nextafter", "(fabs({0}) < {P}(inf)) & (fabs(nextafter({0}, {1})) == {P}(inf))"),
    ):
        for name in names.split():
            OPERATIONS[name].tests["f"] = outside
    for name in ("logaddexp", "logaddexp2"):  # NumPy compares NaN, which is an invalid operation.
        OPERATIONS[name].tests["f"] = "({0} != {0}) | ({1} != {1})"


def _report_of_integers(name: str, kind: str, errors: str, test: str) -> None:
    OPERATIONS[name].reports[kind] = errors
    OPERATIONS[name].tests[kind] = test


for _define in (_arithmetic, _bits, _comparisons, _floating, _mathematics, _conversions, _parts,
                _reports):  # fmt: skip
    _define()


def reports(name: str, operand: np.dtype, result: np.dtype) -> int:
    """Return the floating-point errors that NumPy may report of an operation.

    Parameters
    ----------
    name
        Of the operation.
    operand, result
        Dtypes of its first operand and of its result.

    Returns
    -------
    int
        Bits of `gpusched.emit.floatingpoint`.
    """
    if name == "astype":
        narrower = operand.kind == result.kind == "f" and result.itemsize < operand.itemsize
        return mask("over under") if narrower else 0
    found = named(name)
    errors = found.errors(operand.kind)
    rounds = result == HALF and operand == HALF and "exact" not in found.traits
    # What a float32 holds may be beyond float16.
    return errors | mask("over under" if found.heavy else "under") if rounds else errors


def reports_of_joining(combine: str, dtype: np.dtype) -> int:
    """Return the floating-point errors that NumPy may report of a reduction."""
    return reports(combine, dtype, dtype) if combine in COMBINES else 0


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type(np.sum), np.ufunc)
_UMATH = vars(np._core.umath)  # type: ignore[attr-defined]
_NUMPYS = {n: f for n, f in vars(np).items() if isinstance(f, _FUNCTIONS)}
_NUMPYS |= {
    n: f
    for n, f in _UMATH.items()
    if isinstance(f, np.ufunc) and not isinstance(vars(np).get(n), type(np.sum))
}
"""NumPy's public functions; of ufuncs those that NumPy itself holds, whoever came before us.

But `clip`, and from NumPy 2.5 on `imag`, are functions whose ufunc of that name is not public.
"""


def replaced() -> str | None:
    """Return the name of a NumPy function that the program has replaced, if any.

    Recorders, and numba when it compiles, call NumPy's functions by their names.

    Examples
    --------
    >>> replaced() is None
    True
    """
    names = vars(np)
    return next((n for n, f in _NUMPYS.items() if names.get(n, f) is not f), None)


@lru_cache(maxsize=1024)
def operation_of(ufunc: Any) -> Operation | None:
    """Return the table's entry for a NumPy or `scipy.special` ufunc, or None.

    Examples
    --------
    >>> operation_of(np.add).name
    'add'
    >>> operation_of(np.frompyfunc(abs, 1, 1)) is None
    True
    """
    name = ufunc.__name__
    found = OPERATIONS.get(name)
    if getattr(np, name, None) is ufunc or (name == "clip" and ufunc is CLIP):
        return found
    special = sys.modules.get("scipy.special")
    known = found is not None and "special" in found.traits
    return found if known and getattr(special, name, None) is ufunc else None
