"""What all loop nests have in common: their indices, their blocks, and reading ahead.

Those of elementwise kernels have nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpusched.emit.floatingpoint import TESTS, UNSURE
from gpusched.emit.kernel import Access, Kernel
from gpusched.emit.lines import Lines
from gpusched.emit.operations import named
from gpusched.emit.policy import AHEAD, BLOCK, LONG_ROW, PART, PLACES


def is_heavy(kernel: Kernel) -> bool:
    """Return whether an element takes hundreds of instructions, as that of an `exp` does."""
    return any(named(statement.operation).heavy for statement in kernel.statements)


def block(kernel: Kernel) -> int:
    """Return the elements that are computed in one go.

    A reduction joins them before their result joins a wider, compensated total; a streamed kernel
    computes them in the cache before they go to memory at once.
    """
    if not kernel.reduces_innermost:
        return PART if is_heavy(kernel) else BLOCK
    exact = all(output.value_dtype == "float64" for output in kernel.outputs)
    # Blocks whose deviations are joined to moments wait for the mean of those before.
    long = is_heavy(kernel) or kernel.moments or exact
    if kernel.firsts:  # whose values have room on the stack
        return PART if long else BLOCK
    return kernel.options.block or (PART if long else BLOCK)


class Nest(Lines):
    """Writes the loops around a kernel's `point`; the innermost is left to what derives from it."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.ahead: dict[str, str] = {}
        """By input, how far ahead of a block it is asked for, in source."""
        self.around = self.innermost
        """How many loops there are around what `body` writes."""

    def open(self, line: str) -> None:
        """Add a line that begins a block, and go into it."""
        self.write(line)
        self.depth += 1

    def source(self) -> str:
        """Return the text of the loops."""
        if self.kernel.flags:
            self.write("clear_floating_point_errors()")
        for name in self.kernel.tested:
            self.write(f"any_{name} = False")
        self.begin()
        for level in range(self.around):
            self.loop(level)
            self.enter(level)
        self.body()
        self.depth = 1
        self.end()
        if self.kernel.checked:
            self.write(f"return {self.errors()}")
        return str(self)

    def errors(self) -> str:
        """Return the errors that may have arisen, as source.

        Flags are read where tests have found nothing. Read always, and joined with the same bits,
        they would have LLVM keep loops from being vectorised, by a "freeze" of what these gather.
        """
        flags = self.kernel.flags
        found = f"floating_point_errors() & {flags}" if flags else ""
        if flags and self.kernel.halves:
            found = f"({found}) << {UNSURE}"
        tests = [f"({TESTS[name]} if any_{name} else 0)" for name in self.kernel.tested]
        either = " | ".join(tests)
        either = f"({either})" if flags and len(tests) > 1 else either
        return " or ".join(part for part in (either, found) if part)

    def compute(self, results: list[str], values: str) -> None:
        """Write the call of `point` for one element, and keep what it says besides the results."""
        tested = self.kernel.tested
        self.write(f"{', '.join([*results, *tested])} = point({values})")
        for name in tested:
            self.write(f"any_{name} = any_{name} | {name}")

    def begin(self) -> None:
        """Write what comes before the loops."""

    def loop(self, level: int) -> None:
        """Open a loop around the innermost one."""
        self.open(f"for i{level} in range(n{level}):")

    def body(self) -> None:
        """Write the innermost loop."""
        raise NotImplementedError

    def end(self) -> None:
        """Write what comes behind the loops."""

    def enter(self, level: int) -> None:
        """Move what a loop moves to where it is now."""
        self.move([level], f"_{level}", self.operands)
        if level == self.kernel.label_loop:
            self.to_label("0")

    def to_label(self, index: str) -> None:
        """Move operands to the places of the label at an index; those below 0 have no results."""
        self.write(f"label = {super().label(index)}")
        if self.kernel.segmented:
            self.open("if label >= 0:")
            level = self.kernel.label_loop
            for name in self.outputs:
                self.advance(name, f"label * {name}_s{level}", f"_{level}")
        self.move_gathered()

    def element(self, name: str, index: str) -> str:
        """Return in source the element of an operand; of an input's, `index` may be negative."""
        plain = name in self.outputs or self.access(name) not in (Access.STRIDED, Access.LABELLED)
        return super().element(name, index) if plain else f"element({self.current[name]}, {index})"

    def joined_before(self, last: str = "") -> str:
        """Return in source how often the loops around the innermost have reduced to a place before.

        `last` is the index of the last of these loops, where it is not as the loop has it.
        """
        found = ""
        for outer in range(self.innermost):
            if self.kernel.loops[outer] == "reduce":
                here = last if last and outer == self.innermost - 1 else f"i{outer}"
                here = f"n_before + {here}" if self.kernel.resumes and not outer else here
                found = f"({found}) * n{outer} + {here}" if found else here
        return found or "0"

    def places(self, index: str) -> list[str]:
        """Return where all outputs have the element of an index."""
        return [self.place(name, index) for name in self.outputs]

    def open_blocks(self) -> None:
        """Open a loop over blocks of the innermost loop."""
        level, size = self.innermost, block(self.kernel)
        self.write(f"blocks = (n{level} + {size - 1}) // {size}")
        self.open("for number in range(blocks):")
        self.write(f"start = {self.number()} * {size}")
        self.write(f"count = min({size}, n{level} - start)")

    def parts(self, size: int) -> None:
        """Open a loop over parts of the innermost loop, in their order, and move operands there."""
        self.open(f"for start in range(0, n{self.innermost}, {size}):")
        self.write(f"count = min({size}, n{self.innermost} - start)")
        self.to_start(self.operands)

    def number(self) -> str:
        """Return in source the number of the block that is computed next."""
        return "number" if is_heavy(self.kernel) else f"spread(number, blocks, {PLACES})"

    def enter_block(self) -> None:
        """Move inputs to the start of a block, and ask for a later one."""
        self.to_start(self.inputs)
        for name, ahead in self.ahead.items():
            self.write(f"prefetch({self.current[name]}, {ahead}, count)")

    def to_start(self, names: Iterable[str]) -> None:
        """Move operands to the start of a part of the innermost loop."""
        for name in names:
            if self.access(name) is Access.UNIT:
                self.advance(name, "start", "_block")
            elif self.access(name) is Access.STRIDED:
                self.advance(name, f"start * {name}_s{self.innermost}", "_block")

    def look_ahead(self) -> None:
        """Write how far ahead each input is asked for: a row, or a little further in a long row.

        Inputs that are the same for all rows are not, since they stay in the cache; nor are those
        whose elements are not side by side.
        """
        level = self.innermost
        units = [(n, self.operands[n]) for n in self.inputs if self.access(n) is Access.UNIT]
        widest = max((np.dtype(each.dtype).itemsize for _, each in units), default=1)
        further, long = AHEAD // widest, LONG_ROW // widest
        for name, each in units:
            if not level:
                self.ahead[name] = f"ahead({further})"
            elif each.access[level - 1] is Access.STRIDED:
                self.ahead[name] = f"{name}_ahead"
                row = f"{name}_s{level - 1} if n{level} <= {long} else"
                # A streamed kernel stops to write, and no processor reads ahead meanwhile.
                streamed = self.kernel.streamed
                found = f"{row} ahead({further})" if streamed else f"ahead({row} {further})"
                self.write(f"{name}_ahead = {found}")


