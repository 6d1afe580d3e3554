"""Reference pages that are made from the code: rewritten by ``GPUSCHED_REGENERATE=1 pytest``."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import gpusched
from gpusched.breaks import GraphBreak
from gpusched.emit.operations import COMBINES, OPERATIONS, has
from gpusched.graph.programs import rewrite  # noqa: F401  registers everything that is recorded
from gpusched.graph.safety.listed import is_between
from gpusched.record import complexes
from gpusched.record.catalogue import NAMES
from gpusched.record.handlers import HANDLERS
from gpusched.vectormath import FUNCTIONS

PYTHON = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "operations.md"
KINDS = {"b": "bool", "i": "signed", "u": "unsigned", "f": "floating"}

INTRODUCTION = """\
# What fuses

Made from the code by `GPUSCHED_REGENERATE=1 pytest tests/test_reference.py`; do not edit.

A chunk task whose functions are below becomes one kernel, or as few as its reductions allow.
Dtypes are those of NumPy's loop: what NumPy computes in float64 is computed in float64. Any other
function, dtype or kind of array is called as it is, and counted with its reason
(`gpusched.statistics().breaks`, and the summary of `gpusched run`).

*ULP* is the largest distance from the true value in units in the last place; 0 means NumPy's
bits, but for the payload of NaN and the sign of zero where NumPy's own differs between machines
(`minimum` and the like). That of `logaddexp` and `logaddexp2` is in units of the largest operand
where the result is less, since what they add may cancel. NumPy's and SciPy's own results may be as
far from the true value, or further. *CPU* is the tighter bound that holds for the functions that
gpusched computes itself there, tested against mpmath; the others are the C library's. *Floating*
dtypes are float16, float32 and float64. float16 is computed in float32 and rounded after each
operation, as NumPy does it: what is 0 is 0 there too, and all else is within 1 of NumPy's.
*Reports* are the floating-point errors that NumPy may report, and kernels then find
([NumPy's numbers and warnings](../explanation/floating-point.md)).
"""


def operations() -> str:
    lines = ["| operation | dtypes | ULP | CPU (float32, float64) | reports |",
             "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for name, operation in sorted(OPERATIONS.items()):
        if name.startswith(("astype_", "search_", "select")) or name in (
            "clip_by_arrays",
            "real",
            "imag",
            "complex",
            "element",
            "interpolate",
            "last_number",
        ):
            continue
        kinds = ", ".join(KINDS[k] for k in "biuf" if k in operation.templates[0])
        kinds += " but float16" * has(name, "bitwise")
        kinds = "any of these, chosen by bool" if name == "where" else kinds
        bounds = [FUNCTIONS.get(f"{name}_{width}") for width in ("f32", "f64")]
        true = ", ".join(f"{b.max_ulp:g}" if b else "-" for b in bounds) if any(bounds) else ""
        found = "; ".join(f"{KINDS[k]}: {operation.reports[k]}" for k in operation.reports)
        lines.append(f"| `{name}` | {kinds} | {operation.ulp} | {true} | {found} |")
    return "\n".join(lines)


COMPLEX = """\
Complex numbers are split into real and imaginary parts where a kernel reads them, and joined where
it writes them; what is between are the operations above, on parts. So are `real`, `imag`, `angle`,
`where`, `isclose`, `nan_to_num`, `round`, `sum`, `prod`, `mean`, `max`, `min` and their forms that
skip NaN, `var`, `std`, `any`, `all`, `cumsum`, `reduceat` of sums, powers by a number, conversions
that lose no imaginary part, and these ufuncs: """


def of_complex() -> str:
    return COMPLEX + ", ".join(f"`{name}`" for name in sorted(complexes.FUNCTIONS)) + "."


def functions() -> str:
    known = {f"`{getattr(f, '__name__', f)}`" for f in HANDLERS}
    return ", ".join(sorted(known))


BETWEEN = """\
These of NumPy's functions change nothing, and no kernel computes them. In functions of your own
they are called on arrays, between the kernels of what is before and after them, and counted (`no
kernel for this function`): """


def called_between() -> str:
    found = [
        name if module == "numpy" else f"{module.removeprefix('numpy.')}.{name}"
        for module, names in NAMES["pure"].items()
        if module.startswith("numpy")
        for name in names.split()
        if is_between(getattr(importlib.import_module(module), name, None))
    ]
    return ", ".join(f"`{name}`" for name in sorted(found))


def reductions() -> str:
    lines = ["| join | ULP of the largest partial result |", "| --- | --- |"]
    lines += [f"| `{name}` | {ulp} |" for name, ulp in COMBINES.items()]
    return "\n".join(lines)


def test_operations_page_is_current() -> None:
    text = (
        f"{INTRODUCTION}\n## Operations on elements\n\n{operations()}\n\n"
        f"## Complex numbers\n\n{of_complex()}\n\n"
        f"## Other NumPy functions and methods\n\n{functions()}\n\n"
        f"## Called between kernels\n\n{BETWEEN}{called_between()}\n\n"
        f"## Reductions\n\nOver any axes, in one pass with what comes before.\n\n{reductions()}\n"
    )
    if os.environ.get("GPUSCHED_REGENERATE") == "1":
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "run GPUSCHED_REGENERATE=1 pytest tests/test_reference.py"


BREAKS = """\
# Graph breaks

Made from `gpusched.breaks` by `GPUSCHED_REGENERATE=1 pytest tests/test_reference.py`; do not edit.

Why calls are not part of one kernel. Each is counted with its text, the name of what was called and
its code: in `gpusched.statistics().breaks`, whose texts have a `kind`, in the summary of
`gpusched run`, on the dashboard, and, with the line of your program, by `gpusched.explain`.

| code | what can be changed |
| --- | --- |
"""


def test_page_of_graph_breaks_is_current() -> None:
    text = BREAKS + "".join(f"| `{each.name}` | {each.remedy} |\n" for each in GraphBreak)
    page = PAGE.with_name("graph-breaks.md")
    if os.environ.get("GPUSCHED_REGENERATE") == "1":
        page.write_text(text)
    assert page.read_text() == text, "run GPUSCHED_REGENERATE=1 pytest tests/test_reference.py"


def test_every_public_name_has_its_place() -> None:
    words = set(re.findall(r"[\w.]+", PYTHON.read_text()))
    named = words | {word.removeprefix("gpusched.") for word in words}
    assert {*gpusched.__all__, *gpusched.ops.__all__} <= named
