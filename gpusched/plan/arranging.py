"""How recorded steps run: what need not be joined is not, and some kernels run tile by tile."""

from __future__ import annotations

from gpusched.breaks import Reason
from gpusched.plan import tiles, unjoined
from gpusched.plan.kernelbuilder import not_streamed
from gpusched.plan.plan import Launch, Registers, Stage, Step, last_uses

Dying = tuple[tuple[int, ...], ...]
"""By step, the registers that nobody reads later."""


def arranged(
    recorded: list[Step], kept: set[int], contents: Registers, apart: list[tuple[str, Reason]]
) -> tuple[list[Step], Dying, tuple[Stage, ...]]:
    """Return the steps of a plan, the registers that die with each, and what runs.

    Parameters
    ----------
    recorded
        The steps as they were recorded.
    kept
        Registers that are needed after the last one.
    contents
        By register: what stands in for its array.
    apart
        What is not put together is added to it, with the reason.
    """
    steps = unjoined.arranged(list(recorded), kept, contents, apart)
    dying = last_uses(map(tiles.touched, steps), kept)
    running = tiles.arranged(steps, dying, contents, apart)
    ends = last_uses(map(tiles.touched, running), kept)
    launches = [isinstance(step, Launch | tiles.TiledLaunches) for step in running]
    for step in steps:
        if isinstance(step, Launch) and step.device.can.streams:
            why = not_streamed(step.kernel.kernel.outputs, step.loops, step.outputs)
            apart += [("stream", why)] if why is not None else []
    return steps, dying, tuple(zip(running, launches, ends, strict=True))