class Elementwise(Nest):
    """Writes each value where it belongs, or a block of them past the caches."""

    def begin(self) -> None:
        """Write what comes before the loops."""
        if self.kernel.streamed:
            for name in self.outputs:
                self.write(f"{name}_part = scratch({name})")
            if not is_heavy(self.kernel):
                self.look_ahead()

    def body(self) -> None:
        """Write the innermost loop."""
        self.hoist(self.still)
        if self.kernel.streamed:
            self.stream()
        else:
            self.open(f"for i in range(n{self.innermost}):")
            self.compute(self.places("i"), self.values("i"))

    def end(self) -> None:
        """Write what comes after the loops."""
        if self.kernel.streamed:
            self.write("drain()")

    def stream(self) -> None:
        """Compute parts where they stay in the cache, and write each past it to memory.

        A line of memory that is written whole that way is not read first, as it is otherwise.
        """
        size, level = block(self.kernel), self.innermost
        if level:
            # Blocks end where lines of memory do, wherever a row begins.
            self.write(f"lead = past_line({self.current[self.outputs[0]]})")
            self.write(f"blocks = (lead + n{level} + {size - 1}) // {size}")
            self.open("for number in range(blocks):")
            self.write(f"first = {self.number()} * {size} - lead")
            self.write("start = max(first, 0)")
            self.write(f"count = min(first + {size}, n{level}) - start")
        else:
            self.open_blocks()
        self.enter_block()
        with self.block("for i in range(count):"):
            self.compute([f"{name}_part[i]" for name in self.outputs], self.values("i"))
        for name in self.outputs:
            self.write(f"stream(shift({self.current[name]}, start), {name}_part, count)")
