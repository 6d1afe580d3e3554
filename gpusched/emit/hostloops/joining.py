"""Loops that join each element to what is at its place, as those of columns do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.emit import accumulators
from gpusched.emit.generate import combine
from gpusched.emit.hostloops.nest import Nest, is_heavy
from gpusched.emit.kernel import BY_LINES, Access, Kernel
from gpusched.emit.policy import (
    JOINED_ROWS,
    LABELLED_COLUMNS,
    LABELLED_LANES,
    LABELLED_ROWS,
    LONG_RESULT,
    MANY_ROWS,
    SHORT_ROW,
    STATEMENTS,
)


class Joining(Nest):
    """Joins rows to each other, some at once."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.together = self.at_once()
        """Rows that are joined at once, where the loops allow it."""
        self.by_rows = kernel.loops[-2:] == ("reduce", "map")
        """Whether the loops join one row after the other to the same places."""
        self.width = f"n{self.innermost}"
        """How many elements of a row are joined before the next row, in source."""
        self.in_stretch = 0
        """How deep the loop over stretches of rows is, if there is one."""

    def at_once(self) -> int:
        """Return how many rows may be joined at once."""
        return self.fewer(self.kernel.rows or JOINED_ROWS)

    def fewer(self, rows: int) -> int:
        """Return how many of some rows may be joined at once: the longer `point` is, the fewer."""
        if is_heavy(self.kernel):
            return 1
        while rows > 1 and rows * len(self.kernel.statements) > STATEMENTS:
            rows //= 2
        return rows

    def loop(self, level: int) -> None:
        """Write the loop of one level, and all within it."""
        if level < self.innermost - 1 or not self.by_rows:
            super().loop(level)
            return
        start, stop = self.stretches(level)
        count = self.together
        if count > 1:
            first, rows = start or "0", f"({stop} - {start})" if start else stop
            short = self.are_short(level)
            self.write(f"last = {stop} - {rows} % {count}")
            if short:
                self.write(f"last = {first} if {short} else last")
            self.rows(level, first, "last", count)
            start = "last"
        self.open(f"for i{level} in range({f'{start}, {stop}' if start else stop}):")

    def are_short(self, level: int) -> str:
        """Return in source whether rows are read sooner one by one; nothing if they never are.

        Rows of windows that overlap have just been read.
        """
        read = [x for x in self.taken if self.access(x) is Access.UNIT
                and self.operands[x].access[level] is Access.STRIDED]  # fmt: skip
        if not read:
            return ""
        widest = max(np.dtype(self.operands[x].dtype).itemsize for x in read)
        written = sum(np.dtype(each.dtype).itemsize for each in self.kernel.outputs)
        length = f"n{self.innermost}"
        found = f"{length} > {SHORT_ROW // widest} and {length} <= {LONG_RESULT // written}"
        around = [x for x in read if level and self.operands[x].access[level - 1] is Access.STRIDED]
        apart = [f"{x}_s{level - 1} != {x}_s{level}" for x in around]
        many = [f"before > {MANY_ROWS}"] if self.in_stretch else []
        return " and ".join([found, *apart, *many])

    def stretches(self, level: int) -> tuple[str, str]:
        """Return the first row of those to be joined, and the one behind, in source.

        Moments are given as sums of deviations in stretches of rows, in a loop over these: the
        first has `JOINED_ROWS`, each later one as many as there have been before.
        """
        if not self.kernel.moments:
            return "", f"n{level}"
        self.write("stop = 0")
        self.open(f"while stop < n{level}:")
        self.in_stretch = self.depth
        self.write(f"start, before = stop, {self.joined_before('stop')}")
        self.write(f"stop = min(start + max(before, {JOINED_ROWS}), n{level})")
        with self.block("if before == 0:"):
            self.begin_means(level)
        with self.block(f"for i in range(n{self.innermost}):"):
            for k in self.kernel.moments:
                _, rest, squares = self.places("i")[k : k + 3]
                self.write(f"{rest}, {squares} = reopened({rest}, {squares}, before)")
        return "start", "stop"

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
        self.write(f"before = {self.joined_before('stop')}")
        with self.block(f"for i in range(n{self.innermost}):"):
            for k in self.kernel.moments:
                places = ", ".join(self.places("i")[k : k + 3])
                self.write(f"{places} = settled({places}, before)")

    def body(self) -> None:
        """Write the innermost loop, and what comes after the rows of a stretch."""
        self.hoist(self.still)
        self.count_before()
        self.open(f"for i in range({self.width}):")
        self.join([self.current])
        if self.in_stretch:
            self.depth = self.in_stretch
            self.settle()

    def count_before(self) -> None:
        """Write how many values have been joined to each place before, where that is needed."""
        if self.kernel.firsts or (self.kernel.moments and not self.in_stretch):
            self.write(f"before = {self.joined_before()}")

    def rows(self, level: int, start: str, stop: str, count: int) -> None:
        """Write the loop that joins some rows at once.

        Each is read from another place, and what they are joined to is read and written once.
        """
        before, depth = dict(self.current), self.depth
        self.open(f"for i{level} in range({start}, {stop}, {count}):")
        self.enter(level)
        each_row = [row0 := dict(self.current)]
        moving = [x for x in self.taken if self.operands[x].access[level] is Access.STRIDED]
        taken = self.labelled_apart(level)
        for row in range(1, count):
            each_row.append(row0 | {name: f"{row0[name]}_row{row}" for name in (*moving, *taken)})
            for name in moving:
                self.write(f"{row0[name]}_row{row} = shift({row0[name]}, {row} * {name}_s{level})")
            for name in taken:
                distance = f"{self.label(self.label_index(str(row)))} * {name}_s{level}"
                self.write(f"{row0[name]}_row{row} = shift({before[name]}, {distance})")
        for row, self.current in enumerate(each_row):
            self.hoist(self.still, str(row or ""))
        self.count_before()
        self.open(f"for i in range({self.width}):")
        self.join(each_row)
        self.current, self.depth = before, depth

    def labelled_apart(self, level: int) -> list[str]:
        """Return the inputs that each of some rows reads where its own label says."""
        labelled = self.kernel.gathered if level == self.kernel.label_loop else ()
        return [self.inputs[number] for number in labelled]

    def label_index(self, row: str) -> str:
        """Return in source where the label of a row is, seen from where the labels are now."""
        level, number = self.kernel.label_loop, self.kernel.labels
        assert number is not None
        return f"{row} * {self.inputs[number]}_s{level}"

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


