"""What a program that is recorded holds, so that it takes no more memory than NumPy's run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from gpusched.emit.policy import LEAST_FREED
from gpusched.plan.expression import Gather, Node, Scalar, Segments, children


def owner(array: Any) -> Any:
    """Return the array whose memory a view shows.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.record.held import owner
    >>> whole = np.zeros(10)
    >>> owner(whole[2:][::2]) is whole
    True
    """
    while hasattr(base := getattr(array, "base", None), "__array_ufunc__"):
        array = base
    return array


def early(nodes: Sequence[Node], done: Mapping[int, int], arrays: Sequence[Any],
          kept: Set[int]) -> list[Node]:  # fmt: skip
    """Return what to compute now, as its values take less memory than what they are computed from.

    NumPy has these values at this point of the program. Where all are left for later, the arrays
    that only they are computed from are there as long; where none of them takes less than those,
    neither does NumPy hold less.

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
    waiting: dict[int, tuple[Node, dict[int, int]]] = {}
    for node in nodes:
        if id(node) not in done and not isinstance(node, Scalar):
            owners = [owner(arrays[k]) for k in _read(node, done)]
            freed = {id(a): a.nbytes for a in owners if a.nbytes >= LEAST_FREED}
            waiting[id(node)] = node, {k: n for k, n in freed.items() if k not in held}
    times = Counter(which for _, freed in waiting.values() for which in freed)

    def alone(each: tuple[Node, dict[int, int]]) -> int:
        node, freed = each
        return sum(n for which, n in freed.items() if times[which] == 1) - node.nbytes

    best = max(waiting.values(), key=alone, default=None)
    if best is not None and alone(best) > 0:
        return [best[0]]
    together = [node for node, freed in waiting.values() if freed]
    freed = {which: n for _, each in waiting.values() for which, n in each.items()}
    return together if sum(freed.values()) > sum(node.nbytes for node in together) else []


def _read(node: Node, done: Mapping[int, int]) -> set[int]:
    """Return the registers that a node is computed from."""
    found, seen, stack = set(), set(), [node]
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if id(each) in done:
            found.add(done[id(each)])
        elif isinstance(each, Gather):
            found |= {each.register, each.labels.register}
        else:
            found |= {each.labels.register} if isinstance(each, Segments) else set()
            stack += children(each)
    return found
