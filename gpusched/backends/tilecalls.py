"""What the loop over tiles reads of each kernel: words of memory, laid out once for a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusched.dataclass import dataclass

WORDS = 8
"""Words of 64 bits for each kernel: its address; where its block of arguments begins; how many
arrays there are; where their steps are, in bytes from a row to the next; where the number of rows
is; where that of the rows before is, or 0; how many results are converted; where it says which."""

CONVERSION = 3
"""Words for each result that is converted from float64 to float32: where the address of what is
accumulated is; the address of the result; its elements from a row to the next."""


@dataclass(frozen=True)
class Call:
    """One kernel that is called for each tile."""

    run: int
    """The address of its machine code."""
    numbers: tuple[int, ...]
    """Words of its block of arguments behind those of the arrays."""
    steps: tuple[int, ...]
    """For each array, bytes from a row to the next; 0 if all rows share it."""
    size: int
    """Which word of the block is the number of rows."""
    before: int | None
    """Which is the number of rows before, if any."""
    converted: tuple[tuple[int, int], ...]
    """Arrays that are copied to results of float32, with the elements of a row."""


@dataclass(frozen=True)
class Layout:
    """The memory for some calls."""

    memory: np.ndarray
    """All that is the same for each chunk; to be copied."""
    blocks: tuple[int, ...]
    """For each call, the word where its block begins."""
    results: tuple[int, ...]
    """For each conversion, the word for the address of its result."""


def word(number: Any) -> int:
    """Return a number as a block of arguments has it: floats are float64 there.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.backends.tilecalls import word
    >>> word(np.uint8(200)), word(-1), word(np.float32(0.5)) == 0x3FE << 52
    (200, -1, True)
    """
    found = np.asarray(number)
    wide = {"f": np.float64, "u": np.uint64}.get(found.dtype.kind, np.int64)
    return int(found.astype(wide).view(np.int64))


def layout(calls: tuple[Call, ...]) -> Layout:
    """Return the memory for some calls, without what differs from chunk to chunk.

    Examples
    --------
    >>> from gpusched.backends.tilecalls import Call, layout
    >>> found = layout((Call(4096, (5,), (8,), 2, None, ()),))
    >>> found.memory.tolist(), found.blocks
    ([4096, 8, 1, 11, 10, 0, 0, 12, 0, 0, 5, 8], (8,))
    """
    words: list[int] = [0] * (WORDS * len(calls))
    blocks, results = [], []
    for number, call in enumerate(calls):
        block = len(words)
        steps = block + 2 * len(call.steps) + len(call.numbers)
        conversions = steps + len(call.steps)
        words += [*[0] * (2 * len(call.steps)), *call.numbers, *call.steps]
        for array, elements in call.converted:
            results.append(len(words) + 1)
            words += [block + 2 * array, 0, elements]
        before = 0 if call.before is None else block + call.before
        words[WORDS * number : WORDS * (number + 1)] = [
            call.run, block, len(call.steps), steps, block + call.size, before,
            len(call.converted), conversions,
        ]  # fmt: skip
        blocks.append(block)
    return Layout(np.array(words, np.int64), tuple(blocks), tuple(results))
