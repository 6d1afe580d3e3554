"""What modules keep while the process runs is written down, each with what guards it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "explanation" / "module-state.md"

CHANGING = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip
"""Methods that change what they are called on."""

KINDS = {"count", "defaultdict", "deque", "dict", "list", "local", "set"}
"""Python's own classes of what changes, which have small letters."""

LOCKS = {"Condition", "Lock", "RLock", "lock"}

NEVER = {"CFUNCTYPE", "ExternalFunction", "FunctionType", "IntType", "NewType", "PYFUNCTYPE",
         "Struct", "Template", "TypeVar", "VectorType"}  # fmt: skip
"""Classes of what never changes, and of functions."""


def name_of(expression: ast.expr | None) -> str:
    """Return the last part of the name of what is called, or decorates."""
    while isinstance(expression, ast.Call | ast.Subscript):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return (
        expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", "")
    )


def bound(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a module binds to something, and to what."""
    waiting: list[ast.stmt] = list(tree.body)
    for node in waiting:
        if isinstance(node, ast.If | ast.Try | ast.With):
            waiting += [*node.body, *getattr(node, "orelse", ())]
        elif isinstance(node, ast.Assign):
            yield from ((t.id, node.value) for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


def dotted(expression: ast.expr) -> str:
    """Return a name, or an attribute of one; empty for anything else."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=attr, value=ast.Name(id=name)):
            return f"{name}.{attr}"
    return ""


def changed(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names of what a module binds anew, or changes, of its own or others.

    Names of other modules' attributes are dotted.
    """
    for node in (inner for each in statements for inner in ast.walk(each)):
        match node:
            case ast.Global(names=names):
                yield from names
            case ast.Call(func=ast.Attribute(attr=method, value=owner)):
                if method in CHANGING:
                    yield dotted(owner)
            case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
                yield dotted(owner)
            case ast.Attribute(value=ast.Name(id=name), attr=attr, ctx=ast.Store() | ast.Del()):
                yield f"{name}.{attr}"


def imported(tree: ast.Module) -> dict[str, str]:
    """Return what a module imports of the package at its top, by the name that it has there."""
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}".removeprefix("gpusched.")
        for node in nodes
        for alias in node.names
        if (node.module or "").startswith("gpusched")
    }


def unbounded(decorator: ast.expr) -> bool:
    """Return whether a function's results are kept without a bound."""
    none = [k for k in getattr(decorator, "keywords", ()) if ast.unparse(k.value) == "None"]
    return name_of(decorator) == "cache" or (name_of(decorator) == "lru_cache" and bool(none))


def state(trees: dict[str, ast.Module]) -> tuple[set[str], set[str]]:
    """Return the names of what modules keep, and of their locks, constants left out."""
    changes = set()
    for module, tree in trees.items():
        known = imported(tree)
        # What a module does to its own names as it is imported makes them what they are.
        later = [n for n in tree.body if not isinstance(n, ast.Assign | ast.AnnAssign | ast.Expr)]
        own = {name for name in changed(later) if "." not in name}
        changes |= {f"{module}.{name}" for name in own - known.keys()}
        for name in changed(tree.body):
            first, dot, rest = name.partition(".")
            if first in known:
                changes.add(f"{known[first]}{dot}{rest}")
    found, locks = set(), set()
    for module, tree in trees.items():
        for name, value in bound(tree):
            kind = name_of(value) if isinstance(value, ast.Call) else ""
            mutable = isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp)
            mutable |= kind in KINDS | LOCKS or (
                kind.lstrip("_")[:1].isupper() and kind not in NEVER
            )
            constant = name.strip("_").isupper() or name.startswith("__")
            if f"{module}.{name}" in changes or (mutable and not constant):
                (locks if kind in LOCKS else found).add(f"{module}.{name}")
        functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
        found |= {f"{module}.{f.name}" for f in functions if any(map(unbounded, f.decorator_list))}
    return found, locks


@cache
def package() -> tuple[set[str], set[str]]:
    """Return the names of what the package's modules keep, and of their locks."""
    paths = (path for folder in ("gpusched", "workers", "serialization")
             for path in sorted((ROOT / folder).rglob("*.py")))  # fmt: skip
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return state(
        {name.removeprefix("gpusched."): ast.parse(p.read_text()) for name, p in names.items()}
    )


def written() -> dict[str, str]:
    """Return what is written down, with what guards it."""
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.+) \|$", TABLE.read_text(), re.MULTILINE)
    return dict(rows)


def test_what_modules_keep_is_written_down() -> None:
    found, locks = package()
    told = written()
    assert sorted(found - told.keys()) == [], "add what modules keep to the table, or a lock"
    assert sorted(told.keys() - found - locks) == [], "nothing like it is there any more"


def test_locks_are_there_and_guard_something() -> None:
    _, locks = package()
    told = written()
    named = {
        f"{state_.rpartition('.')[0]}.{lock}"
        for state_, guard in told.items()
        for lock in re.findall(r"`(_\w+)`", guard)
    }
    guards = {name for name in named if name in locks or name in told}
    assert sorted(named - guards) == [], "no such lock"
    assert sorted(locks - named - told.keys()) == [], "what does it guard?"


def test_state_is_seen() -> None:
    text = """
_seen = {}
TABLE = {}
CONSTANT = {}
_local = _Local()
_turn = threading.Lock()
_other = forks.lock()
number = 0
small = lru_cache(maxsize=4)
word = compile("a")
def note(key):
    global number
    TABLE[key] = number = 1
@cache
def kept(): ...
@lru_cache(maxsize=4)
def bounded(): ...
"""
    others = [
        "from gpusched.a import CONSTANT\ndef f():\n    CONSTANT.update(a=1)\n",
        "from gpusched.a import CONSTANT\nCONSTANT['b'] = 2\n",
        "from gpusched import a\na.CONSTANT.update(c=3)\n",
    ]
    found, locks = state({"a": ast.parse(text)})
    assert found == {"a._seen", "a.TABLE", "a._local", "a.number", "a.kept"}
    assert locks == {"a._turn", "a._other"}
    for other in others:
        assert "a.CONSTANT" in state({"a": ast.parse(text), "b": ast.parse(other)})[0]
