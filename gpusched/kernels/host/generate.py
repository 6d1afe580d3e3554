"""A raw kernel without `numba.cuda` -> the source of a function that runs all of its threads.

There is one function for each region between barriers, which one thread runs, and one around them
that calls it for each thread of a block, block after block. What a thread keeps over a barrier
is in an array with an element for each thread.
"""

from __future__ import annotations

import ast
import copy

from gpusched.dataclass import dataclass
from gpusched.kernels.array_arguments import uninitialised_value
from gpusched.kernels.errors import NotCompiledError
from gpusched.kernels.host.lowering import AXES, CONTEXT, Barrier, Rewritten
from gpusched.kernels.host.regions import (
    Branch,
    Loop,
    Meeting,
    Part,
    Region,
    check_returns,
    mentioned,
    regions,
    split,
    stored,
    tests,
)

INDENT = "    "


@dataclass
class Source:
    """What a kernel becomes."""

    text: str
    """Defines ``kernel``, and the functions it calls."""
    kept: list[str]
    """The user's variables that live over a barrier, in the order of their arrays."""
    counters: int
    """How many variables of our own follow them."""
    masks: int
    """How many loops and branches with barriers are inside one another; last arguments."""
    meetings: list[int]
    """Lines of barriers inside them; the kernel returns the number of one that not all threads
    reach, from 1."""


def whole(found: Rewritten) -> str:
    """Return the source of one thread with its barriers left out, for the types of variables."""
    body = [_Passed().visit(copy.deepcopy(statement)) for statement in found.body]
    lines = [f"def whole{found.suffix}({', '.join(_thread_arguments(found))}):"]
    lines += [INDENT + line for line in _local(found)]
    lines += [INDENT + line for s in body for line in ast.unparse(s).splitlines()]
    return "\n".join([*lines, f"{INDENT}return", ""])


class _Passed(ast.NodeTransformer):
    def visit_Barrier(self, node: Barrier) -> ast.AST:
        return ast.Pass()


def source(found: Rewritten) -> Source:
    """Return the source of a kernel.

    Raises
    ------
    NotCompiledError
        If it is not known at which barriers its threads meet.
    """
    parts = split(found.body, found.suffix)
    check_returns(parts)
    kept, counters = _kept(found, parts)
    writer = _Writer(found, [*kept, *counters])
    writer.kernel(parts)
    masks = [f"active_{k + 1}{found.suffix}" for k in range(writer.levels)]
    given = ", ".join([*arguments(found, [*kept, *counters]), *masks])
    head = f"def kernel{found.suffix}({given}):"
    text = "\n".join([*writer.functions, head, *writer.lines, ""])
    return Source(text, kept, len(counters), len(masks), writer.meetings)


def arguments(found: Rewritten, kept: list[str]) -> list[str]:
    """Return the kernel's arguments in order: the user's, memory, what is kept, and numbers."""
    memory = [m.name if m.shared else _store(found, m.name) for m in found.memory]
    extents = [f"{word}_{axis}{found.suffix}" for word in ("blocks", "threads") for axis in AXES]
    stores = [_store(found, name) for name in kept]
    return [*found.parameters, *memory, *stores, *extents, f"fault{found.suffix}"]


def _store(found: Rewritten, name: str) -> str:
    return f"kept_{name}{found.suffix}"


def _thread_arguments(found: Rewritten, kept: list[str] | None = None) -> list[str]:
    """Return what one thread is given."""
    extents = [f"{word}_{axis}{found.suffix}" for word in ("blocks", "threads") for axis in AXES]
    given = [a for a in arguments(found, kept or []) if a not in extents]
    context = [f"{name}{found.suffix}" for name in (*CONTEXT, "slot")]
    return [*given, *context]


def _local(found: Rewritten) -> list[str]:
    """Return lines that give a thread its own part of the local memory."""
    names = [memory.name for memory in found.memory if not memory.shared]
    return [f"{name} = {_store(found, name)}[slot{found.suffix}]" for name in names]


def _kept(found: Rewritten, parts: list[Part]) -> tuple[list[str], list[str]]:
    """Return the variables that live over a barrier: the user's, and our own counters."""
    units = [mentioned(r.statements) for r in regions(parts)] + [mentioned(t) for t in tests(parts)]
    if len(units) < 2:
        return [], []
    assigned = set().union(*(stored(region.statements) for region in regions(parts)))
    changed = sorted(assigned & {*found.parameters})
    if changed:
        raise NotCompiledError(f"it assigns to its parameter {changed[0]}, and has barriers")
    repeated = set().union(*(_inside(part) for part in parts if isinstance(part, Loop | Branch)))
    kept = {n for n in assigned if n in repeated or sum(n in unit for unit in units) > 1}
    user = {n.id for s in found.body for n in ast.walk(s) if isinstance(n, ast.Name)}
    return sorted(kept & user), sorted(kept - user)


def _inside(part: Loop | Branch) -> set[str]:
    inner = [part.body, part.orelse] if isinstance(part, Branch) else [part.body]
    every = [mentioned(region.statements) for parts in inner for region in regions(parts)]
    return set().union(*every)


