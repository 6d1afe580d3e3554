"""What tuning found, for each kernel, and as text."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from gpusched.emit.choices import words
from gpusched.emit.kernel import Kernel
from gpusched.inspection.units import seconds
from gpusched.rendering.text import aligned
from gpusched.store.tuned import Place, remember
from gpusched.tuning.measuring import Row


@dataclass(frozen=True)
class Table:
    """The candidates for one kernel."""

    kernel: Kernel
    place: Place
    rows: tuple[Row, ...]
    """The compiler's own choice first."""
    best: Row
    """What is used from now on."""
    remembered: bool
    """Whether it is kept for other processes."""

    def text(self) -> str:
        """Return the table as text, the fastest first."""
        device = self.place.device
        name = device.partition(" ")[0] if self.place.target == "cpu" else device
        lines = [f"{self.kernel.name} on {self.place.target}, {name}"]
        lines.append(indent(aligned([_HEAD, *self._cells()], right=(1, 2)), "  "))
        return "\n".join([*lines, *([] if self.remembered else [f"  {_FORGOTTEN}"])])

    def _cells(self) -> list[tuple[str, ...]]:
        measured = [row for row in self.rows if row.seconds is not None and not row.problem]
        ordered = sorted(measured, key=lambda row: row.seconds or 0)
        ordered += [row for row in self.rows if row not in measured]
        return [
            (
                words(row.options),
                seconds(row.seconds) if row.seconds is not None else "",
                f"{row.ratio:.2f}" if row.ratio is not None else "",
                row.problem or ", ".join(self._marks(row)),
            )
            for row in ordered
        ]

    def _marks(self, row: Row) -> list[str]:
        marks = ["default"] if row is self.rows[0] else []
        return [*marks, "used from now on"] if row == self.best else marks


_HEAD = ("choice", "time", "to default", "")
_FORGOTTEN = "not kept for later: there is no cache directory, or remember=False"


@dataclass(frozen=True)
class Tuned:
    """What `gpusched.tune` found, for each kernel."""

    tables: tuple[Table, ...]

    def text(self) -> str:
        """Return the tables as text."""
        return "\n\n".join(found.text() for found in self.tables)

    def forget(self) -> None:
        """Let the compiler choose again for these kernels, here and in later processes."""
        for found in self.tables:
            remember(found.kernel, found.place, None)

    def __repr__(self) -> str:
        return self.text()
