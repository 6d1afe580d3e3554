"""The report as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_HEAD = (
    "# What runs on a GPU\n\n"
    "`make gpu-report` writes this page: every step in a process of its own, none of which ends "
    "the others. Where it says *emulated*, the real CuPy, numba-cuda and cuda-core ran on a CUDA "
    "driver of the tests' own (`tests/emulated_gpu`), whose device memory is host memory: that "
    "shows errors of order, memory and types, and says nothing about time, nor about the values "
    "of NVIDIA's own functions.\n"
)


def page(records: Iterable[dict[str, Any]], rehearsal: bool) -> str:
    """Return the page for what steps have recorded."""
    records = list(records)
    parts = [_HEAD, _state(records)]
    if rehearsal:
        parts.append(
            "A rehearsal: small arrays and few cases, so that no figure below means anything.\n"
        )
    parts.append("## Steps\n\n" + _table(
        [{"step": r["step"], "status": r["status"], "seconds": r["seconds"]} for r in records]
    ))  # fmt: skip
    for record in records:
        for title, rows in record["tables"].items():
            if rows:
                parts.append(f"## {title}\n\n{_table(rows)}")
        if record["status"] != "ok":
            told = "\n".join(record["printed"][-8:])
            parts.append(f"## How {record['step']} ended\n\n```text\n{told}\n```\n")
    return "\n".join(parts)


def _state(records: list[dict[str, Any]]) -> str:
    """Return what the report ran on, in bold."""
    for record in records:
        for row in record["tables"].get("The machine", ()):
            if row["what"] == "state":
                return f"**State: {row['is']}.**\n"
    return "**State: unknown, since the first step failed.**\n"


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(name, "")) for name in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
