"""Loops that reduce sliding windows, each element a few times, however many windows it is in."""

from __future__ import annotations

from gpusched.emit.generate import combine, identity
from gpusched.emit.hostloops.nest import Nest
from gpusched.emit.kernel import Access, Kernel
from gpusched.emit.policy import WINDOW_COLUMNS


class Windows(Nest):
    """Joins rows to the windows that have them, after van Herk (1992), and Gil and Werman (1993).

    As many windows as one has rows have a row in common, the last one of the first of them. All
    rows up to it are joined from it backwards, which gives each window's share of them, and those
    after it forwards, which gives the rest. So a row is joined three times for all of these
    windows, rather than once for each. Nothing is taken off again: what is joined for a window is
    a part of it.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.around = self.innermost - 2
        """The loop along which windows slide; the next one goes through the rows of a window."""

    def begin(self) -> None:
        """Write what comes before the loops."""
        for name in self.outputs:
            self.write(f"{name}_joined = scratch({name})")

    def body(self) -> None:
        """Write the loops along windows, along their rows, and the innermost one."""
        windows, rows = f"n{self.around}", f"n{self.around + 1}"
        self.parts(WINDOW_COLUMNS)
        self.open(f"for first in range(0, {windows}, {rows}):")
        self.write(f"last = min(first + {rows}, {windows}) - 1")
        # Rows that no window begins with are written to the last window's place, before it is.
        self.join_rows(f"range(first + {rows} - 1, first - 1, -1)", "min(row, last)")
        self.join_rows(f"range(first + {rows}, last + {rows})", f"row - {rows} + 1", True)

    def join_rows(self, order: str, window: str, forwards: bool = False) -> None:
        """Join rows in an order, and write what has been joined at each of them to a window.

        Parameters
        ----------
        order
            The rows, in source.
        window
            Whose place it is, in source.
        forwards
            Whether rows come after those before, and what is joined of them to what is there.
        """
        before, depth = dict(self.current), self.depth
        outputs = list(zip(self.outputs, self.kernel.outputs, strict=True))
        self.open("for i in range(count):")
        for name, output in outputs:
            self.write(f"{name}_joined[i] = {identity(output, output.dtype)}")
        self.depth = depth
        self.open(f"for row in {order}:")
        self.write(f"window = {window}")
        for name, operand in self.operands.items():
            if operand.access[self.around] is Access.STRIDED:
                place = "window" if name in self.outputs else "row"
                self.advance(name, f"{place} * {name}_s{self.around}", "_row")
        self.hoist(self.still)
        self.open("for i in range(count):")
        values = [f"value{k}" for k in range(len(outputs))]
        self.compute(values, self.values("i"))
        for (name, output), value in zip(outputs, values, strict=True):
            joined, place = f"{name}_joined[i]", self.place(name, "i")
            pair = (joined, value) if forwards else (value, joined)
            self.write(f"{joined} = {combine(output, *pair)}")
            self.write(f"{place} = {combine(output, place, joined) if forwards else joined}")
        self.current, self.depth = before, depth
