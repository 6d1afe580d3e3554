"""What tuning found: printed as text, shown as HTML by Jupyter, or taken as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from textwrap import indent
from typing import Any

from gpusched.emit.choices import words
from gpusched.emit.kernel import Kernel
from gpusched.inspection.units import seconds
from gpusched.rendering.html import Number, fragment, table
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

    def html(self) -> str:
        """Return the table as HTML."""
        return fragment(self.shown())

    def shown(self) -> str:
        """Return the table as a part of HTML."""
        rows = [(words, Number(time), Number(ratio), note)
                for words, time, ratio, note in self._cells()]  # fmt: skip
        head = (_HEAD[0], Number(_HEAD[1]), Number(_HEAD[2]), _HEAD[3])
        return table(head, rows, title=f"{self.kernel.name} on {self.place.target}")

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON can hold it."""
        return {
            "kernel": self.kernel.name,
            **asdict(self.place),
            "rows": [asdict(row) for row in self.rows],
            "best": asdict(self.best.options),
            "remembered": self.remembered,
        }


_HEAD = ("choice", "time", "to default", "")
_FORGOTTEN = "not kept for later: there is no cache directory, or remember=False"


@dataclass(frozen=True)
class Tuned:
    """What `gpusched.tune` found, for each kernel."""

    tables: tuple[Table, ...]

    def text(self) -> str:
        """Return the tables as text."""
        return "\n\n".join(found.text() for found in self.tables)

    def html(self) -> str:
        """Return the tables as HTML."""
        return fragment(*(found.shown() for found in self.tables))

    def to_dict(self) -> dict[str, Any]:
        """Return the tables as JSON can hold them."""
        return {"kernels": [table.to_dict() for table in self.tables]}

    def forget(self) -> None:
        """Let the compiler choose again for these kernels, here and in later processes."""
        for found in self.tables:
            remember(found.kernel, found.place, None)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()
