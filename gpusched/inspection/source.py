"""A kernel's source with the user's names and lines in it; it runs as the plain one does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from keyword import iskeyword

from gpusched.emit import generate
from gpusched.emit.kernel import Kernel
from gpusched.inspection.places import (
    Place,
    place_of_layer,
    place_of_site,
    variable_at,
    variable_of_layer,
)
from gpusched.inspection.variant import KernelUse
from gpusched.plan.expression import Leaf, Node
from gpusched.plan.plan import Call, Register

_WORD = re.compile(r"\b[^\W\d]\w*")
_DERIVED = re.compile(r"(.+?)((?:_(?:s\d+|value\d*|block|ahead|row\d+|\d+))+)")
_STATEMENT = re.compile(r"^    t(\d+) = ")
_FUNCTION = re.compile(r"^def (\w+)\(")
_COMMENT = 48


def annotated(use: KernelUse, text: str) -> str:
    """Return a kernel's source with the names and lines of one of its uses."""
    kernel = use.kernel
    names = _unique(text, {**input_variables(use), **statement_variables(use)})
    lines = []
    inside = ""
    for line in text.splitlines():
        found = _FUNCTION.match(line)
        inside = found[1] if found else inside
        if inside in ("point", "kernel"):
            lines.append(_code(line, names, use))
        elif line.startswith("#   "):
            lines.append(_array(line, names, use, kernel))
        else:
            lines.append(line)
    head = lines[:1] + _constants(use) if lines else []
    return "\n".join([*head, *lines[1:]]) + "\n"


def _code(line: str, names: dict[str, str], use: KernelUse) -> str:
    code, mark, comment = line.partition("  # ")
    renamed = _WORD.sub(lambda match: _renamed(match[0], names), code.rstrip())
    statement = _STATEMENT.match(line)
    if not mark or statement is None:
        return renamed + (mark + comment if mark else "")
    place = statement_places(use).get(int(statement[1]))
    where = f"  {place}" if place else ""
    return f"{renamed:<{_COMMENT}}  # {comment}{where}"


def _renamed(word: str, names: dict[str, str]) -> str:
    if word in names:
        return names[word]
    derived = _DERIVED.fullmatch(word)
    if derived and derived[1] in names:
        return names[derived[1]] + derived[2]
    return word


def _array(line: str, names: dict[str, str], use: KernelUse, kernel: Kernel) -> str:
    name, colon, rest = line.removeprefix("#   ").partition(":")
    letters = generate.input_names(kernel)
    told = ""
    if name in letters:
        register = use.builder.registers[letters.index(name)]
        layer = use.arguments.get(register, "")
        shape = "x".join(map(str, use.builder.arrays[register].shape)) or "scalar"
        place = place_of_layer(layer)
        told = f" {shape}" + (f"  {place}" if place else "")
    return f"#   {names.get(name, name)}{colon}{rest}{told}"


def _constants(use: KernelUse) -> list[str]:
    return [
        f"#   {name}: {dtype} {value.item() if hasattr(value, 'item') else value}"
        for name, dtype, value in zip(
            generate.parameter_names(use.kernel),
            use.kernel.parameters,
            use.launch.constants,
            strict=True,
        )
    ]


def input_variables(use: KernelUse) -> dict[str, str]:
    """Return the user's names of a kernel's inputs, by the names in the plain source."""
    found = {}
    for letter, register in zip(
        generate.input_names(use.kernel), use.builder.registers, strict=True
    ):
        name = register_variable(use, register)
        if name:
            found[letter] = name
    return found


def register_variable(use: KernelUse, register: int) -> str | None:
    """Return the user's name for what a register of a recording holds, if there is one."""
    recorder = use.recorder
    for number in _lineage(use, register):
        leaf = recorder.leaf_of(number)
        name = recorder.variables.get(id(leaf)) if leaf is not None else None
        name = name or variable_of_layer(use.arguments.get(number, ""))
        if name:
            return name
    return None


def _lineage(use: KernelUse, register: int) -> Iterable[int]:
    """Yield a register, and those that it is a view of."""
    while True:
        yield register
        made = (s for s in use.recorder.steps if isinstance(s, Call) and register in s.results)
        call = next(made, None)
        if call is None or len(call.args) != 1 or not isinstance(call.args[0], Register):
            return
        register = call.args[0].number


def statement_variables(use: KernelUse) -> dict[str, str]:
    """Return the user's variables that hold statements' values, by the plain source's names."""
    found: dict[str, str] = {}
    last_of_step: dict[int, int] = {}
    for number, node in enumerate(use.builder.order):
        origin = use.recorder.origins.get(id(node))
        name = use.recorder.variables.get(id(node))
        if name is None and origin is not None and origin.site is not None:
            name = variable_at(*origin.site)
        if name is None and origin is not None and origin.site is None:
            last_of_step[origin.step] = number
        if name:
            found[f"t{number}"] = name
    for step, number in last_of_step.items():
        name = variable_of_layer(use.layers.get(step, ""))
        if name:
            found[f"t{number}"] = name
    return found


def statement_places(use: KernelUse) -> dict[int, Place]:
    """Return the user's lines behind statements, by their numbers."""
    found = {}
    for number, node in enumerate(use.builder.order):
        place = place_of_node(use, node)
        if place is not None:
            found[number] = place
    return found


def place_of_node(use: KernelUse, node: Node) -> Place | None:
    """Return the user's line behind a node: in the user's function, else where dask is called."""
    origin = use.recorder.origins.get(id(node))
    if origin is None:
        return None
    return place_of_site(origin.site) or place_of_layer(use.layers.get(origin.step, ""))


def places_of(use: KernelUse) -> list[Place]:
    """Return the lines behind a kernel, each once, in the order of its statements."""
    nodes = [*use.builder.order, *use.builder.group.nodes]
    places = [place_of_node(use, node) for node in nodes if not isinstance(node, Leaf)]
    return list(dict.fromkeys(place for place in places if place is not None))


def _unique(text: str, wanted: dict[str, str]) -> dict[str, str]:
    """Return names that differ from each other and from all that the source uses."""
    reserved = set(_WORD.findall(text)) - wanted.keys()
    given: set[str] = set()
    found = {}
    for plain, name in wanted.items():
        if iskeyword(name) or name in reserved or _DERIVED.fullmatch(name):
            name += "_"
        number, unique = 1, name
        while unique in given or unique in reserved:
            number += 1
            unique = f"{name}{number}"
        given.add(unique)
        found[plain] = unique
    return found
