"""A kernel, free of names and arrays: what is generated, compiled, cached and launched."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Sequence
from dataclasses import asdict, field, fields, is_dataclass, replace
from enum import Enum, StrEnum
from functools import cache, cached_property
from typing import Any, Union, get_args, get_origin, get_type_hints

from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import TESTS

EXACT, FAST = "exact", "fast"
"""Modes of a kernel's mathematics."""

EDITED = "_edited_"
"""In the names of users' versions of kernels, between the original's name and a digest."""


MOMENTS = "moments"
"""How outputs are joined that hold the moments of their values: three for each value, its mean,
what rounding that loses, and the sum of the squares of deviations from both. Behind them comes how
many values there are, a sum of ones, where several launches may share a result."""
JOINED = "joined_moments"
"""The same, of values that are moments of parts, and the number of values in each."""


FIRSTS = {"first_maximum": "maximum", "first_minimum": "minimum"}
"""How outputs are joined that hold the first of the largest or least values, NaN before all others,
with what joins values that are alike. Behind each comes the place of the value."""
PLACE = "place"
"""The same of these outputs: how many values there are before that one, in the loops' order."""
JOINED_PLACE = "joined_place"
"""The same, where the values to join are those of parts and their places."""

LAST_NUMBER = "last_number"
"""How values are joined of which the last one that is not NaN stays."""

BY_LINES = frozenset([MOMENTS, JOINED, PLACE, JOINED_PLACE, *FIRSTS])
"""How outputs are joined by more than one operation."""


class Access(StrEnum):
    """How an operand moves when one loop advances by one."""

    UNIT = "unit"
    """By one element; only in the innermost loop."""
    BROADCAST = "broadcast"
    """Not at all."""
    STRIDED = "strided"
    """By a number of elements given at launch; may be negative."""
    LABELLED = "labelled"
    """To where the label of the iteration says: by that many times a number given at launch."""
    TABLE = "table"
    """Not at all: operations get the array as a whole."""


STILL = frozenset([Access.BROADCAST, Access.TABLE])
"""How operands move that do not."""


@dataclass(frozen=True)
class Input:
    """An array the kernel reads."""

    dtype: str
    access: tuple[Access, ...]
    """One per loop, outermost first."""


@dataclass(frozen=True)
class Statement:
    """One line of `point`: a scalar operation on earlier values."""

    operation: str
    """Name in `operations.OPERATIONS`."""
    output: int
    """Which of the operation's results."""
    arguments: tuple[int | str, ...]
    """Numbers of earlier values (inputs, then parameters, then statements), or literal source."""
    dtype: str
    """Of the result."""
    operand: str
    """Dtype of the first argument: selects the template."""


@dataclass(frozen=True)
class Test:
    """A statement whose errors a kernel finds by looking at its result."""

    statement: int
    """Which one."""
    names: tuple[str, ...]
    """What is looked for, by its names in `gpusched.emit.floatingpoint.TESTS`."""
    shown: bool = False
    """Whether the processor's flags show it, if only the result is computed for each element."""


@dataclass(frozen=True)
class Output:
    """An array the kernel writes, or accumulates into."""

    value: int | str
    """Number of the value written, or literal source."""
    dtype: str
    """Of the array; wider than the value's where an accumulator needs it."""
    access: tuple[Access, ...]
    combine: str | None = None
    """Name in `operations.COMBINES` for a reduction or a scan, or in `BY_LINES`."""
    value_dtype: str = ""
    """Dtype of the value."""


@dataclass(frozen=True)
class Edition:
    """A user's version of a kernel's source."""

    text: str
    """The whole of it."""
    target: str
    """Whose loops are taken from it: ``"cpu"`` (and plain Python), ``"cuda"``, or ``"none"``."""


@dataclass(frozen=True)
class Options:
    """What can be chosen in machine code without changing what it computes; None is ours to choose.

    Some order the sums of a reduction otherwise, so that its last bits may differ.
    """

    block: int | None = None
    """CUDA: threads of a block. CPU: elements that a reduction joins before their partial result
    joins the rest."""
    vector: int | None = None
    """CUDA: elements that a thread loads or stores at once. CPU: bits of the registers used."""
    unroll: int | None = None
    """CUDA: vectors of each input that a thread loads before it uses the first."""


