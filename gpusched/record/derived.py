"""Arrays that functions make once of a node, for kernels to read: labels, lanes, tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from gpusched.plan.expression import Leaf, Node, Table
from gpusched.plan.plan import used_registers
from gpusched.record.record import Recorder
from gpusched.record.unfilled import FORMS


def derived(recorder: Recorder, node: Node, function: Callable[..., Any], *args: Any) -> Leaf:
    """Return what a function makes of a node, registers and numbers; once for the same ones."""
    register = recorder.register(node)
    # What stands in for labels that are still to be computed may be beyond all arrays.
    written = recorder.postponed.writes({register, *used_registers(args)})
    copies = function in FORMS or not written

    def make() -> Node:
        return recorder.made_leaf(register, function, *args, copies=copies)

    # -0.0 equals 0.0, and is another number.
    return cast(Leaf, recorder.interned(("derived", function, register, repr(args)), make))


def table_of(recorder: Recorder, leaf: Leaf) -> Table:
    """Return the node of an array of one axis that operations get as a whole."""

    def make() -> Node:
        recorder.done[id(found)] = leaf.register
        return found

    found = Table(leaf.dtype, (), leaf.register)
    return cast(Table, recorder.interned(("table", leaf.register), make))
