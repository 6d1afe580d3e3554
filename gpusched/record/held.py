"""What a program that is recorded holds, so that it takes no more memory than NumPy's run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from gpusched.emit.policy import LEAST_FREED
from gpusched.plan.expression import Gather, Node, Segments, postorder
from gpusched.plan.plan import owner


def early(nodes: Sequence[Node], done: Mapping[int, int], arrays: Sequence[Any],
          kept: Set[int]) -> Node | None:  # fmt: skip
    """Return what to compute first, as values take less memory than what they are computed from.

    NumPy has these values at this point of the program. Where they are left for later, the arrays
    that only they are computed from are there as long. If these take no more than the values, and
    each no more than the ones that it alone is computed from, NumPy holds no less.

    Parameters
    ----------
    nodes
        Of all chunks that the program still holds.
    done
        The registers of nodes that are computed.
    arrays
        By register: what stands in for them.
    kept
        Registers that are there to the end, such as the program's inputs.
    """
    held = {id(owner(arrays[k])) for k in kept}
    held |= {id(owner(arrays[done[id(node)]])) for node in nodes if id(node) in done}
    waiting: list[tuple[Node, dict[int, int]]] = []
    for node in nodes:
        if id(node) not in done:
            read = map(owner, (arrays[k] for k in _read(node, done)))
            waiting.append((node, {id(a): a.nbytes for a in read if id(a) not in held}))
    times = Counter(which for _, freed in waiting for which in freed)

    def gain(node: Node, freed: dict[int, int]) -> int:
        return sum(n for which, n in freed.items() if times[which] == 1) - node.nbytes

    waiting = sorted((each for each in waiting if each[1]), key=lambda each: gain(*each))
    freed = {which: n for _, each in waiting for which, n in each.items()}
    more = sum(freed.values()) - sum(node.nbytes for node, _ in waiting)
    pays = more >= LEAST_FREED or (waiting and gain(*waiting[-1]) >= LEAST_FREED)
    # One by one, so that what is let go of makes room for the next.
    return waiting[-1][0] if pays else None


def _read(node: Node, done: Mapping[int, int]) -> set[int]:
    """Return the registers that a node is computed from."""
    found: set[int] = set()
    for each in postorder([node], lambda node: id(node) in done):
        if id(each) in done:
            found.add(done[id(each)])
        elif isinstance(each, Gather):
            found |= {each.register, each.labels.register}
        elif isinstance(each, Segments):
            found.add(each.labels.register)
    return found
