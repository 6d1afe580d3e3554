"""What all skeletons share: indented lines, operands, and calls of `point` on vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gpusched.emit import generate
from gpusched.emit.kernel import STILL, Access, Input, Kernel, Output
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


class Text:
    """Lines of a kernel under construction."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.inputs = list(zip(generate.input_names(kernel), kernel.inputs, strict=True))
        self.outputs = list(zip(generate.output_names(kernel), kernel.outputs, strict=True))
        self.parameters = generate.parameter_names(kernel)
        self.pointers = {name: name for name, _ in [*self.inputs, *self.outputs]}
        self.width = width(kernel)
        self.unroll = unroll(kernel)
        self.lines = [f"def kernel({', '.join([*generate.arguments(kernel), *EXTRAS])}):"]
        self.depth = 1

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def write(self, *lines: str) -> None:
        """Add lines at the current depth."""
        self.lines.extend("    " * self.depth + line for line in lines)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Write a compound statement; pointers moved inside are forgotten after it."""
        self.write(line)
        pointers = dict(self.pointers)
        self.depth += 1
        yield
        self.depth -= 1
        self.pointers = pointers

    def decompose(self, index: str, levels: list[int]) -> None:
        """Write ``i<level>`` of each loop in `levels`, given their common number."""
        for position, level in reversed(list(enumerate(levels))):
            if position == 0:
                self.write(f"i{level} = {index}")
            else:
                self.write(f"i{level} = {index} % n{level}", f"{index} = {index} // n{level}")

    def move(self, levels: list[int], suffix: str, outputs: bool = False) -> None:
        """Write pointers to the elements at ``i<level>`` of each loop in `levels`."""
        operands: list[tuple[str, Input | Output]] = [*self.inputs]
        for name, operand in operands + (self.outputs if outputs else []):
            steps = [f"i{k} * {name}_s{k}" for k in levels if operand.access[k] is Access.STRIDED]
            if steps:
                self.write(f"{name}{suffix} = shift({self.pointers[name]}, {' + '.join(steps)})")
                self.pointers[name] = name + suffix
        if self.kernel.label_loop in levels and not self.kernel.segmented:
            self.write(f"label{suffix} = {self.label('0')}")
            self.move_gathered(suffix)

    def move_units(self, level: int, outputs: bool = False) -> None:
        """Write pointers to the elements at ``i<level>``, for arrays side by side along it."""
        operands: list[tuple[str, Input | Output]] = [*self.inputs]
        for name, operand in operands + (self.outputs if outputs else []):
            if operand.access[level] is Access.UNIT:
                self.write(f"{name}_unit = shift({self.pointers[name]}, i{level})")
                self.pointers[name] = f"{name}_unit"

    def move_gathered(self, suffix: str) -> None:
        """Write pointers to what is read where a label says."""
        for number in self.kernel.gathered:
            name = self.inputs[number][0]
            step = f"label{suffix} * {name}_s{self.kernel.label_loop}"
            self.write(f"{name}{suffix}_label = shift({self.pointers[name]}, {step})")
            self.pointers[name] = f"{name}{suffix}_label"

    def label(self, index: str) -> str:
        """Return the reading of a label."""
        assert self.kernel.labels is not None
        return self.element(self.inputs[self.kernel.labels][0], index)

    def place(self, name: str, operand: Input | Output, index: str) -> str:
        """Return where an operand has the element at `index` of the innermost loop."""
        last = len(operand.access) - 1
        if operand.access[last] is Access.LABELLED:
            return f"{self.label(index)} * {name}_s{last}"
        strided = operand.access[last] is Access.STRIDED
        return f"{parenthesised(index)} * {name}_s{last}" if strided else index

    def element(self, name: str, index: str) -> str:
        """Return the reading of one element; numba-cuda cannot do it for pointers to bool.

        What operations get as a whole is not read.
        """
        pointer = self.pointers[name]
        if Access.TABLE in dict(self.inputs)[name].access:
            return pointer
        boolean = any(i.dtype == "bool" for n, i in self.inputs if n == name)
        return f"load1({pointer}, {index})[0]" if boolean else f"{pointer}[{index}]"

    def so_far(self, name: str, index: str) -> str:
        """Return the reading of one element of an output."""
        pointer = self.pointers[name]
        boolean = dict(self.outputs)[name].dtype == "bool"
        return f"load1({pointer}, {index})[0]" if boolean else f"{pointer}[{index}]"

    def put(self, name: str, index: str, value: str) -> None:
        """Write the storing of one element."""
        pointer = self.pointers[name]
        if dict(self.outputs)[name].dtype == "bool":
            self.write(f"store1({pointer}, {index}, ({value},))")
        else:
            self.write(f"{pointer}[{index}] = {value}")

    def load(self, name: str, index: str, suffix: str = "") -> None:
        """Write the vector of one input at `index` of the innermost loop."""
        self.write(f"{name}_v{suffix} = load{self.width}({self.pointers[name]}, {index})")

    def hoist(self, names: list[str]) -> None:
        """Write the values of inputs that do not move in the innermost loop."""
        for name in names:
            self.write(f"{name}_value = {self.element(name, '0')}")

    def taken(self) -> list[tuple[str, Input]]:
        """Return the inputs that `point` takes."""
        return [self.inputs[number] for number in self.kernel.values]

    def still(self) -> list[str]:
        """Return the inputs that do not move in the innermost loop."""
        return [name for name, i in self.taken() if i.access[-1] in STILL]

    def lane(self, lane: int, suffix: str = "") -> str:
        """Return the call of `point` on one lane of loaded vectors."""
        values = [
            f"{name}_value" if i.access[-1] in STILL else f"{name}_v{suffix}[{lane}]"
            for name, i in self.taken()
        ]
        return f"point({', '.join(values + self.parameters)})"

    def single(self, index: str) -> str:
        """Return the call of `point` on the elements at `index` of the innermost loop."""
        values = []
        for name, i in self.taken():
            if i.access[-1] in STILL:
                values.append(f"{name}_value")
            else:
                values.append(self.element(name, self.place(name, i, index)))
        return f"point({', '.join(values + self.parameters)})"


def parenthesised(index: str) -> str:
    """Return an index in parentheses, unless it is a name."""
    return index if index.isidentifier() else f"({index})"


def product(factors: list[str]) -> str:
    """Return the product of some factors as source; 1 for none."""
    return " * ".join(factors) or "1"
