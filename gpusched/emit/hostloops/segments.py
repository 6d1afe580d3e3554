"""Loops that join each element to the result of its label, as those of a group-by do."""

from __future__ import annotations

from gpusched.emit.generate import combine
from gpusched.emit.hostloops.nest import Nest
from gpusched.emit.kernel import Access, Kernel
from gpusched.emit.policy import LABELLED_COLUMNS, LABELLED_LANES


class Segmented(Nest):
    """Joins rows, or single elements, to what is at their label's place; leaves out labels below 0.

    Each place is written by one element after the other, in their order.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.level = kernel.loops.index("reduce")
        self.tiled = self.level == self.innermost - 1
        """Whether some columns are joined before the next ones."""

    def loop(self, level: int) -> None:
        """Open a loop around the innermost one; the one along elements within one over columns."""
        if level == self.level and self.tiled:
            self.parts(self.columns())
        super().loop(level)

    def columns(self) -> int:
        """Return how many columns are joined before the next ones."""
        accesses = map(self.access, self.taken)
        return LABELLED_LANES if Access.STRIDED in accesses else LABELLED_COLUMNS

    def enter_label(self) -> None:
        """Move inputs and outputs to the label's places, where there are such."""
        self.write(f"label = {super().label('0')}")
        self.open("if label >= 0:")
        self.move_gathered()
        for name in self.outputs:
            self.advance(name, f"label * {name}_s{self.level}", f"_{self.level}")

    def label(self, index: str) -> str:
        """Return in source the label of an element, which the loop has read."""
        return "label"

    def body(self) -> None:
        """Write the innermost loop."""
        self.hoist(self.still)
        self.open(f"for i in range({'count' if self.tiled else f'n{self.innermost}'}):")
        if self.level == self.innermost:
            self.write(f"label = {super().label('i')}")
            self.open("if label >= 0:")
        self.join()

    def join(self) -> None:
        """Join what `point` returns to what is at the outputs' places."""
        names = [f"value{k}" for k in range(len(self.outputs))]
        self.compute(names, self.values("i"))
        for k, output in enumerate(self.kernel.outputs):
            place = self.labelled(k)
            self.write(f"{place} = {combine(output, place, names[k])}")

    def labelled(self, k: int) -> str:
        """Return where an output has the result that the element of an index belongs to."""
        name = self.outputs[k]
        if self.level == self.innermost:
            return f"{self.current[name]}[label * {name}_s{self.level}]"
        return self.place(name, "i")
