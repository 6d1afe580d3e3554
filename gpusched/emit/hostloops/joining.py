"""Loops that join each element to what is at its place, as those of columns do."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.emit import accumulators
from gpusched.emit.generate import combine
from gpusched.emit.hostloops.nest import Nest, is_heavy
from gpusched.emit.kernel import BY_LINES, Access, Kernel
from gpusched.emit.policy import JOINED_ROWS, ROW_STATEMENTS


class Joining(Nest):
    """Joins rows to each other, some at once."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        light = len(kernel.statements) <= ROW_STATEMENTS and not is_heavy(kernel)
        self.together = JOINED_ROWS if light else 1
        """Rows that are joined at once, where the loops allow it."""
        self.by_rows = kernel.loops[-2:] == ("reduce", "map")
        """Whether the loops join one row after the other to the same places."""
        self.in_stretch = 0
        """How deep the loop over stretches of rows is, if there is one."""

    def loop(self, level: int) -> None:
        """Write the loop of one level, and all within it."""
        if level < self.innermost - 1 or not self.by_rows:
            super().loop(level)
            return
        start, stop = "", f"n{level}"
        if self.kernel.moments:
            start, stop = "start", "stop"
            self.stretches(level)
        # Rows with labels are each read from elsewhere.
        count = 1 if self.kernel.label_loop == level else self.together
        if count > 1:
            self.rows(level, start or "0", stop, count)
            rows = f"({stop} - {start})" if start else stop
            start = f"{stop} - {rows} % {count}"
        self.open(f"for i{level} in range({f'{start}, {stop}' if start else stop}):")

    def stretches(self, level: int) -> None:
        """Open a loop over stretches of rows, and give moments as sums of deviations in each.

        The first has `JOINED_ROWS`, each later one as many as there have been before.
        """
        self.write("stop = 0")
        self.open(f"while stop < n{level}:")
        self.in_stretch = self.depth
        self.write(f"start, before = stop, {self.joined_before(self.innermost, 'stop')}")
        self.write(f"stop = min(start + max(before, {JOINED_ROWS}), n{level})")
        with self.block("if before == 0:"):
            self.begin_means(level)
        with self.block(f"for i in range(n{self.innermost}):"):
            for k in self.kernel.moments:
                _, rest, squares = self.places("i")[k : k + 3]
                self.write(f"{rest}, {squares} = reopened({rest}, {squares}, before)")

    def begin_means(self, level: int) -> None:
        """Write the values of a stretch's first row where means are, which it is taken off then."""
        self.write(f"i{level} = start")
        self.enter(level)
        self.hoist(self.still)
        with self.block(f"for i in range(n{self.innermost}):"):
            names = [f"value{k}" for k in range(len(self.outputs))]
            self.compute(names, self.values("i"))
            self.write(*(f"{self.places('i')[k]} = {names[k]}" for k in self.kernel.moments))

    def settle(self) -> None:
        """Write the end of a stretch: sums of deviations are given as moments again."""
        self.write(f"before = {self.joined_before(self.innermost, 'stop')}")
        with self.block(f"for i in range(n{self.innermost}):"):
            for k in self.kernel.moments:
                places = ", ".join(self.places("i")[k : k + 3])
                self.write(f"{places} = settled({places}, before)")

    def body(self) -> None:
        """Write the innermost loop, and what comes after the rows of a stretch."""
        self.hoist(self.still)
        self.count_before()
        self.open(f"for i in range(n{self.innermost}):")
        self.join([self.current])
        if self.in_stretch:
            self.depth = self.in_stretch
            self.settle()

    def count_before(self) -> None:
        """Write how many values have been joined to each place before, where that is needed."""
        if self.kernel.firsts or (self.kernel.moments and not self.in_stretch):
            self.write(f"before = {self.joined_before(self.innermost)}")

    def rows(self, level: int, start: str, stop: str, count: int) -> None:
        """Write the loop that joins some rows at once.

        Each is read from another place, and what they are joined to is read and written once.
        """
        before, depth = dict(self.current), self.depth
        self.open(f"for i{level} in range({start}, {stop} - {count - 1}, {count}):")
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
                    mean = places[k]
                    first = "" if self.in_stretch else f"{names[k]} if before == 0 else "
                    self.write(f"mean{k} = {first}{mean}", *accumulators.start_block(k))
                self.write(*accumulators.take(k, names[k]))
            for k in self.kernel.firsts:
                self.join_first(k, names[k], places[k : k + 2], f"before + {row}")
        for k in self.kernel.moments:
            mean, rest, squares = places[k : k + 3]
            if self.in_stretch:
                self.write(f"{rest} = {rest} + apart{k}", f"{squares} = {squares} + square{k}")
            else:
                so_far = [f"mean{k}", rest, squares]
                joined = [mean, rest, squares], so_far, "before", str(len(rows))
                self.write(*accumulators.join_block(k, *joined))
