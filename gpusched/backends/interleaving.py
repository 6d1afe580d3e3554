"""How many vectors a loop computes at once, passed to LLVM as metadata of the loop."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

_COUNT = ir.IntType(32)


def ask_for(module: Any, count: int) -> None:
    """Have every loop of a module, as numba has just made it, compute so many vectors at once.

    Parameters
    ----------
    module
        In llvmlite's form.
    count
        0 leaves it to LLVM.
    """
    if not count:
        return
    for function in module.functions:
        for branch in _back_edges(function):
            branch.set_metadata("llvm.loop", _wish(module, count))


def _back_edges(function: Any) -> list[Any]:
    """Return the branches that go back to the start of a loop."""
    found: list[Any] = []
    if function.is_declaration:
        return found
    open_blocks, seen = set(), set()
    waiting = [(function.entry_basic_block, False)]
    while waiting:
        block, left = waiting.pop()
        if left:
            open_blocks.discard(block)
        elif block not in seen:
            seen.add(block)
            open_blocks.add(block)
            targets = _targets(block)
            if any(target in open_blocks for target in targets):
                found.append(block.terminator)
            waiting.append((block, True))
            waiting += [(target, False) for target in targets]
    return found


def _targets(block: Any) -> list[Any]:
    operands = block.terminator.operands if block.terminator is not None else []
    return [operand for operand in operands if isinstance(operand, ir.Block)]


def _wish(module: Any, count: int) -> Any:
    wish = module.add_metadata(["llvm.loop.interleave.count", _COUNT(count)])
    # What says something of a loop names itself first.
    loop = ir.MDValue(module, [], name=str(len(module.metadata)))
    loop.operands = (loop, wish)
    return loop
