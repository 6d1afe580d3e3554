"""Loops that write a value for each element."""

from __future__ import annotations

from gpusched.emit.hostloops.nest import Nest, block, is_heavy


class Elementwise(Nest):
    """Writes each value where it belongs, or a block of them past the caches."""

    def begin(self) -> None:
        """Write what comes before the loops."""
        if self.kernel.streamed:
            for name in self.outputs:
                self.write(f"{name}_part = scratch({name})")
            if not is_heavy(self.kernel):
                self.look_ahead()

    def body(self) -> None:
        """Write the innermost loop."""
        self.hoist(self.still)
        if self.kernel.streamed:
            self.stream()
        else:
            self.open(f"for i in range(n{self.innermost}):")
            self.compute(self.places("i"), self.values("i"))

    def end(self) -> None:
        """Write what comes after the loops."""
        if self.kernel.streamed:
            self.write("drain()")

    def stream(self) -> None:
        """Compute parts where they stay in the cache, and write each past it to memory.

        A line of memory that is written whole that way is not read first, as it is otherwise.
        """
        size, level = block(self.kernel), self.innermost
        if level:
            # Blocks end where lines of memory do, wherever a row begins.
            self.write(f"lead = past_line({self.current[self.outputs[0]]})")
            self.write(f"blocks = (lead + n{level} + {size - 1}) // {size}")
            self.open("for number in range(blocks):")
            self.write(f"first = {self.number()} * {size} - lead")
            self.write("start = max(first, 0)")
            self.write(f"count = min(first + {size}, n{level}) - start")
        else:
            self.open_blocks()
        self.enter_block()
        self.open("for i in range(count):")
        self.compute([f"{name}_part[i]" for name in self.outputs], self.values("i"))
        self.depth -= 1
        for name in self.outputs:
            self.write(f"stream(shift({self.current[name]}, start), {name}_part, count)")