@dataclass(frozen=True)
class Kernel:
    """A scalar function and the loops around it; equal kernels share source and machine code.

    Values are numbered: inputs first, then parameters, then statements.
    """

    inputs: tuple[Input, ...]
    parameters: tuple[str, ...]
    """Dtypes of the numbers passed at launch (the user's constants)."""
    statements: tuple[Statement, ...]
    outputs: tuple[Output, ...]
    loops: tuple[str, ...]
    """``"map"``, ``"reduce"`` or ``"scan"`` per loop, outermost first."""
    checked: bool = False
    """Whether it returns the floating-point errors that may have arisen, for NumPy to report."""
    flags: int = field(default=0, repr=False)
    """Bits of `gpusched.emit.floatingpoint`: the processor's flags that count among these."""
    tests: tuple[Test, ...] = field(default=(), repr=False)
    """Statements whose errors the processor's flags would not show."""
    original: Kernel | None = field(default=None, repr=False)
    """The generated kernel that this is a user's version of."""
    edition: Edition | None = field(default=None, repr=False)
    """The user's source, where it is not generated from the statements."""
    options: Options = field(default=Options(), repr=False)
    """How it is compiled, where somebody has chosen."""
    mathematics: str = field(default=EXACT, repr=False)
    """`EXACT` gives NumPy's arithmetic, and functions as exact as documented; `FAST` fewer bits."""
    streamed: bool = field(default=False, repr=False)
    """Whether results go past the caches to memory, on the CPU, because they are so many."""
    windows: int | None = field(default=None, repr=False)
    """The loop along which the reduced loop's windows slide, each an iteration further than the one
    before, if the CPU joins what they have in common once."""
    rows: int | None = field(default=None, repr=False)
    """How many rows of windows that overlap are joined, where they are so few that the CPU joins
    all at once."""
    labels: int | None = field(default=None, repr=False)
    """The input that holds the labels of a segmented reduction, or of what is read where labels
    say; `point` does not take it."""

    @cached_property
    def description(self) -> str:
        """The whole definition as text; equal for equal kernels, in every process."""
        parts = [repr(self)]
        if self.original is not None:
            parts += [self.original.description, repr(self.edition)]
        if self.flags or self.tests:
            parts.append(f"{self.flags} {self.tests}")
        if self.options != Options():
            parts.append(repr(self.options))
        if self.mathematics != EXACT:
            parts.append(self.mathematics)
        if self.streamed:
            parts.append("streamed")
        if self.windows is not None:
            parts.append(f"windows {self.windows}")
        if self.rows is not None:
            parts.append(f"rows {self.rows}")
        if self.labels is not None:
            parts.append(f"labels {self.labels}")
        return "|".join(parts)

    @cached_property
    def digest(self) -> str:
        """Hexadecimal digest of the whole definition; stable across processes."""
        return hashlib.blake2b(self.description.encode(), digest_size=8).hexdigest()

    @cached_property
    def computation(self) -> str:
        """Hexadecimal digest of what is computed, whatever the arrays' layout in memory."""
        results = [(o.value, o.combine, o.value_dtype) for o in self.outputs]
        labelled = (self.labels, self.gathered) if self.labels is not None else ()
        parts = ([i.dtype for i in self.inputs], self.parameters, self.statements, results,
                 *labelled)  # fmt: skip
        return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()

    @cached_property
    def name(self) -> str:
        """A name for people: the operations in order, then the start of the digest."""
        if self.original is not None:
            return f"{self.original.name}{EDITED}{self.digest[:8]}"
        words: list[str] = []
        for statement in self.statements:
            if not statement.operation.startswith("astype") and statement.operation not in words:
                words.append(statement.operation)
        words += ["take"] * bool(self.gathered)
        reduces = "segments" if self.segmented else "scan" if self.scanned else "reduce"
        reduces = reduces if self.windows is None else "windows"
        words += sorted({f"{o.combine}_{reduces}" for o in self.outputs if o.combine})
        return "_".join([*(words[:5] or ["copy"]), self.digest[:8]])

    @cached_property
    def halves(self) -> bool:
        """Whether it converts float16."""
        lists: tuple[Sequence[Input | Statement | Output], ...]
        lists = self.inputs, self.statements, self.outputs
        return any(value.dtype == "float16" for values in lists for value in values)

    @cached_property
    def tested(self) -> tuple[str, ...]:
        """What `point` says of each element, besides its results: names in `TESTS`."""
        names = {name for test in self.tests for name in test.names}
        return tuple(name for name in TESTS if name in names)

    @cached_property
    def generated(self) -> Kernel:
        """The kernel without what users have chosen: their source, and how it is compiled."""
        found = self.original or self
        return found if found.options == Options() else replace(found, options=Options())

    @property
    def operands(self) -> tuple[Input | Output, ...]:
        """Inputs, then outputs: the arrays in the order of the arguments."""
        return (*self.inputs, *self.outputs)

    @cached_property
    def moments(self) -> tuple[int, ...]:
        """The first of each three outputs that hold moments of values."""
        return tuple(k for k, o in enumerate(self.outputs) if o.combine == MOMENTS)[::3]

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The first of each two outputs that hold a first largest or least value and its place."""
        return tuple(k - 1 for k, o in enumerate(self.outputs) if o.combine == PLACE)

    @cached_property
    def joined_firsts(self) -> tuple[int, ...]:
        """The same, of outputs that join those of parts."""
        return tuple(k - 1 for k, o in enumerate(self.outputs) if o.combine == JOINED_PLACE)

    @property
    def resumes(self) -> bool:
        """Whether it is passed how many rows were joined before, if it is called for some only."""
        ends, counts = (self.loops[0], self.loops[-1]), bool(self.moments or self.firsts)
        return ends == ("scan", "map") or (counts and ends == ("reduce", "map"))

    @property
    def reduces(self) -> bool:
        """Whether any of the outputs is a reduction."""
        return not self.scanned and any(output.combine for output in self.outputs)

    @property
    def scanned(self) -> bool:
        """Whether the outputs are scans."""
        return "scan" in self.loops

    @property
    def values(self) -> tuple[int, ...]:
        """The inputs that `point` takes."""
        return tuple(k for k in range(len(self.inputs)) if k != self.labels)

    @cached_property
    def segmented(self) -> bool:
        """Whether the outputs are reductions by label."""
        return any(Access.LABELLED in output.access for output in self.outputs)

    @cached_property
    def gathered(self) -> tuple[int, ...]:
        """The inputs that are read where labels say."""
        return tuple(k for k, each in enumerate(self.inputs) if Access.LABELLED in each.access)

    @cached_property
    def tables(self) -> tuple[int, ...]:
        """The inputs that operations get as a whole."""
        return tuple(k for k, each in enumerate(self.inputs) if Access.TABLE in each.access)

    @cached_property
    def label_loop(self) -> int | None:
        """The loop along the labels."""
        found = [o.access for o in self.operands if Access.LABELLED in o.access]
        return found[0].index(Access.LABELLED) if found else None

    @property
    def reduces_innermost(self) -> bool:
        """Whether the innermost loop is over an axis that is reduced."""
        return bool(self.loops) and self.loops[-1] == "reduce"


def unchecked(kernel: Kernel) -> Kernel:
    """Return a kernel that computes the same and returns no floating-point errors."""
    return replace(kernel, checked=False, flags=0, tests=())


# Kernels as JSON has them, and back -----------------------------------------------------------


class DefinitionError(ValueError):
    """Data is not a kernel's definition."""