class LabelledRows(Joining):
    """Joins rows that have labels: to what is at their label's place, or as what is there says.

    Rows come in their order, some at once of those that follow each other with the same label. Some
    columns are joined before the next ones. Rows with labels below 0 have no place to be joined to.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.width = "count"

    @staticmethod
    def takes(kernel: Kernel) -> bool:
        """Return whether rows have labels, and there is more to them than what is read there."""
        level = len(kernel.loops) - 2
        if kernel.loops[-2:] != ("reduce", "map") or kernel.label_loop != level or kernel.moments:
            return False
        moving = any(kernel.inputs[k].access[level] is Access.STRIDED for k in kernel.values)
        return moving or kernel.segmented

    def at_once(self) -> int:
        """Return how many rows of one label may be joined at once."""
        return 1 if self.is_strided() else self.fewer(LABELLED_ROWS)

    def is_strided(self) -> bool:
        """Return whether elements of the rows are not next to each other."""
        level = self.innermost - 1
        rows = (x for x in self.taken if self.operands[x].access[level] is Access.STRIDED)
        return Access.STRIDED in map(self.access, rows)

    def loop(self, level: int) -> None:
        """Open the loop of one level; that along labels within one over columns."""
        if level == self.kernel.label_loop:
            self.parts(LABELLED_LANES if self.is_strided() else LABELLED_COLUMNS)
        super().loop(level)

    def are_short(self, level: int) -> str:
        """Return nothing: rows of one label are few."""
        return ""

    def labelled_apart(self, level: int) -> list[str]:
        """Return the inputs that each of some rows reads for itself: these have the same label."""
        return []

    def stretches(self, level: int) -> tuple[str, str]:
        """Open a loop over rows that have the same label, if some are joined at once."""
        if self.together == 1:
            return "", f"n{level}"
        self.write("stop = 0")
        self.open(f"while stop < n{level}:")
        self.write("first, stop = stop, stop + 1")
        labels = [self.label(self.label_index(row)) for row in ("stop", "first")]
        with self.block(f"while stop < n{level} and {' == '.join(labels)}:"):
            self.write("stop = stop + 1")
        self.to_label(self.label_index("first"))
        return "first", "stop"

    def enter(self, level: int) -> None:
        """Move operands to where a loop is; those at the label's places only once for a label."""
        if level == self.kernel.label_loop and self.together > 1:
            self.move([level], f"_{level}", self.taken)
        else:
            super().enter(level)