class _Writer:
    """Writes the functions of regions, and the loops over blocks and threads around them."""

    def __init__(self, found: Rewritten, kept: list[str]) -> None:
        self.found = found
        self.kept = kept
        self.functions: list[str] = []
        self.lines: list[str] = []
        self.meetings: list[int] = []
        self.levels = 0
        self.level = 0
        """Loops and branches around what is written, those that have a barrier inside."""
        self.depth = 0
        self._regions = 0
        self._tests = 0
        self._given = ", ".join(_thread_arguments(found, kept))

    def own(self, name: str) -> str:
        return name + self.found.suffix

    def write(self, *lines: str) -> None:
        self.lines += [INDENT * self.depth + line for line in lines]

    def kernel(self, parts: list[Part]) -> None:
        self.depth = 1
        product = " * ".join(self.own(f"threads_{axis}") for axis in AXES)
        self.write(f"{self.own('threads')} = {product}")
        for axis in reversed(AXES):
            self._loop("block", axis)
        for memory in self.found.memory:
            if memory.shared:
                value = repr(uninitialised_value(memory.dtype))
                self.write(f"{memory.name}.fill({self.own(value) if value == 'nan' else value})")
        self.parts(parts)
        self.write("pass")
        self.depth = 1
        self.write("return 0")

    def _loop(self, word: str, axis: str) -> None:
        self.write(f"for {self.own(f'{word}_{axis}')} in range({self.own(f'{word}s_{axis}')}):")
        self.depth += 1

    def parts(self, parts: list[Part]) -> None:
        for part in parts:
            if isinstance(part, Region):
                self.region(part)
            elif isinstance(part, Meeting):
                self.meeting(part)
            elif isinstance(part, Loop):
                self.loop(part)
            else:
                self.branch(part)

    def threads(self, *lines: str) -> None:
        """Write what is done for each thread of the block."""
        depth = self.depth
        self.write(f"{self.own('slot')} = 0")
        for axis in reversed(AXES):
            self._loop("thread", axis)
        self.write(*lines, f"{self.own('slot')} += 1")
        self.depth = depth

    def region(self, part: Region) -> None:
        name = self.own(f"region_{self._regions}")
        self._regions += 1
        used = mentioned(part.statements)
        after = stored(part.statements)
        body = self._loads(used)
        body += [line for s in part.statements for line in ast.unparse(s).splitlines()]
        slot = self.own("slot")
        body += [f"{_store(self.found, n)}[{slot}] = {n}" for n in self.kept if n in after]
        self._function(name, [*body, "return"])
        call = f"{name}({self._given})"
        if self.level:
            self.threads(f"if {self._active(self.level)}[{slot}]:", INDENT + call)
        else:
            self.threads(call)

    def meeting(self, part: Meeting) -> None:
        if self.level:
            self.meetings.append(part.line)
            missing = f"{self._count(self.level)} != {self.own('threads')}"
            self.write(f"if {missing}:", f"{INDENT}return {len(self.meetings)}")

    def _active(self, level: int) -> str:
        return self.own(f"active_{level}")

    def _count(self, level: int) -> str:
        return self.own(f"count_{level}")

    def _loads(self, used: set[str]) -> list[str]:
        slot = self.own("slot")
        kept = [f"{n} = {_store(self.found, n)}[{slot}]" for n in self.kept if n in used]
        return [*_local(self.found), *kept]

    def _function(self, name: str, body: list[str]) -> None:
        self.functions += [f"def {name}({self._given}):", *(INDENT + line for line in body), "", ""]

    def _enter(self, test: ast.expr) -> None:
        """Write which threads a test holds for; what follows is done by those."""
        name = self.own(f"test_{self._tests}")
        self._tests += 1
        value = f"return 1 if {ast.unparse(test)} else 0"
        self._function(name, [*self._loads(mentioned(test)), value])
        slot, call = self.own("slot"), f"{name}({self._given})"
        if self.level:
            call = f"{call} if {self._active(self.level)}[{slot}] else 0"
        self.level += 1
        self.levels = max(self.levels, self.level)
        here = f"{self._active(self.level)}[{slot}]"
        self.write(f"{self._count(self.level)} = 0")
        self.threads(f"{here} = {call}", f"{self._count(self.level)} += {here}")

    def loop(self, part: Loop) -> None:
        self.write("while True:")
        self.depth += 1
        self._enter(part.test)
        self.write(f"if {self._count(self.level)} == 0:", f"{INDENT}break")
        self.parts(part.body)
        self.level -= 1
        self.depth -= 1

    def branch(self, part: Branch) -> None:
        self._enter(part.test)
        self._some(part.body)
        if part.orelse:
            slot, count = self.own("slot"), self._count(self.level)
            here = f"{self._active(self.level)}[{slot}]"
            outer = f"{self._active(self.level - 1)}[{slot}]" if self.level > 1 else "1"
            self.write(f"{count} = 0")
            self.threads(f"{here} = {outer} - {here}", f"{count} += {here}")
            self._some(part.orelse)
        self.level -= 1

    def _some(self, parts: list[Part]) -> None:
        self.write(f"if {self._count(self.level)} > 0:")
        self.depth += 1
        self.parts(parts)
        self.write("pass")
        self.depth -= 1