def to_data(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as mappings, lists, texts and numbers.

    Examples
    --------
    >>> from gpusched.emit.kernel import Kernel, from_data, to_data
    >>> kernel = Kernel((), ("float64",), (), (), ("map",))
    >>> from_data(to_data(kernel)) == kernel
    True
    """
    return asdict(kernel)


def from_data(data: Any) -> Kernel:
    """Return the kernel of what `to_data` returned, lists in place of tuples.

    Raises
    ------
    DefinitionError
        If it is something else.
    """
    found = _value(Kernel, data)
    assert isinstance(found, Kernel)
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), data)
    if origin is tuple and isinstance(data, list | tuple):
        (item, _) = get_args(kind)
        return tuple(_value(item, each) for each in data)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(data, dict):
        hints = _hints(kind)
        if data.keys() != {field.name for field in fields(kind)}:
            raise DefinitionError(f"a {kind.__name__} of {sorted(data)}")
        return kind(**{name: _value(hints[name], each) for name, each in data.items()})
    if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(data, str):
        return kind(data)
    if isinstance(kind, type) and type(data) is kind:
        return data
    raise DefinitionError(f"{data!r:.100}, where {kind} is expected")


def _one_of(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None and types.NoneType in kinds:
        return None
    for kind in kinds:
        try:
            return _value(kind, data)
        except DefinitionError:
            continue
    raise DefinitionError(f"{data!r:.100}, where one of {kinds} is expected")
