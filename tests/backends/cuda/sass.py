"""Machine code for GPUs as nvdisasm prints it: instructions, and those of one way through them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from gpusched.backends.cuda.compiler import Compiled

SPILLS = ("LDL", "STL")
FLOAT64 = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX", "F2F.F64", "F2F.F32.F64", "MUFU.RCP64H",
           "MUFU.RSQ64H", "I2F.F64", "F2I.F64")  # fmt: skip
WIDE_LOAD, WIDE_STORE = "LDG.E.128", "STG.E.128"

_LINE = re.compile(
    r"^(?:(?P<label>\.\S+):|\s+/\*[0-9a-f]{4,}\*/\s+"
    r"(?:@!?U?P\w+ )?(?P<name>[A-Z][\w.]*)(?P<rest>.*))",
    re.M,
)


@dataclass(frozen=True)
class Instruction:
    """One line of machine code."""

    name: str
    """With all its modifiers, such as ``LDG.E.128.CONSTANT``."""
    target: int | None = None
    """The number of the instruction that a branch goes to."""


def read(compiled: Compiled) -> list[Instruction]:
    """Return the instructions of a kernel in order."""
    return parse(compiled.sass())


def parse(text: str) -> list[Instruction]:
    """Return the instructions of nvdisasm's text.

    Examples
    --------
    >>> text = ".L_x_0:\\n  /*0000*/  IADD3 R1, R1, 1 ;\\n  /*0010*/  @P0 BRA `(.L_x_0) ;\\n"
    >>> parse(text)[1]
    Instruction(name='BRA', target=0)
    """
    labels: dict[str, int] = {}
    found: list[tuple[str, str]] = []
    for match in _LINE.finditer(text):
        if match["label"]:
            labels[match["label"]] = len(found)
        else:
            found.append((match["name"], match["rest"]))
    assert any(name == "EXIT" for name, _ in found), "no machine code was read"
    return [Instruction(name, _target(name, rest, labels)) for name, rest in found]


def _target(name: str, rest: str, labels: dict[str, int]) -> int | None:
    named = re.search(r"`\((\.\S+)\)", rest) if name.startswith("BRA") else None
    return labels.get(named[1]) if named else None


def count(found: list[Instruction], *starts: str) -> int:
    """Return how many instructions begin with one of some names."""
    return sum(each.name.startswith(starts) for each in found)


def busiest(found: list[Instruction]) -> list[Instruction]:
    """Return what is executed for most elements: the vectors', where there are any.

    The shortest loop with the most loads, where there is one; else all between the exits around
    the wide accesses.
    """
    load = WIDE_LOAD if count(found, WIDE_LOAD) else "LDG"
    loops = [found[b.target : k + 1] for k, b in enumerate(found)
             if b.target is not None and b.target <= k]  # fmt: skip
    most = max((count(loop, load) for loop in loops), default=0)
    if most:
        return min((loop for loop in loops if count(loop, load) == most), key=len)
    wide = [k for k, each in enumerate(found) if each.name.startswith((WIDE_LOAD, WIDE_STORE))]
    if not wide:
        return found
    end = next(k for k in range(wide[-1], len(found)) if found[k].name == "EXIT")
    first = max((k + 1 for k in range(wide[0]) if found[k].name == "EXIT"), default=0)
    return found[first : end + 1]


def kinds(found: list[Instruction]) -> Counter[str]:
    """Return how many instructions there are by name."""
    return Counter(each.name for each in found)
