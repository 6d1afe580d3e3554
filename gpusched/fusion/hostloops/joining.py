"""Loops that join each element to what is at its place, as those of columns do."""

from __future__ import annotations

from gpusched.fusion.generate import combine
from gpusched.fusion.hostloops.nest import Nest, is_heavy

ROWS = 8
"""Rows that are joined at once."""

_FEW = 8
"""The most statements that a `point` may have to be called once for each of these rows."""


class Joining(Nest):
    """Joins rows to each other, some at once."""

    def loop(self, level: int) -> None:
        if level == self.innermost - 1 and self.joins_rows():
            self.rows(level)
        else:
            super().loop(level)

    def body(self) -> None:
        self.hoist()
        self.open(f"for i in range(n{self.innermost}):")
        self.join("i")

    def joins_rows(self) -> bool:
        """Return whether the loops add rows to each other, in a computation that waits for them."""
        light = len(self.kernel.statements) <= _FEW and not is_heavy(self.kernel)
        return light and self.kernel.loops[-2:] == ("reduce", "map")

    def rows(self, level: int) -> None:
        """Join some rows at once, and open the loop for those that are left.

        Each is read from another place, and what they are joined to is read and written once.
        """
        before, depth = dict(self.current), self.depth
        self.open(f"for i{level} in range(0, n{level} - {ROWS - 1}, {ROWS}):")
        self.enter(level)
        row0 = dict(self.current)
        moving = self.moving(level, self.inputs)
        for row in range(1, ROWS):
            for name in moving:
                self.write(f"{row0[name]}_row{row} = shift({row0[name]}, {row} * {name}_s{level})")
        each_row = [
            row0 | ({name: f"{row0[name]}_row{row}" for name in moving} if row else {})
            for row in range(ROWS)
        ]
        for row, self.current in enumerate(each_row):
            self.hoist(f"{row or ''}")
        self.open(f"for i in range(n{self.innermost}):")
        for row, self.current in enumerate(each_row):
            self.join("i", f"{row or ''}")
        self.current, self.depth = before, depth
        self.open(f"for i{level} in range(n{level} - n{level} % {ROWS}, n{level}):")

    def join(self, index: str, row: str = "") -> None:
        """Join what `point` returns to what is at the outputs' places."""
        places = self.places(index)
        names = [f"value{k}" for k in range(len(places))]
        self.compute(names, self.values(index, row))
        for place, name, output in zip(places, names, self.kernel.outputs, strict=True):
            self.write(f"{place} = {combine(output, place, name)}")
