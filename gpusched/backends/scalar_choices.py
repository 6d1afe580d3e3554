"""Choices between single floats by comparisons, as choices between vectors whose first are used.

Where a processor has no registers for results of comparisons, its instruction that compares single
numbers and raises no error for NaN sets the condition codes, by which floats can be chosen only in
branches: one that is guessed wrong takes ten times as long as a choice. Comparisons of vectors have
results among floats, by which an instruction chooses. So the first numbers of two vectors are
compared, and one of two numbers is chosen as the first of two vectors. What else takes the result
of a comparison, such as a choice between integers, takes that of the single numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from typing import NamedTuple

_FUNCTION = re.compile(r"^define .*?^}$", re.M | re.S)
_WORDS = "(?:[a-z]+ )*?"
_KIND = "(float|double)"
_VALUE = r'(%"[^"]*"|[^\s,]+)'
_NAME = re.compile(r'%"[^"]*"|%[\w.$-]+')
_CONDITION = re.compile(r"^  (\S+) = ((?:fcmp|and|or|xor|select) .+)$", re.M)
"""What may be a condition, and the name of its result."""
_COMPARISON = re.compile(rf"fcmp {_WORDS}(\w+) {_KIND} {_VALUE}, {_VALUE}.*")
_JOINED = re.compile(rf"(and|or|xor) {_WORDS}i1 {_VALUE}, {_VALUE}.*")
_BOTH = re.compile(rf"select i1 {_VALUE}, i1 {_VALUE}, i1 false.*")
_EITHER = re.compile(rf"select i1 {_VALUE}, i1 true, i1 {_VALUE}.*")
_CHOICE = re.compile(
    rf"^  (\S+) = select {_WORDS}i1 {_VALUE}, {_KIND} {_VALUE}, {_KIND} {_VALUE}.*$", re.M
)
_CONVERSION = re.compile(rf"^  (\S+) = uitofp {_WORDS}i1 {_VALUE} to {_KIND}.*$", re.M)

LANES = {"float": 4, "double": 2}
"""How many numbers a register has, by their type."""
_RAISING = ("lt", "le", "gt", "ge")
"""How the names of comparisons end that may raise an error."""


class _Condition(NamedTuple):
    """A comparison of two floats, or two conditions joined by an operation of bits."""

    operation: str
    """The name of the comparison or of the operation."""
    kind: str
    """The type of what is compared; empty for conditions."""
    operands: tuple[str, str]

    @classmethod
    def of(cls, instruction: str) -> _Condition | None:
        """Return what an instruction is; None if it is neither."""
        if found := _COMPARISON.fullmatch(instruction):
            return cls(found[1], found[2], (found[3], found[4]))
        if found := _JOINED.fullmatch(instruction):
            return cls(found[1], "", (found[2], found[3]))
        for form, name in ((_BOTH, "and"), (_EITHER, "or")):
            if found := form.fullmatch(instruction):
                return cls(name, "", (found[1], found[2]))
        return None


class _Function:
    """The text of a function, and vectors whose first bits are its conditions."""

    def __init__(self, text: str) -> None:
        self.text = text
        parsed = {name: _Condition.of(found) for name, found in _CONDITION.findall(text)}
        self.conditions = {name: each for name, each in parsed.items() if each is not None}
        self.uses: Counter[str] = Counter()
        """How often the text has each name, that of an instruction's result included."""
        self.raising: dict[str, bool] = {}
        self.vectors: dict[tuple[str, int], str] = {}
        """The names of vectors, by the condition's name and how many lanes they have."""
        self.behind: dict[str, list[str]] = {}
        """By the name of a condition, the lines to write behind it."""
        self.unused: set[str] = set()
        """Conditions of which only the vectors are needed."""
        self.names = map("%gpusched.choice.{}".format, count())

    def with_vectors(self) -> str:
        """Return the text with vectors where what floats are chosen by may raise an error."""
        if not any(map(self._may_raise, self.conditions)):
            return self.text
        self.uses.update(_NAME.findall(self.text))
        found = _CONVERSION.sub(self._conversion, _CHOICE.sub(self._choice, self.text))
        return _CONDITION.sub(self._condition, found) if self.vectors else found

    def _choice(self, match: re.Match[str]) -> str:
        result, condition, kind, x, _, y = match.groups()
        chosen = self._chosen(result, condition, kind, x, y)
        return chosen or match[0]

    def _conversion(self, match: re.Match[str]) -> str:
        result, condition, kind = match.groups()
        return self._chosen(result, condition, kind, "1.0", "0.0") or match[0]

    def _chosen(self, result: str, condition: str, kind: str, x: str, y: str) -> str:
        """Return the lines of a choice between two numbers; none if it can stay as it is."""
        if not self._may_raise(condition):
            return ""
        lanes, lines = LANES[kind], list[str]()
        bits = self._vector(condition, lanes)
        self._forget(condition)
        a, b = (self._widened(lines, kind, each, lanes) for each in (x, y))
        whole = f"<{lanes} x {kind}>"
        found = self._add(lines, f"select <{lanes} x i1> {bits}, {whole} {a}, {whole} {b}")
        return "\n".join([*lines, f"  {result} = extractelement {whole} {found}, i64 0"])

    def _condition(self, match: re.Match[str]) -> str:
        own = [] if match[1] in self.unused else [match[0]]
        return "\n".join([*own, *self.behind.get(match[1], [])])

    def _may_raise(self, name: str) -> bool:
        """Return whether a comparison that may raise an error is part of a condition."""
        condition = self.conditions.get(name)
        if condition is None:
            return False
        if condition.kind:
            return condition.operation.endswith(_RAISING)
        if name not in self.raising:
            self.raising[name] = any(map(self._may_raise, condition.operands))
        return self.raising[name]

    def _vector(self, name: str, lanes: int) -> str:
        """Return the name of a vector whose first bit is a condition."""
        if (name, lanes) not in self.vectors:
            self.vectors[name, lanes] = self._made(name, lanes)
        return self.vectors[name, lanes]

    def _made(self, name: str, lanes: int) -> str:
        """Write a condition's vector behind it."""
        condition, lines = self.conditions[name], self.behind.setdefault(name, [])
        kind = condition.kind
        if not kind:
            a, b = (self._part(lines, each, lanes) for each in condition.operands)
            return self._add(lines, f"{condition.operation} <{lanes} x i1> {a}, {b}")
        if LANES[kind] != lanes:
            return self._resized(lines, self._vector(name, LANES[kind]), LANES[kind], lanes)
        a, b = (self._widened(lines, kind, each, lanes) for each in condition.operands)
        return self._add(lines, f"fcmp {condition.operation} <{lanes} x {kind}> {a}, {b}")

    def _part(self, lines: list[str], name: str, lanes: int) -> str:
        if name in self.conditions:
            return self._vector(name, lanes)
        return self._widened(lines, "i1", name, lanes)

    def _resized(self, lines: list[str], vector: str, lanes: int, wanted: int) -> str:
        order = ", ".join(["i32 0"] * wanted)
        given = f"<{lanes} x i1> {vector}, <{lanes} x i1> poison"
        return self._add(lines, f"shufflevector {given}, <{wanted} x i32> <{order}>")

    def _widened(self, lines: list[str], kind: str, x: str, lanes: int) -> str:
        return self._add(lines, f"insertelement <{lanes} x {kind}> poison, {kind} {x}, i64 0")

    def _add(self, lines: list[str], instruction: str) -> str:
        """Add an instruction; return the name of its result."""
        name = next(self.names)
        lines.append(f"  {name} = {instruction}")
        return name

    def _forget(self, name: str) -> None:
        """Note that a condition is needed once less, and so is what it is made of if never."""
        self.uses[name] -= 1
        made = any((name, lanes) in self.vectors for lanes in LANES.values())
        if made and self.uses[name] == 1:
            self.unused.add(name)
            for part in self.conditions[name].operands:
                self._forget(part)


def as_vectors(text: str) -> str:
    """Return the text of a module of LLVM's, in which floats are chosen by comparisons of vectors.

    Comparisons that raise no error in any case stay as they are, and so do choices by them.
    """
    return _FUNCTION.sub(lambda found: _Function(found[0]).with_vectors(), text)
