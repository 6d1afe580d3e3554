"""What all skeletons share: indented lines, operands, and calls of `point` on vectors."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpusched.emit.kernel import STILL, Access, Kernel
from gpusched.emit.lines import Lines
from gpusched.emit.operations import named
from gpusched.emit.policy import LONGEST, THREADS, VECTOR

WIDTHS = (1, 2, 4, 8, 16)
"""Elements of a vector: there are ``load4`` and ``store4``, and so on."""
EXTRAS = ("vectors", "each")
"""What a kernel takes besides `generate.arguments`."""
POSITIONS = {"thread": "tid", "block": "ctaid", "threads": "ntid", "blocks": "nctaid"}
"""``thread_x()`` is which of the ``threads_x()`` of its block a thread is; the same for blocks
in the grid.  The values are the registers' names."""


def width(kernel: Kernel) -> int:
    """Return how many elements a thread loads at once: the widest dtype fills 16 bytes.

    It is 1 where an array is strided along the innermost loop, so that the threads of a warp
    read neighbours. Somebody may have chosen fewer.
    """
    return min(widest(kernel), kernel.options.vector or VECTOR)


def widest(kernel: Kernel) -> int:
    """Return the most elements that a thread can load at once."""
    last = [o.access[-1] for o in kernel.operands]
    units = [o for o in kernel.operands if o.access[-1] is Access.UNIT]
    if Access.STRIDED in last or Access.LABELLED in last or not units:
        return 1
    return VECTOR // max(np.dtype(o.dtype).itemsize for o in units)


def threads(kernel: Kernel) -> int:
    """Return the threads of a block."""
    return kernel.options.block or THREADS


def cost(kernel: Kernel) -> int:
    """Return about how many machine instructions `point` takes."""
    return sum(16 if named(s.operation).heavy else 1 for s in kernel.statements)


def unroll(kernel: Kernel) -> int:
    """Return how many vectors of each input a thread loads before it uses the first: 1, 2 or 4.

    About 64 bytes a thread keep enough of them under way to fill the memory's bandwidth; long
    kernels are not repeated, because arithmetic fills their time. Somebody may have chosen another
    number.
    """
    if kernel.options.unroll:
        return kernel.options.unroll
    moving = [i for i in kernel.inputs if i.access[-1] not in STILL]
    size = width(kernel) * sum(np.dtype(i.dtype).itemsize for i in moving)
    lanes = width(kernel)
    counts = (
        n
        for n in (4, 2)
        if size and n * size <= 64 and n * lanes <= 32 and n * cost(kernel) <= LONGEST
    )
    return next(counts, 1)


class Text(Lines):
    """Lines of a kernel, and its calls of `point` on vectors."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel, EXTRAS)
        self.width = width(kernel)
        self.unroll = unroll(kernel)
        self.moving = [name for name in self.taken if self.access(name) not in STILL]
        """Inputs that move in the innermost loop."""

    def decompose(self, index: str, levels: list[int]) -> None:
        """Write ``i<level>`` of each loop in `levels`, given their common number."""
        for position, level in reversed(list(enumerate(levels))):
            if position == 0:
                self.write(f"i{level} = {index}")
            else:
                self.write(f"i{level} = {index} % n{level}", f"{index} = {index} // n{level}")

    def enter(self, levels: list[int], suffix: str, names: Iterable[str]) -> None:
        """Move arrays to ``i<level>`` of loops, and what is read where labels say to its place."""
        self.move(levels, suffix, names)
        if self.kernel.label_loop in levels and not self.kernel.segmented:
            self.write(f"label = {self.label('0')}")
            self.move_gathered()

    def move_units(self, names: Iterable[str]) -> None:
        """Move arrays whose elements are side by side along the innermost loop."""
        for name in names:
            if self.access(name) is Access.UNIT:
                self.advance(name, f"i{self.innermost}", "_unit")

    def is_boolean(self, name: str) -> bool:
        """Return whether elements are read by one, which numba-cuda has no pointers to."""
        return self.operands[name].dtype == "bool" and self.access(name) is not Access.TABLE

    def element(self, name: str, index: str) -> str:
        """Return the reading of one element."""
        if self.is_boolean(name):
            return f"load1({self.current[name]}, {index})[0]"
        return super().element(name, index)

    def put(self, name: str, index: str, value: str) -> None:
        """Write the storing of one element."""
        if self.is_boolean(name):
            self.write(f"store1({self.current[name]}, {index}, ({value},))")
        else:
            self.write(f"{self.current[name]}[{index}] = {value}")

    def load(self, name: str, index: str, suffix: str = "") -> None:
        """Write the vector of one input at `index` of the innermost loop."""
        self.write(f"{name}_v{suffix} = load{self.width}({self.current[name]}, {index})")

    def lane(self, lane: int, suffix: str = "") -> str:
        """Return the call of `point` on one lane of loaded vectors."""
        values = [
            f"{name}_v{suffix}[{lane}]" if name in self.moving
            else f"{name}_value" if name in self.still else self.current[name]
            for name in self.taken
        ]  # fmt: skip
        return f"point({', '.join(values + self.parameters)})"


def product(factors: list[str]) -> str:
    """Return the product of some factors as source; 1 for none."""
    return " * ".join(factors) or "1"
