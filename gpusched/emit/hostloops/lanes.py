"""Loops along lanes, whose elements are joined one after the other: scans, and sums by label."""

from __future__ import annotations

from gpusched.emit.generate import combine, first_total, joined_total, loaded, stored
from gpusched.emit.hostloops.nest import Nest
from gpusched.emit.kernel import Kernel
from gpusched.emit.policy import PART


class Scanned(Nest):
    """Joins each element with the result before it, in their order, as NumPy does.

    Along contiguous elements, a part is computed first, in vectors, and then joined one by one.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.level = kernel.loops.index("scan")

    def body(self) -> None:
        """Write the innermost loop."""
        if self.level == self.innermost:
            self.along()
        else:
            self.across()

    def across(self) -> None:
        """Join a row with the results of the row before."""
        self.hoist(self.still)
        self.write(f"is_first = {self.is_first()}")
        for name, output in zip(self.outputs, self.kernel.outputs, strict=True):
            own, step = self.current[name], f"{name}_s{self.level}"
            self.write(f"{name}_before = shift({own}, 0 if is_first else -{step})")
            loop = f"for i in range(n{self.innermost}):"
            with self.block("if is_first:"), self.block(loop):
                self.write(f"{self.place(name, 'i')} = {stored(output, first_total(output))}")
        self.open(f"for i in range(n{self.innermost}):")
        values = [f"value{k}" for k in range(len(self.outputs))]
        self.compute(values, self.values("i"))
        for name, output, value in zip(self.outputs, self.kernel.outputs, values, strict=True):
            place = self.place(name, "i")
            total = loaded(output, f"{name}_before[{self.offset(name, 'i')}]")
            found = joined_total(output, total, loaded(output, value), "is_first")
            self.write(f"{place} = {stored(output, found)}")

    def is_first(self) -> str:
        """Return in source whether the row is the first one along the scanned axis."""
        before = "n_before + " if self.kernel.resumes else ""
        return f"{before}i{self.level} == 0"

    def along(self) -> None:
        """Join elements with those before them along the innermost loop."""
        self.hoist(self.still)
        for k, output in enumerate(self.kernel.outputs):
            self.write(f"total{k} = {first_total(output)}")
        self.parts(PART)
        with self.block("for i in range(count):"):
            self.compute(self.places("i"), self.values("i"))
        self.open("for i in range(count):")
        for k, (name, output) in enumerate(zip(self.outputs, self.kernel.outputs, strict=True)):
            place = self.place(name, "i")
            element = loaded(output, place)
            found = joined_total(output, f"total{k}", element, "start + i == 0")
            self.write(f"total{k} = {found}")
            self.write(f"{place} = {stored(output, f'total{k}')}")


class Segmented(Nest):
    """Joins elements, one by one, to what is at their label's place; leaves out labels below 0."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.level = kernel.loops.index("reduce")

    def label(self, index: str) -> str:
        """Return in source the label of an element, which the loop has read."""
        return "label"

    def body(self) -> None:
        """Write the innermost loop."""
        self.hoist(self.still)
        self.open(f"for i in range(n{self.innermost}):")
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
