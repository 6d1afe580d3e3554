"""Lines of the loops around a kernel's `point`, and where each array is in them, on any target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gpusched.emit.generate import arguments, input_names, output_names, parameter_names
from gpusched.emit.kernel import STILL, Access, Kernel


class Lines:
    """Lines under construction.

    Parameters
    ----------
    kernel
        The kernel.
    extras
        What it takes besides `gpusched.emit.generate.arguments`.
    """

    def __init__(self, kernel: Kernel, extras: Iterable[str] = ()) -> None:
        self.kernel = kernel
        self.inputs = input_names(kernel)
        self.outputs = output_names(kernel)
        self.operands = dict(zip(self.inputs + self.outputs, kernel.operands, strict=True))
        """Inputs and outputs, by name."""
        self.taken = [self.inputs[number] for number in kernel.values]
        """The inputs that `point` takes."""
        self.parameters = parameter_names(kernel)
        self.innermost = len(kernel.loops) - 1
        self.still = [name for name in self.taken if self.access(name) is Access.BROADCAST]
        """Those that do not move in the innermost loop."""
        self.current = {name: name for name in self.operands}
        """By operand, what starts at the element where it is now."""
        self.lines = [f"def kernel({', '.join([*arguments(kernel), *extras])}):"]
        self.depth = 1

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def write(self, *lines: str) -> None:
        """Add lines at the current depth."""
        self.lines.extend("    " * self.depth + line for line in lines)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Write a compound statement; what is moved inside is where it was after it."""
        self.write(line)
        before = dict(self.current)
        self.depth += 1
        yield
        self.depth -= 1
        self.current = before

    def access(self, name: str) -> Access:
        """Return how an operand moves in the innermost loop."""
        return self.operands[name].access[self.innermost]

    def advance(self, name: str, distance: str, suffix: str) -> None:
        """Move an array by a distance, under its name with a suffix."""
        self.write(f"{name}{suffix} = shift({self.current[name]}, {distance})")
        self.current[name] = name + suffix

    def move(self, levels: Iterable[int], suffix: str, names: Iterable[str]) -> None:
        """Move some arrays to the elements at ``i<level>`` of each of some loops."""
        for name in names:
            access = self.operands[name].access
            steps = [f"i{k} * {name}_s{k}" for k in levels if access[k] is Access.STRIDED]
            if steps:
                self.advance(name, " + ".join(steps), suffix)

    def move_gathered(self) -> None:
        """Move what is read where labels say to the label's place."""
        for number in self.kernel.gathered:
            name = self.inputs[number]
            self.advance(name, f"label * {name}_s{self.kernel.label_loop}", "_label")

    def label(self, index: str) -> str:
        """Return in source the label of an element of the innermost loop."""
        assert self.kernel.labels is not None
        return self.element(self.inputs[self.kernel.labels], index)

    def offset(self, name: str, index: str) -> str:
        """Return how far an operand's element at `index` of the innermost loop is."""
        access, step = self.access(name), f"{name}_s{self.innermost}"
        if access in STILL:
            return "0"
        if access is Access.LABELLED:
            return f"{self.label(index)} * {step}"
        plain = index.isidentifier() or index.isdigit()
        return f"{index if plain else f'({index})'} * {step}" if access is Access.STRIDED else index

    def element(self, name: str, index: str) -> str:
        """Return in source the element of an operand that is so far from where it is now.

        What operations get as a whole is itself.
        """
        whole = self.access(name) is Access.TABLE
        return self.current[name] if whole else f"{self.current[name]}[{index}]"

    def place(self, name: str, index: str) -> str:
        """Return in source the element of an operand at `index` of the innermost loop."""
        return self.element(name, self.offset(name, index))

    def values(self, index: str, row: str = "") -> str:
        """Return the arguments of `point` at `index` of the innermost loop."""
        found = [f"{x}_value{row}" if x in self.still else self.place(x, index) for x in self.taken]
        return ", ".join(found + self.parameters)

    def hoist(self, names: Iterable[str], row: str = "") -> None:
        """Read inputs that do not move in the innermost loop."""
        for name in names:
            self.write(f"{name}_value{row} = {self.element(name, '0')}")
