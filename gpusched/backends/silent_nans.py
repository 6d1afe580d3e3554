"""Machine code that raises no floating-point error where NumPy's would not: for kernels with flags.

Where vectors with NaN are compared for which is less, processors raise an error, unless they are
asked for a comparison that raises none. LLVM calls such comparisons constrained, and makes no
vectors of loops that have them. So they take the place of ordinary ones, and of the least and the
greatest of numbers, in what LLVM has made of a kernel, where loops have their vectors and all
functions are part of them. LLVM offers that as text alone. It costs nothing: the instructions are
as fast. Nothing else is known to raise an error for NaN.

Every comparison and every least or greatest is either replaced, or known to raise nothing; of any
other form there is no kernel. float16 is compared as float32, which holds all of its numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from typing import Any

import llvmlite.binding

from gpusched.adapters.numba import after_optimising
from gpusched.backends import scalar_choices
from gpusched.emit.floatingpoint import IS_X86
from gpusched.vectormath.variants import features

_NUMBER = "(?:half|float|double)"
_KIND = rf"(<\d+ x {_NUMBER}>|{_NUMBER})"
_WORDS = "(?:[a-z]+ )*?"
_INSTRUCTION = re.compile(
    r"^  (\S+) = ((?:fcmp |[^@\n]*@llvm\.(?:\w+\.)*f?(?:min|max)(?:imum|num|imumnum)?\.).*)$",
    re.M,
)
"""Whatever compares floats, and the name of its result."""
_SILENT = re.compile(
    rf"fcmp {_WORDS}(?:[ou]eq|one|une|ord|uno|true|false) .+|call .+@llvm\.x86\.avx512\..+, i32 8\)"
)
_COMPARISON = re.compile(rf"fcmp {_WORDS}([ou][lg][te]) {_KIND} (.+)")
_EXTREME = re.compile(
    rf"{_WORDS}call {_WORDS}{_KIND} @llvm\.(minimum|maximum|minnum|maxnum)\.[^(]+\((.+)\).*"
)
_REDUCTION = re.compile(
    rf"{_WORDS}call {_WORDS}{_NUMBER} "
    rf"@llvm\.vector\.reduce\.f(min|max)(imum)?\.[^(]+\({_KIND} (?:noundef )?(.+)\).*"
)
_CHOICE = re.compile(
    rf"^  (\S+) = select {_WORDS}<\d+ x i1> (\S+), {_KIND} (.+), {_KIND} (.+)$", re.M
)
_NAME = re.compile(r'%"[^"]*"|%[\w.$-]+')
_OPERAND = re.compile(r'%"[^"]*"|splat \([^)]*\)|<[^>]*>|[^\s,]+')

_INSTEAD = {"olt": (0, 0), "ogt": (0, 0), "ole": (1, 0), "oge": (0, 1),
            "ult": (0, 1), "ugt": (1, 0), "ule": (0, 0), "uge": (0, 0)}  # fmt: skip
"""By comparison, the numbers that are compared where an operand is NaN, with the same result."""

_NEGATED = {"ule": "ogt", "uge": "olt"}
"""By comparison, the one that is true where it is false."""

_VECTORS = {"float": "<4 x float>", "double": "<2 x double>"}
"""Registers of single numbers."""

CONSTRAINED = IS_X86 and bool(features().get("avx"))
"""Whether this processor compares vectors without an error; others are given numbers instead."""
WIDE = ("<16 x float>", "<8 x double>") if features().get("avx512f") else ()
"""Vectors whose least and greatest numbers this processor finds without an error."""
HAS_MASKS = bool(features().get("avx512vl"))
"""Whether it has registers for results of comparisons: single numbers are compared as vectors are
then, and a choice by that takes half the time. Elsewhere the instruction for single numbers that
raises none sets the processor's condition codes, which is as good as any for choices between
integers; floats are chosen as vectors are (`scalar_choices`)."""


def by_condition_codes() -> bool:
    """Return whether single numbers are compared into the processor's condition codes.

    Floats are chosen as vectors are then. And searches take comparisons that raise nothing where no
    error is looked for, too: LLVM keeps those of single numbers in order, step by step of several
    searches, which a processor then makes at once. Others it moves to what needs them, one whole
    search behind the other: farther than a processor looks ahead, where tables are long.
    """
    return CONSTRAINED and not HAS_MASKS


class _Text:
    """The text of a module, some instructions of which others take the place of."""

    def __init__(self) -> None:
        self.names = map("%gpusched.silent.{}".format, count())
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.unused: set[str] = set()
        """Comparisons that nothing needs once one instruction chooses by them."""

    def replace(self, text: str) -> str:
        """Return the text of a module that raises nothing where NaN is compared."""
        if by_condition_codes():
            text = scalar_choices.as_vectors(text)
        found = _INSTRUCTION.sub(self._silenced, self._with_extremes(text))
        missing = [line for name, line in self.declared.items() if f"{name}(" not in text]
        return "\n".join([found, *missing, ""])

    def _with_extremes(self, text: str) -> str:
        """Return the text with one instruction where the less or greater of two is chosen.

        Of equal numbers, such as zeros of both signs, and of NaN, it gives the second: so does the
        choice by whether the first is less, or greater. Black-Scholes' formula with `erf` of
        float32 takes 0.95 of the time so, on an EPYC with AVX-512.
        """
        compared = {}
        for result, instruction in _INSTRUCTION.findall(text):
            if (parts := _COMPARISON.fullmatch(instruction)) and parts[2] in WIDE:
                compared[result] = parts[1], _OPERAND.findall(parts[3])[:2]
        if not compared:
            return text
        uses = Counter(_NAME.findall(text))

        def extreme(match: re.Match[str]) -> str:
            result, condition, kind, x, _, y = match.groups()
            name, pair = compared.get(condition, ("", []))
            chosen = [_OPERAND.findall(each)[0] for each in (x, y)]
            if name in _NEGATED:
                name, chosen = _NEGATED[name], chosen[::-1]
            if name not in ("olt", "ogt") or chosen not in (pair, pair[::-1]):
                return match[0]
            uses[condition] -= 1
            least = (name == "olt") == (chosen == pair)
            return f"  {result} = {self._wide('min' if least else 'max', kind, *chosen)}"

        found = _CHOICE.sub(extreme, text)
        self.unused = {name for name in compared if uses[name] == 1}
        return found

    def _wide(self, name: str, kind: str, a: str, b: str) -> str:
        """Return the instruction that finds the least or greatest numbers of two vectors."""
        function = f"@llvm.x86.avx512.{name}.{'ps' if 'float' in kind else 'pd'}.512"
        self.declared[function] = f"declare {kind} {function}({kind}, {kind}, i32 immarg)"
        return f"call {kind} {function}({kind} {a}, {kind} {b}, i32 8)"  # 8: without errors

    def _silenced(self, match: re.Match[str]) -> str:
        result, instruction = match.groups()
        if result in self.unused:
            return ""
        if _SILENT.fullmatch(instruction):
            return match[0]
        for form, write in (
            (_COMPARISON, self._comparison),
            (_EXTREME, self._extreme),
            (_REDUCTION, self._reduction),
        ):
            if found := form.fullmatch(instruction):
                write(*found.groups())
                *before, last = self.lines
                self.lines = []
                return "\n".join([*before, f"  {result} = {last.partition(' = ')[2]}"])
        raise NotImplementedError(f"a comparison of a form that is not known: {instruction}")

    def _add(self, instruction: str) -> str:
        """Add an instruction; return the name of its result."""
        name = next(self.names)
        self.lines.append(f"  {name} = {instruction}")
        return name

    def _comparison(self, name: str, kind: str, rest: str) -> None:
        a, b = (self._single(kind, x) for x in _OPERAND.findall(rest)[:2])
        self._compare(name, _of_single(kind), a, b)

    def _compare(self, name: str, kind: str, a: str, b: str) -> str:
        """Add the comparison of two numbers, or of two vectors of them."""
        if not CONSTRAINED:
            numbers = self._add(f"fcmp ord {kind} {a}, {b}")
            instead = (_constant(kind, number) for number in _INSTEAD[name])
            a, b = (self._choose(kind, numbers, *x) for x in zip((a, b), instead, strict=True))
            return self._add(f"fcmp {name} {kind} {a}, {b}")
        if kind in _VECTORS and HAS_MASKS:
            vector = _VECTORS[kind]
            found = self._compare(name, vector, self._widened(kind, a), self._widened(kind, b))
            return self._add(f"extractelement {_bits(vector)} {found}, i64 0")
        function = f"@llvm.experimental.constrained.fcmp.{_short(kind)}"
        self.declared[function] = (
            f"declare {_bits(kind)} {function}({kind}, {kind}, metadata, metadata)"
        )
        given = f'{kind} {a}, {kind} {b}, metadata !"{name}", metadata !"fpexcept.ignore"'
        return self._add(f"call {_bits(kind)} {function}({given})")

    def _extreme(self, given: str, name: str, rest: str) -> None:
        operands = _OPERAND.findall(rest.replace(f"{given} ", "").replace("noundef ", ""))[:2]
        a, b = (self._single(given, x) for x in operands)
        kind = _of_single(given)
        vector = _VECTORS.get(kind)
        if vector:
            found = self._furthest(name, vector, self._widened(kind, a), self._widened(kind, b))
            found = self._add(f"extractelement {vector} {found}, i64 0")
        else:
            found = self._furthest(name, kind, a, b)
        self._kept(given, found)

    def _reduction(self, name: str, rest: str | None, given: str, x: str) -> None:
        x, kind, lanes = self._single(given, x), _of_single(given), _lanes(given)
        if lanes & (lanes - 1):
            raise NotImplementedError(f"the f{name} of {lanes} numbers")
        half = lanes // 2
        while half:
            places = [f"i32 {k}" for k in range(half, 2 * half)] + ["i32 poison"] * (lanes - half)
            order = f"<{lanes} x i32> <{', '.join(places)}>"
            other = self._add(f"shufflevector {kind} {x}, {kind} poison, {order}")
            x = self._furthest(f"{name}{rest or 'num'}", kind, x, other)
            half //= 2
        number = self._add(f"extractelement {kind} {x}, i64 0")
        self._kept("half" if "half" in given else "", number)

    def _furthest(self, name: str, kind: str, a: str, b: str) -> str:
        """Add what finds the least or greatest of two vectors of numbers."""
        if kind in WIDE:
            number = self._add(self._wide(name[:3], kind, a, b))
        else:
            first = self._compare("olt" if name.startswith("min") else "ogt", kind, a, b)
            number = self._choose(kind, first, a, b)
        # NaN is not less than anything: the second is chosen then.
        asked = b if name.endswith("num") else a
        nan = self._add(f"fcmp uno {kind} {asked}, {asked}")
        return self._choose(kind, nan, a, number)

    def _choose(self, kind: str, condition: str, a: str, b: str) -> str:
        return self._add(f"select {_bits(kind)} {condition}, {kind} {a}, {kind} {b}")

    def _widened(self, kind: str, x: str) -> str:
        return self._add(f"insertelement {_VECTORS[kind]} poison, {kind} {x}, i64 0")

    def _single(self, kind: str, x: str) -> str:
        """Return numbers of float16 as float32, others as they are."""
        return self._add(f"fpext {kind} {x} to {_of_single(kind)}") if "half" in kind else x

    def _kept(self, kind: str, x: str) -> None:
        """Add the conversion to float16 where a result is of that type."""
        if "half" in kind:
            self._add(f"fptrunc {_of_single(kind)} {x} to {kind}")


def _of_single(kind: str) -> str:
    """Return the type in which numbers of a type are compared."""
    return kind.replace("half", "float")


def _bits(kind: str) -> str:
    """Return LLVM's type of comparisons of numbers of a type."""
    return re.sub("float|double", "i1", kind)


def _short(kind: str) -> str:
    """Return how names of LLVM's functions end that take numbers of a type."""
    number = "f32" if "float" in kind else "f64"
    return f"v{_lanes(kind)}{number}" if _lanes(kind) else number


def _lanes(kind: str) -> int:
    """Return how many numbers a vector has; 0 for a number."""
    found = re.match(r"<(\d+)", kind)
    return int(found[1]) if found else 0


def _constant(kind: str, number: int) -> str:
    each = f"{'float' if 'float' in kind else 'double'} {number}.0"
    lanes = _lanes(kind)
    return f"<{', '.join([each] * lanes)}>" if lanes else f"{number}.0"


def replaced(text: str) -> str:
    """Return the text of a module of LLVM's that raises nothing where NaN is compared."""
    return _Text().replace(text)


def silence(library: Any) -> None:
    """Have one of numba's code libraries raise nothing where NaN is compared, once optimised."""

    def silenced(module: Any, machine: Any) -> Any:
        return llvmlite.binding.parse_assembly(replaced(str(module)))

    after_optimising(library, silenced)
