"""Loops that join each element to what is at its place, as those of columns do."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.emit import accumulators
from gpusched.emit.generate import combine
from gpusched.emit.hostloops.nest import Nest, is_heavy
from gpusched.emit.kernel import BY_LINES, Access, Kernel
from gpusched.emit.policy import HEAVY_ROWS, JOINED_ROWS, ROW_STATEMENTS


class Joining(Nest):
    """Joins rows to each other, some at once."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        light = len(kernel.statements) <= ROW_STATEMENTS and not is_heavy(kernel)
        self.together = JOINED_ROWS if light else HEAVY_ROWS if kernel.moments else 1
        """Rows that are joined at once, where the loops allow it."""

    def loop(self, level: int) -> None:
        """Write the loop of one level, and all within it."""
        if level == self.innermost - 1 and self.joins_rows():
            self.rows(level)
        else:
            super().loop(level)

    def body(self) -> None:
        """Write the innermost loop."""
        self.hoist(self.still)
        self.count_before()
        self.open(f"for i in range(n{self.innermost}):")
        self.join([self.current])

    def count_before(self) -> None:
        """Write how many values have been joined to each place before, where that is needed."""
        if self.kernel.moments or self.kernel.firsts:
            self.write(f"before = {self.joined_before(self.innermost)}")

    def joins_rows(self) -> bool:
        """Return whether the loops add rows to each other, in a computation that waits for them."""
        labelled = self.kernel.label_loop == self.innermost - 1
        return self.together > 1 and self.kernel.loops[-2:] == ("reduce", "map") and not labelled

    def rows(self, level: int) -> None:
        """Join some rows at once, and open the loop for those that are left.

        Each is read from another place, and what they are joined to is read and written once.
        """
        before, depth, count = dict(self.current), self.depth, self.together
        self.open(f"for i{level} in range(0, n{level} - {count - 1}, {count}):")
        self.enter(level)
        row0 = dict(self.current)
        moving = [x for x in self.inputs if self.operands[x].access[level] is Access.STRIDED]
        for row in range(1, count):
            for name in moving:
                self.write(f"{row0[name]}_row{row} = shift({row0[name]}, {row} * {name}_s{level})")
        each_row = [
            row0 | ({name: f"{row0[name]}_row{row}" for name in moving} if row else {})
            for row in range(count)
        ]
        for row, self.current in enumerate(each_row):
            self.hoist(self.still, str(row or ""))
        self.count_before()
        self.open(f"for i in range(n{self.innermost}):")
        self.join(each_row)
        self.current, self.depth = before, depth
        self.open(f"for i{level} in range(n{level} - n{level} % {count}, n{level}):")

    def join_first(self, k: int, value: str, places: Sequence[str], row: str) -> None:
        """Join a value of a row to the first one at its place: rows come in their order."""
        found, at = places
        self.write(f"takes{k} = {accumulators.sooner(self.kernel.outputs[k], value, found)}")
        self.write(f"{found} = {value} if takes{k} else {found}")
        self.write(f"{at} = {row} if takes{k} else {at}")

    def join(self, rows: Sequence[dict[str, str]]) -> None:
        """Join what `point` returns for each of some rows to what is at the outputs' places."""
        places = self.places("i")
        names = [f"value{k}" for k in range(len(places))]
        for row, self.current in enumerate(rows):
            self.compute(names, self.values("i", str(row or "")))
            for k, output in enumerate(self.kernel.outputs):
                if output.combine not in BY_LINES:
                    self.write(f"{places[k]} = {combine(output, places[k], names[k])}")
            for k in self.kernel.moments:
                if row == 0:
                    self.write(f"mean{k} = {names[k]} if before == 0 else {places[k]}")
                    self.write(*accumulators.start_block(k))
                self.write(*accumulators.take(k, names[k]))
            for k in self.kernel.firsts:
                self.join_first(k, names[k], places[k : k + 2], f"before + {row}")
        for k in self.kernel.moments:
            so_far = [f"mean{k}", *places[k + 1 : k + 3]]
            self.write(
                accumulators.join_block(k, places[k : k + 3], so_far, "before", str(len(rows)))
            )
