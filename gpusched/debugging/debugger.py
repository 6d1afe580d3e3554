"""`gpusched.debug`: the kernels of one chunk in plain Python, under the user's debugger."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from gpusched.adapters.tasks import DataNode
from gpusched.backends.devices import HOST
from gpusched.debugging.breakpoints import Stops, When
from gpusched.debugging.follow import Follower
from gpusched.debugging.graph import Graph
from gpusched.debugging.origins import Called, moves_by_name
from gpusched.debugging.plaincall import PlainCall
from gpusched.debugging.readable import ReadableKernel
from gpusched.debugging.replay import Execution, Run
from gpusched.debugging.subject import Index, Subject
from gpusched.emit.kernel import Kernel
from gpusched.graph.functions.partials import bare
from gpusched.inspection.variant import KernelUse
from gpusched.plan.expression import Reduce
from gpusched.store.handles import CompiledKernel, Handle


def debug(x: Any, index: Any = None, *, chunk: Any = None, stop: When = "first",
          condition: str | None = None) -> Any:  # fmt: skip
    """Run what computes an element, or a chunk, in plain Python under a debugger.

    The chunk's real inputs are computed, and the very kernels of its task run as Python, with your
    variables' names. `breakpoint` is called before the first line of each kernel's `point`, so
    that any debugger can be used that `sys.breakpointhook` or ``PYTHONBREAKPOINT`` names. What is
    not fused is stopped at, too, where its functions are called.

    Parameters
    ----------
    x : dask.array.Array or xarray object
        A dask array, or an xarray DataArray of one.
    index : tuple of int, optional
        Position of an element, counted from the end where negative: the kernels that make it run
        for it alone. A reduction whose result they use is compiled, not stopped in.
    chunk : tuple of int, optional
        Position of a chunk, instead of an index: its kernels run over the whole of it, which
        takes 1 to 5 microseconds an operation and element.
    stop : {'first', 'every', 'never'}
        ``"first"``: at the first element of each kernel; ``"every"``: at each; ``"never"``.
    condition : str, optional
        Stops only where it holds: an expression of the kernel's variables, those that `point`
        computes included, such as ``"not isfinite(ratio)"``.

    Returns
    -------
    object
        The element, as a NumPy scalar, or the chunk: what `x.compute()` has there, up to what the
        compiled functions' error bounds allow.

    Raises
    ------
    TypeError, IndexError, ValueError
        If `x` is not such an array, or has no such element or chunk.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> with gpusched.enable():
    ...     x = da.arange(10_000, chunks=5_000)
    ...     y = (x - 1) * 3
    >>> int(gpusched.debug(y, index=7_000, stop="never"))
    20997
    """
    subject = Subject(x)
    spot = subject.spot(index, chunk)
    stops = Stops(stop, condition)
    graph = Graph(subject.array)
    node = graph.node(spot.key)
    if isinstance(node, DataNode):
        raise ValueError(
            f"chunk {spot.chunk} of {subject.name} is data that the graph holds: nothing "
            "computes it; give an array that is computed from it"
        )
    if spot.local is None:
        stepping = _Stepping(stops)
        inputs = graph.inputs(node)
        found = Run(node, inputs, graph.functions, graph.placement, stepping).result
    else:
        found = _element(graph, spot.key, spot.local, stops)
    stops.check()
    if not stops.offered:
        print(
            f"gpusched.debug: nothing that makes chunk {spot.chunk} of {subject.name} can be "
            "stopped at: its task only makes data, or moves it",
            file=sys.stderr,
        )
    return found


class _SteppingCalls(Execution):
    """Runs functions from a line that is stopped at; kernels are compiled."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops

    def call(self, called: Called) -> Any:
        if not stoppable(called):
            return super().call(called)
        return _called(called, self._stops)


class _Stepping(_SteppingCalls):
    """Runs kernels in plain Python, too."""

    def __init__(self, stops: Stops) -> None:
        super().__init__(stops)
        self.device = replace(HOST, compile=_uncompiled)

    def kernel(self, use: KernelUse) -> Handle:
        kernel = ReadableKernel(use)
        call = kernel.stopping(self._stops.in_kernel(kernel))
        return Handle.of(CompiledKernel(use.kernel, call))


def stoppable(called: Called) -> bool:
    """Return whether a function is worth a stop: it computes, on arrays that it is given."""
    drawn = getattr(bare(called.function), "__module__", "") == "dask.array.random"
    return bool(called.arrays()) and not drawn and not moves_by_name(called.function)


def _uncompiled(kernel: Kernel) -> Handle:
    return Handle.of(CompiledKernel(kernel, lambda *operands: None))


def _called(called: Called, stops: Stops) -> Any:
    """Call a function that is not fused, and say so where it is stopped at."""
    plain = PlainCall(called)
    wanted = stops.in_call()

    def told(*arguments: Any) -> bool:
        stopping = wanted(*arguments)
        if stopping:
            print(f"gpusched.debug: {called.name} is not fused: {called.reason}", file=sys.stderr)
        return stopping

    return plain.run(told)


def _element(graph: Graph, key: Any, local: Index, stops: Stops) -> Any:
    """Run what makes one element of a chunk, and return it."""
    # A function may change its arguments: it is called once, where it is stopped at.
    follower = Follower(graph, 0, into_reductions=False, execution=_SteppingCalls(stops))
    value = follower.value_of(key, local)
    for visit in follower.visits:
        made, last = visit.made, visit is follower.visits[-1]
        if isinstance(made, Called):
            if stoppable(made) and not made.direct:
                _called(graph.placement.sent(made), stops)
            continue
        if not last and isinstance(made.use.builder.group.nodes[made.number], Reduce):
            continue
        kernel = follower.kernel(made.use)
        call = kernel.stopping(stops.in_kernel(kernel))
        found = kernel.at(call, made.number, visit.element)
        value = found if last else value
    return value
