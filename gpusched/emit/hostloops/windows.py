"""Loops that reduce sliding windows, each element a few times, however many windows it is in."""

from __future__ import annotations

from gpusched.emit.generate import combine, identity
from gpusched.emit.hostloops.nest import Nest
from gpusched.emit.kernel import Access, Kernel
from gpusched.emit.policy import ROOM, WINDOW_COLUMNS


class Windows(Nest):
    """Joins what windows have in common once for them.

    Nothing is taken off again: what is joined for a window is a part of it.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        assert kernel.windows is not None
        self.along = kernel.windows == self.innermost
        self.around = self.innermost - (1 if self.along else 2)
        """The first of the loop along which windows slide, and the one through their rows."""

    def begin(self) -> None:
        """Write what comes before the loops."""
        for name in self.outputs:
            self.write(f"{name}_joined = scratch({name})")
            if self.along:
                self.write(f"{name}_next = scratch({name})")

    def body(self) -> None:
        """Write the loops along windows, along their rows, and the innermost one."""
        if self.along:
            self.double()
        else:
            self.share_rows()

    def double(self) -> None:
        """Write loops that join neighbouring elements, then neighbouring pairs, and so on.

        A window is made of one of these for each bit of its length, from its first element on. As
        all are, windows of equal elements have equal results. Each of two arrays is made of the
        other in turn, in loops of its own: exchanged by name, LLVM makes no vectors of them (26 ms
        instead of 8).
        """
        outputs = list(zip(self.outputs, self.kernel.outputs, strict=True))
        depth, rows = self.depth, f"n{self.around}"
        self.hoist(self.still)
        self.open_every("start", f"n{self.innermost}", f"({ROOM + 1} - {rows})")
        self.write(f"count = min({ROOM + 1} - {rows}, n{self.innermost} - start)")
        self.to_start(self.operands)
        self.write(f"left, before, length, size = {rows}, 0, 1, count + {rows} - 1")
        with self.block("for i in range(size):"):
            self.compute([f"{name}_joined[i]" for name, _ in outputs], self.values("i"))
        with self.block("for i in range(count):"):
            for name, output in outputs:
                self.write(f"{self.place(name, 'i')} = {identity(output, output.dtype)}")
        self.open("while left > 0:")
        for part, longer in [("_joined", "_next"), ("_next", "_joined")]:
            with self.block("if left % 2 == 1:"):
                for name, _ in outputs:
                    self.write(f"{name}_rest = shift({name}{part}, before)")
                with self.block("for i in range(count):"):
                    for name, output in outputs:
                        place = self.place(name, "i")
                        self.write(f"{place} = {combine(output, place, f'{name}_rest[i]')}")
                self.write("before = before + length")
            self.write("left = left // 2", "size = size - length if left > 0 else 0")
            for name, _ in outputs:
                self.write(f"{name}_rest = shift({name}{part}, length)")
            with self.block("for i in range(size):"):
                for name, output in outputs:
                    pair = f"{name}{part}[i]", f"{name}_rest[i]"
                    self.write(f"{name}{longer}[i] = {combine(output, *pair)}")
            self.write("length = 2 * length")
        self.depth = depth

    def share_rows(self) -> None:
        """Write loops that join rows for as many windows as one has rows.

        After van Herk (1992), and Gil and Werman (1993): so many windows have a row in common, the
        last one of the first of them. All rows up to it are joined from it backwards, which gives
        each window's share of them, and those after it forwards, which gives the rest. So a row is
        joined three times for all of these windows, rather than once for each.
        """
        windows, rows = f"n{self.around}", f"n{self.around + 1}"
        self.parts(WINDOW_COLUMNS)
        self.open_every("first", windows, rows)
        self.write(f"last = min(first + {rows}, {windows}) - 1")
        # Rows that no window begins with are written to the last window's place, before it is.
        self.join_rows(f"range(first + {rows} - 1, first - 1, -1)", "min(row, last)")
        self.join_rows(f"range(first + {rows}, last + {rows})", f"row - {rows} + 1", True)

    def open_every(self, name: str, count: str, step: str) -> None:
        """Open a loop over every so many of something.

        A range of these would raise an error of steps of zero, for which machine code would need
        the process that made it.
        """
        self.open(f"for number in range(({count} + {step} - 1) // {step}):")
        self.write(f"{name} = number * {step}")

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
        with self.block("for i in range(count):"):
            for name, output in outputs:
                self.write(f"{name}_joined[i] = {identity(output, output.dtype)}")
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
