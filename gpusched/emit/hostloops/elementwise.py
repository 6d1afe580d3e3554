"""Loops that write a value for each element."""

from __future__ import annotations

from gpusched.emit.hostloops.nest import Nest


class Elementwise(Nest):
    """Writes each value where it belongs."""

    def begin(self) -> None:
        """Write what comes before the loops."""
        if self.kernel.blocks:
            self.look_ahead()

    def body(self) -> None:
        """Write the innermost loop."""
        self.hoist(self.still)
        count = f"n{self.innermost}"
        if self.kernel.blocks:
            self.open_blocks()
            self.enter_block()
            self.to_start(self.outputs)
            count = "count"
        self.open(f"for i in range({count}):")
        self.compute(self.places("i"), self.values("i"))
