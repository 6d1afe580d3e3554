"""Loops that reduce what lies side by side: block by block, to totals that are wider.

Rows that lie apart are reduced some in turn on processors that read ahead by themselves: these
begin anew with each row, and have then begun with several.
"""

from __future__ import annotations

import numpy as np

from gpusched.fusion.floatingpoint import INVALID
from gpusched.fusion.generate import combine, identity, literal
from gpusched.fusion.hostloops.nest import Nest, is_heavy
from gpusched.fusion.kernel import Kernel, Output

IN_TURN = 4
"""Rows that are reduced in turn, a block of each."""


class Reduction(Nest):
    """Reduces one row after the other, or some in turn."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.skipping = _skipping(kernel)

    def begin(self) -> None:
        if not is_heavy(self.kernel):
            self.look_ahead()
        if self.kernel.in_turn:
            for k, (name, output) in enumerate(zip(self.outputs, self.kernel.outputs, strict=True)):
                self.write(f"totals{k} = scratch({name})")
                if _compensated(output):
                    self.write(f"losses{k} = scratch({name})")

    def loop(self, level: int) -> None:
        if self.kernel.in_turn and level == self.innermost - 1:
            self.open(f"for i{level} in range(0, n{level}, {IN_TURN}):")
        else:
            super().loop(level)

    def body(self) -> None:
        if self.kernel.in_turn:
            self.in_turn()
        else:
            self.hoist()
            self.start_totals()
            self.open_blocks()
            self.enter_block()
            self.join_block()
            self.depth -= 1
            self.write_totals()

    def in_turn(self) -> None:
        """Reduce some rows, a block of each in turn."""
        level, before = self.innermost - 1, dict(self.current)
        self.write(f"rows = min({IN_TURN}, n{level} - i{level})")
        self.open("for row in range(rows):")
        self.start_totals()
        self.depth -= 1
        self.open_blocks()
        self.open("for row in range(rows):")
        self.enter_row(self.inputs)
        self.enter_block()
        self.hoist()
        self.join_block()
        self.depth -= 2
        self.current = before
        self.open("for row in range(rows):")
        self.enter_row(self.outputs)
        self.write_totals()

    def enter_row(self, names: list[str]) -> None:
        """Move arrays to the row whose turn it is."""
        level = self.innermost - 1
        for name in self.moving(level, names):
            self.advance(name, f"row * {name}_s{level}", "_row")

    def total(self, output: int) -> str:
        return f"totals{output}[row]" if self.kernel.in_turn else f"total{output}"

    def lost(self, output: int) -> str:
        return f"losses{output}[row]" if self.kernel.in_turn else f"lost{output}"

    def start_totals(self) -> None:
        for k, output in enumerate(self.kernel.outputs):
            self.write(f"{self.total(k)} = {identity(output, output.dtype)}")
            if _compensated(output):
                self.write(f"{self.lost(k)} = {identity(output, output.dtype)}")

    def join_block(self) -> None:
        """Join the elements of a block, and what comes of it to the totals."""
        outputs = list(enumerate(self.kernel.outputs))
        for k, output in outputs:
            if k in self.skipping:
                self.write(f"part{k} = {_furthest(output)}")
                self.write(f"some{k} = False")
            else:
                self.write(f"part{k} = {identity(output, output.value_dtype)}")
        self.open("for i in range(count):")
        self.compute([f"value{k}" for k, _ in outputs], self.values("i"))
        for k, output in outputs:
            part, value = f"part{k}", f"value{k}"
            if k in self.skipping:
                number = f"number_or({value}, {_furthest(output)})"
                self.write(f"{part} = {self.skipping[k]}({part}, {number})")
                sign = "==" if output.combine in _OF_NUMBERS else "!="
                self.write(f"some{k} = some{k} | ({value} {sign} {value})")
            else:
                self.write(f"{part} = {combine(output, part, value, output.value_dtype)}")
        self.depth -= 1
        for k, output in outputs:
            if k in self.skipping:
                nan, part = literal(np.nan, output.value_dtype), f"part{k}"
                found, other = (part, nan) if output.combine in _OF_NUMBERS else (nan, part)
                self.write(f"{part} = {found} if some{k} else {other}")
        for k, output in outputs:
            total, lost = self.total(k), self.lost(k)
            if _compensated(output):
                self.write(f"{total}, {lost} = compensated_add({total}, {lost}, part{k})")
            else:
                self.write(f"{total} = {combine(output, total, f'part{k}')}")

    def write_totals(self) -> None:
        """Join totals to what is at the outputs' places."""
        for k, (name, output) in enumerate(zip(self.outputs, self.kernel.outputs, strict=True)):
            total, lost = self.total(k), self.lost(k)
            if _compensated(output):
                self.write(f"{total} = {total} + {lost} if {lost} != 0 else {total}")
            place = f"{self.current[name]}[0]"
            self.write(f"{place} = {combine(output, place, total)}")


_OF_NUMBERS = ("fmin", "fmax")
"""What joins numbers only: the result is NaN if there is none. Others are NaN if any value is."""


def _skipping(kernel: Kernel) -> dict[int, str]:
    """Return, by output, what joins numbers in the place of what joins NaN, too.

    LLVM computes several elements at once where `fmin` or `fmax` is alone in a loop, and one after
    the other beside any other reduction; and least and greatest raise errors for NaN, in a kernel
    that reads the processor's flags. NaN is made the furthest number there is instead, and another
    reduction says whether there is a number, or NaN, at all.
    """
    joins = {"fmin": "least", "minimum": "least", "fmax": "greatest", "maximum": "greatest"}
    if all(output.combine in joins for output in kernel.outputs):
        return {}
    raises = bool(kernel.flags & INVALID)
    return {
        k: joins[o.combine]
        for k, o in enumerate(kernel.outputs)
        if o.combine in joins and np.dtype(o.value_dtype).kind == "f"
        and (raises or o.combine in _OF_NUMBERS)
    }  # fmt: skip


def _furthest(output: Output) -> str:
    least = output.combine in ("fmin", "minimum")
    return literal(np.inf if least else -np.inf, output.value_dtype)


def _compensated(output: Output) -> bool:
    return output.combine == "add" and output.dtype == "float64"
