"""The recorder: NumPy calls on lazy chunks become expressions, and what cannot, a call."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from gpusched.backends.devices import HOST, Device
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.dtypes import SUPPORTED, computed
from gpusched.emit.floatingpoint import INVALID, OVERFLOW, collecting, enforced, heeded, silent
from gpusched.emit.kernel import MOMENTS
from gpusched.emit.operations import Operation, conversion, reports, reports_of_joining
from gpusched.emit.policy import LANES, LEAST_FREED
from gpusched.plan import tiers, tiles, unjoined
from gpusched.plan.expression import (
    Apply,
    Constant,
    Gather,
    Leaf,
    Node,
    PythonScalar,
    Reduce,
    Scalar,
    Scan,
    Segments,
    Table,
    UnfusibleError,
    UnrecordableError,
    broadcast_shapes,
    postorder,
    resolve_dtypes,
    scalar,
)
from gpusched.plan.layout import axis_order, falls
from gpusched.plan.overrides import bounds
from gpusched.plan.plan import (
    Allocation,
    Call,
    Empty,
    Launch,
    Plan,
    Register,
    Registers,
    Step,
    by_calls,
    changed,
    kind,
    last_uses,
    owner,
    substitute,
    used_registers,
    written,
)
from gpusched.plan.schedule import Group, KernelBuilder, Part, alongside, groups, not_streamed
from gpusched.record import parts
from gpusched.record.catalogue import has, own
from gpusched.record.held import early
from gpusched.store.handles import Runnable

if TYPE_CHECKING:
    from gpusched.record.calls import Calls

PYTHON_SCALARS = (bool, int, float)

WIDE = np.dtype(np.float64)
"""Of moments, whatever they are of."""


CUMULATED: dict[str, Any] = {"add": np.cumsum, "multiply": np.cumprod}
"""Functions of array libraries that scan, by what joins."""


@own("portable")
def _cumulated(array: Any, combine: str, axis: int) -> Any:
    """Return sums or products of each element with all before it."""
    return CUMULATED[combine](array, axis=axis, dtype=array.dtype)


Value = Any
"""A node, a Python number, or a NumPy scalar: what an operand of an expression can be."""


class Recorder:
    """Records one run of a program; what it would compute is stood in for until it is needed.

    Parameters
    ----------
    device
        Where the arrays are kept.
    most
        Operations of a kernel at most; by default what the configuration has here.

    Notes
    -----
    Belongs to one thread. No kernel runs while a program is recorded, unless the program asks for
    a value, as a function without a kernel does: then all that has been recorded runs (`demand`).
    A register holds the array itself, or, as long as one of the steps in `_pending_steps` is to
    write it, an uninitialised array of its shape, dtype and strides, or a view of such a one.
    """

    def __init__(self, device: Device = HOST, most: int | None = None) -> None:
        self.device = device
        self.moved = False
        """Whether the arrays are NumPy's to the program, and were copied to the device for it."""
        # Operations recorded before they are computed, so that no kernel grows without bound.
        self._limit = bounds().most if most is None else most
        self._nodes: dict[Any, Node] = {}
        self.pending = 0
        """How many of these operations there are."""
        self.contents: Registers = []
        """By register: an array, or what stands in for it."""
        self.chunks: list[Callable[[], Any]] = []
        """Weak references to its lazy chunks: NumPy has an array for each that there still is."""
        self.gone: set[int] = set()
        """Those, by identity, that nobody reads again, though their objects are still there."""
        self.given: set[int] = set()
        """Registers of the program's inputs."""
        self._constants: list[tuple[int, Any]] = []
        self.done: dict[int, int] = {}
        """By identity, nodes that have been computed, with their registers."""
        self._gathers = False
        """Whether there are any."""
        self._waiting: dict[int, Reduce] = {}
        """By identity, sums that keep their axes and have been recorded, but not computed."""
        self._sliced: dict[int, int] = {}
        self._viewed: set[int] = set()
        """By identity, nodes that were recorded again for what a view shows of them."""
        self._cut: dict[int, tuple[int, tuple[Callable[[Any], Any], ...]]] = {}
        """By register, of which piece it is a view, by which functions, where whoever cut the piece
        off wants an array of its own."""
        self._copies: dict[int, int] = {}
        """By register of such a piece, the register of its copy."""
        self._owner = threading.get_ident()
        self.steps: list[Step] = []
        self._pending_steps: list[Step] = []
        self._stood_in: set[int] = set()
        """Registers that these write."""
        self.patient = True
        """Whether what is to run now may wait for a compiler."""
        self.missing: tuple[Runnable, ...] = ()
        """Kernels that ended the recording, as they are not compiled."""
        self.repeatable = True
        """Whether the plan may run for these very inputs: no step that has run is seen outside."""
        self.operations = 0
        self.escape: Reason | None = None
        """Why this run cannot be repeated from the plan, if it cannot."""
        self.answers: dict[int, bool] | None = None
        """By identity, nodes that the program has asked whether they are true, for what the plan
        holds (`gpusched.record.branches`); None where it is given values that no plan holds for."""
        self.exact = True
        """Whether kernels round as NumPy does."""
        self.stopped: BaseException | None = None
        """What ended the recording, whoever has caught it since."""
        self.breaks: list[tuple[str, Reason]] = []
        self.apart: list[tuple[str, Reason]] = []
        """What the plan does not put together, and why."""
        self.errors = 0
        """Floating-point errors of numbers that the program computes besides its chunks."""
        self.items = 0
        """How many items of chunks the program has gone through."""
        self.warned: list[Warning] = []
        """What NumPy warns of whatever the values are, and no kernel does."""
        self.followed: Calls | None = None
        """What the function that is being recorded has called, if that is followed."""
        self.step = 0
        """Which call of the program is being recorded, by the register of its result."""
        self._steps: dict[int, int] = {}

    # Nodes ------------------------------------------------------------------------------

    def recorded(self) -> list[Apply | Reduce]:
        """Return the operations that have been recorded."""
        return [node for node in self._nodes.values() if isinstance(node, Apply | Reduce)]

    def has_room(self, operations: int) -> bool:
        """Return whether so many operations can be recorded before any is computed."""
        return self.pending + operations <= self._limit

    def keeps_c_order(self) -> bool:
        """Return whether what kernels compute is in C order in NumPy if all arrays given are.

        That holds of elementwise functions, reductions and scans of arrays in that order; what else
        is called on arrays, as views are, has shown in which order its result is.
        """
        nodes = (*self._nodes.values(), *self.steps)
        called = (step for step in self.steps if isinstance(step, Call))
        made = [self.contents[k] for step in called for k in step.results]
        kinds = Leaf, Scalar, Apply, Reduce, Scan, Launch, Call
        ordered = all(a is not None and falls(a.shape, a.strides) for a in made)
        return ordered and all(type(each) in kinds for each in nodes)

    def is_in_c_order(self, node: Node) -> bool:
        """Return whether a node's array is known to be in C order, as elementwise results are."""
        for each in postorder([node], lambda each: id(each) in self.done):
            if id(each) not in self.done:
                if not isinstance(each, Apply | Scalar):
                    return False
            elif not falls((array := self.contents[self.done[id(each)]]).shape, array.strides):
                return False
        return True

    def unused(self, wanted: list[Node], calls: Container[int]) -> list[Node]:
        """Return what has been recorded, and nothing needs, of which NumPy may report errors.

        Parameters
        ----------
        wanted
            The results of the program.
        calls
            Which calls of the program to look at, by the registers of their results.

        Notes
        -----
        Those that others among them need are left out, and so are further results of operations
        that have a needed one: either shows the errors.
        """
        found = [n for n in self.recorded() if n.reports and self._steps.get(id(n)) in calls]
        if not found:
            return []
        computed = [node for node in self._nodes.values() if id(node) in self.done]
        needed = list(postorder([*wanted, *computed]))
        used, calls_of = {id(node) for node in needed} | self._viewed, set(map(_call, needed))
        roots: list[Node] = []
        for node in reversed(found):  # A node is recorded before those that use it.
            if id(node) not in used and _call(node) not in calls_of:
                roots.append(node)
                used.update(map(id, postorder([node])))
        return roots

    def leaf(self, array: Any, scalar: bool = False) -> Leaf:
        """Return the node of an array that exists, in a new register.

        Parameters
        ----------
        scalar
            Whether NumPy gave it as a scalar.
        """
        register = len(self.contents)
        self.contents.append(array)
        node = Leaf(array.dtype, array.shape, register, scalar)
        self.done[id(node)] = register
        self._nodes["leaf", register] = node
        return node

    def leaf_of(self, register: int) -> Node | None:
        """Return the node of the array that a register holds, if it was not computed here."""
        return self._nodes.get(("leaf", register))

    def constant(self, array: np.ndarray) -> Leaf:
        """Return the node of an array that depends only on the inputs' kinds: one of equal ones."""

        def make() -> Node:
            copy = self.device.take_in(array)
            # Other threads' streams, which do not wait for this one's, read it with the plan.
            self.device.synchronize()
            node = self.leaf(copy)
            self._constants.append((node.register, copy))
            return node

        digest = hashlib.blake2b(array.tobytes()).digest()
        return cast(Leaf, self.interned(("constant", array.dtype, array.shape, digest), make))

    def _heeded(self, errors: int) -> int:
        """Return those of the errors of a kernel that `numpy.errstate` does not ignore here."""
        if errors and self.moved and errors & enforced():
            self.stop(GraphBreak.NEEDS_HOST("numpy.errstate raises errors that no GPU reports"))
        return errors and errors & heeded()

    def interned(self, key: Any, make: Callable[[], Node], like: Node | None = None) -> Node:
        """Return the one node that a key stands for.

        A new one is made, as one of the call that is being recorded or that has made `like`.
        """
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = make()
            self._steps[id(found)] = self.step if like is None else self._steps[id(like)]
            if isinstance(found, Apply):
                self.operations += 1
                self.pending += 1
                if self.pending > self._limit:
                    self.flush([found])
        return found

    def apply(
        self, name: str, arguments: tuple[Node, ...], dtype: np.dtype, output: int = 0
    ) -> Node:
        """Return the node of a scalar operation on operands of the right dtypes."""
        errors = self._heeded(reports(name, arguments[0].dtype, dtype))
        return self._applied(name, arguments, dtype, output, errors)

    def _applied(self, name: str, arguments: tuple[Node, ...], dtype: np.dtype, output: int,
                 errors: int, like: Node | None = None) -> Node:  # fmt: skip
        shape = broadcast_shapes(*(a.shape for a in arguments))
        key = (name, output, dtype, errors, *map(id, arguments))
        return self.interned(
            key, lambda: Apply(dtype, shape, name, arguments, output, errors), like
        )

    def cast(self, value: Value, dtype: np.dtype) -> Node:
        """Return `value` as a node of `dtype`, converted as NumPy's ``astype`` does."""
        if dtype not in SUPPORTED:
            raise UnfusibleError(GraphBreak.DTYPE, f"dtype {dtype}")
        if isinstance(value, Node) and value.dtype == dtype:
            return value
        if dtype.kind == "c" or (isinstance(value, Node) and value.dtype.kind == "c"):
            return parts.cast(self, value, dtype)
        if not isinstance(value, Node):
            node = scalar(value, dtype)
            key = ("scalar", dtype, node.value.tobytes())
            return self._nodes.setdefault(key, node)
        if value.dtype not in SUPPORTED:
            raise UnfusibleError(GraphBreak.DTYPE, f"dtype {value.dtype}")
        if isinstance(value, Scalar):
            return self.cast(value.value, dtype)
        return self.apply(conversion(value.dtype, dtype), (value,), dtype)

    def number(self, value: int, dtype: np.dtype) -> Constant:
        """Return the node of a number that is part of the source of kernels."""
        key = "number", dtype, value
        return cast(Constant, self._nodes.setdefault(key, Constant(dtype, (), dtype.type(value))))

    def ufunc(
        self, operation: Operation, ufunc: np.ufunc, operands: tuple[Value, ...]
    ) -> list[Node]:
        """Return the nodes of a ufunc's results, in the dtypes NumPy gives."""
        dtypes = resolve_dtypes(ufunc, operands)
        inputs = dtypes[: ufunc.nin]
        _check(operation, inputs, operands)
        arguments = tuple(self.cast(o, d) for o, d in zip(operands, inputs, strict=True))
        return [
            self.apply(operation.name, arguments, dtype, k)
            for k, dtype in enumerate(dtypes[ufunc.nin :])
        ]

    def reduce(self, combine: str, node: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
        """Return the node of a reduction of `node` over `axes` (ascending, not negative)."""
        if node.dtype.kind == "c":
            return parts.totals(
                self, combine, node, lambda part: self.reduce(combine, part, axes, keepdims)
            )
        if not axes:
            adds = combine == "add" and node.dtype.kind == "f"
            # NumPy begins with zero, to which a negative zero makes no difference.
            zero = self.cast(0.0, node.dtype)
            return self.apply("add", (node, zero), node.dtype) if adds else node
        if node.shape and 0 in node.shape:
            raise UnfusibleError(GraphBreak.EMPTY, "reduction of an empty array")
        again = _reduced_before(combine, node, axes)
        if again is not None and keepdims:
            return again
        shape = _reduced_shape(node, axes, keepdims)
        argument = node if again is None else again.argument
        errors = self._heeded(reports_of_joining(combine, node.dtype))
        key = ("reduce", combine, axes, keepdims, errors, id(argument))

        def make() -> Node:
            self.operations += again is None
            found = Reduce(node.dtype, shape, combine, argument, axes, keepdims, reports=errors)
            # Of sums in two steps the second is what is wanted.
            self._waiting.pop(id(again), None)
            if combine == "add" and keepdims:
                self._waiting[id(found)] = found
            return found

        return self.interned(key, make)

    def moments(self, node: Node, axes: tuple[int, ...], keepdims: bool) -> list[Reduce]:
        """Return nodes of a mean, what rounding it loses, and squares of deviations added up.

        Parameters
        ----------
        node
            Whose, of any dtype; they are of float64.
        axes, keepdims
            As in `reduce`.
        """
        if not axes or 0 in node.shape:
            raise UnfusibleError(GraphBreak.EMPTY, "moments of nothing")
        shape = _reduced_shape(node, axes, keepdims)
        wide = self.cast(node, WIDE)
        errors = self._heeded(INVALID | OVERFLOW)
        family: list[Reduce] = []

        def make() -> Reduce:
            self.operations += not family
            found = Reduce(WIDE, shape, MOMENTS, wide, axes, keepdims, family, errors)
            family.append(found)
            return found

        key = MOMENTS, axes, keepdims, errors, id(wide)
        found = [self.interned((*key, k), make) for k in range(3)]
        if self.device.can.begins and len(family) == 3:
            one = self.number(1, np.dtype(np.int64))
            family.append(Reduce(one.dtype, shape, "add", one, axes, keepdims, family))
        return cast(list[Reduce], found)

    def derived(
        self, node: Node, function: Callable[..., Any], *args: Any,
        unfilled: Callable[..., Any] | None = None,
    ) -> Leaf:  # fmt: skip
        """Return what a function makes of a node, registers and numbers; once for the same ones.

        Parameters
        ----------
        unfilled
            Of a function that only moves elements, whatever they are: as in `call`.
        """
        register = self.register(node)
        # What stands in for labels that are still to be computed may be beyond all arrays.
        read = {register, *used_registers(args)}
        copies = unfilled is not None or read.isdisjoint(self._stood_in)

        def make() -> Node:
            return self.made_leaf(register, function, *args, copies=copies, unfilled=unfilled)

        # -0.0 equals 0.0, and is another number.
        return cast(Leaf, self.interned(("derived", function, register, repr(args)), make))

    def table(self, leaf: Leaf) -> Table:
        """Return the node of an array of one axis that operations get as a whole."""

        def make() -> Node:
            self.done[id(found)] = leaf.register
            return found

        found = Table(leaf.dtype, (), leaf.register)
        return cast(Table, self.interned(("table", leaf.register), make))

    def gather(self, node: Node, labels: Leaf, axis: int) -> Node:
        """Return the node of a node's elements at labels along an axis.

        Parameters
        ----------
        node
            What elements are taken of; it is computed first.
        labels
            As in `gpusched.plan.expression.Gather`.
        axis
            Which axis, not negative.

        Notes
        -----
        What one label chooses is computed at once, since it may be broadcast along the axis.
        """
        shape = (*node.shape[:axis], *labels.shape, *node.shape[axis + 1 :])
        if 0 in node.shape or 0 in shape:
            raise UnfusibleError(GraphBreak.EMPTY, "elements of an empty array")
        plain = node.dtype in SUPPORTED and computed(node.dtype) == node.dtype
        if not plain or node.dtype.kind == "c":
            raise UnfusibleError(GraphBreak.DTYPE, f"elements of {node.dtype} chosen by integers")
        register = self.register(node)

        def make() -> Node:
            self.operations += 1
            return Gather(node.dtype, shape, register, labels, axis)

        found = cast(Gather, self.interned(("gather", register, id(labels), axis), make))
        self._gathers = True
        if labels.shape == (1,) and id(found) not in self.done:
            self.flush([found])
        return found

    def _gather_apart(self, roots: list[Node]) -> None:
        """Compute what kernels of `roots` would gather elsewhere than what they gather first.

        A kernel reads where one array of labels says, along one axis.
        """
        found = self._gathered(roots)
        others: list[Node] = [node for node in found if node.place != found[0].place]
        if others:
            self.flush(others)

    def _gathered(self, nodes: list[Node]) -> list[Gather]:
        """Return what kernels of some nodes would gather, in order."""
        if not self._gathers:
            return []
        every = postorder(nodes, lambda node: id(node) in self.done)
        return [n for n in every if isinstance(n, Gather) and id(n) not in self.done]

    def segments(self, combine: str, node: Node, labels: Leaf, count: int, axis: int,
                 initial: PythonScalar) -> Node:  # fmt: skip
        """Return the node of reductions along an axis of what has the same label, for each label.

        Parameters
        ----------
        combine
            As in `reduce`.
        labels
            As in `gpusched.plan.expression.Segments`, one for each element along the axis.
        count
            How many labels there are.
        axis
            Which axis, not negative.
        initial
            What results start from.
        """
        if 0 in node.shape or count == 0:
            raise UnfusibleError(GraphBreak.EMPTY, "reduction of an empty array")
        if node.dtype.kind == "c":
            raise UnfusibleError(GraphBreak.DTYPE, f"{combine} of complex numbers by label")
        place = id(labels), axis - node.ndim
        others: list[Node] = [each for each in self._gathered([node]) if each.place != place]
        if others:
            self.flush(others)
        shape = (*node.shape[:axis], count, *node.shape[axis + 1 :])
        errors = self._heeded(reports_of_joining(combine, node.dtype))
        key = ("segments", combine, axis, count, repr(initial), errors, id(node), id(labels))

        def make() -> Node:
            self.operations += 1
            return Segments(node.dtype, shape, combine, node, (axis,), reports=errors,
                            labels=labels, initial=initial)  # fmt: skip

        return self.interned(key, make)

    def scan(self, combine: str, node: Node, axis: int) -> Node:
        """Return the node of each element joined with all before it along an axis.

        Parameters
        ----------
        combine
            As in `reduce`.
        axis
            Which axis, not negative.

        Notes
        -----
        On a GPU each thread has a lane along the axis; where there are few of them (`few_lanes`),
        CuPy adds up, or multiplies, in its own order.
        """
        if 0 in node.shape:
            raise UnfusibleError(GraphBreak.EMPTY, "scan of an empty array")
        if node.dtype.kind == "c":
            return parts.totals(self, combine, node, lambda part: self.scan(combine, part, axis))
        if node.shape[axis] == 1:
            return node
        if combine in CUMULATED and self.few_lanes(node, axis):
            return self.derived(node, _cumulated, combine, axis)
        self.flush([*self._gathered([node])])
        errors = self._heeded(reports_of_joining(combine, node.dtype))
        key = ("scan", combine, axis, errors, id(node))

        def make() -> Node:
            self.operations += 1
            return Scan(node.dtype, node.shape, combine, node, (axis,), reports=errors)

        return self.interned(key, make)

    def few_lanes(self, node: Node, axis: int) -> bool:
        """Return whether threads that have a lane along an axis each would not keep a GPU busy.

        Nor do they where neighbours read far from each other.
        """
        if self.device.can.host_memory:
            return False
        after = math.prod(node.shape[axis + 1 :])
        lanes = math.prod(node.shape) // node.shape[axis]
        return after < LANES or lanes < LANES * LANES

    # Execution --------------------------------------------------------------------------

    def flush(self, roots: list[Node]) -> None:
        """Compute `roots`, so that each has a register."""
        for root in roots:
            if isinstance(root, Scalar) and id(root) not in self.done:
                leaf = self.constant(np.asarray(root.value))
                self.done[id(root)] = leaf.register
        self._gather_apart(roots)
        for wanted in groups(roots, self.done):
            group = alongside(wanted, self._waiting.values())
            for node, target in zip(group.nodes, self._compute(group), strict=True):
                self.done[id(node)] = target
                self._waiting.pop(id(node), None)
        self.pending = 0

    def _compute(self, group: Group, part: Part | None = None) -> list[int]:
        """Add the step that computes a group, and return the registers of its results."""
        builder = KernelBuilder(group, self.done, self.contents)
        if not group.axes or group.labels is not None:
            read = [self.contents[k] for k in builder.registers]
            builder.cut = unjoined.divided(self.steps, read, group.shape, self.contents)
        targets = [len(self.contents) + k for k in range(len(group.nodes))]
        step = self.launch(builder, targets, part)
        if isinstance(step, Launch):
            nodes = (*builder.order, *group.nodes)
            step.steps = tuple(sorted({self._steps[id(n)] for n in nodes if id(n) in self._steps}))
        self.contents += [None] * len(targets)
        self.steps.append(step)
        self._postpone(step)
        for output in step.outputs:
            self.contents[output.register] = output.stand_in(self.device)
        return targets

    def assembled(self, parts: Sequence[tuple[tuple[slice, ...], Node]], like: Node) -> Leaf:
        """Return the node of an array that is computed part by part, each by a kernel of its own.

        Parameters
        ----------
        parts
            Each with its values, of the array's dtype.
        like
            An array of the same shape, whose order in memory the result has.
        """
        dtype = parts[0][1].dtype
        order = axis_order(like.shape, [self.contents[self.register(like)].strides])
        shape = tuple(like.shape[axis] for axis in order)
        axes = tuple(order.index(axis) for axis in range(len(order)))
        moved = axes if axes != tuple(range(len(axes))) else None
        array = Allocation(-1, shape, dtype, moved, like.shape, dtype)
        steps = tuple(math.prod(shape[k + 1 :]) for k in axes)
        before: int | None = None
        for index, node in parts:
            self._gather_apart([node])
            # What has been computed already is copied by a kernel without operations.
            *others, last = groups([node], self.done) or [Group((node,), node.shape, ())]
            for group in others:
                for each, target in zip(group.nodes, self._compute(group), strict=True):
                    self.done[id(each)] = target
            moves = tuple(0 if n == 1 else s for n, s in zip(node.shape, steps, strict=True))
            (before,) = self._compute(last, Part(array, index, before, moves))
        assert before is not None
        found = Leaf(dtype, like.shape, before)
        self.done[id(found)] = before
        self._nodes["leaf", before] = found
        return found

    def launch(self, builder: KernelBuilder, targets: list[int],
               part: Part | None = None) -> Launch | Empty:  # fmt: skip
        """Return the step that computes a group of nodes into `targets`, or as a part of one."""
        return builder.launch(targets, self.device, part)

    def _postpone(self, step: Step) -> None:
        self._pending_steps.append(step)
        self._stood_in |= written(step)

    def demand(self) -> None:
        """Run what has been recorded and has not run, since values are needed now."""
        for step in self._runnable():
            self.release(written(self._pending_steps.pop(0)) & self._stood_in)
            step(self.contents)
            self.repeatable = False
        self._stood_in.clear()

    def _runnable(self) -> list[Step]:
        """Return what is to run, with CuPy's calls where kernels are not compiled.

        Where there are none it waits for the compiler, or ends the recording.
        """
        steps = list(self._pending_steps)
        kernels = tuple([step.kernel for step in steps if isinstance(step, Launch)])
        if self.patient:
            tiers.wait(kernels)
            return steps
        missing = tiers.missing(kernels)
        if not missing:
            return steps
        called = by_calls(steps) if self.moved else None
        if called is None:
            self.missing = missing
            self.stop(GraphBreak.COMPILATION("kernels are not compiled"))
        return called

    def discard(self) -> None:
        """Let go of all that stands in for results: nothing of what was recorded is to run."""
        self.release(self._stood_in)

    def release(self, registers: set[int]) -> None:
        """Let go of what stands in for results."""
        for register in registers:
            self.contents[register] = None

    def stand_ins(self, structure: Any) -> Any:
        """Return a structure of registers with what stands in for their values, or the values."""
        return substitute(structure, self.contents)

    def fetch(self, structure: Any) -> Any:
        """Return a structure of registers with their values in place."""
        self.demand()
        return substitute(structure, self.contents)

    def run(self, plan: Plan, inputs: tuple[Any, ...]) -> tuple[Any, float]:
        """Return what `Plan.run` does for the inputs that were recorded.

        Nothing runs twice that is not free of side effects: once a function without a kernel has
        been called, only what comes after it is left to run.
        """
        if self.repeatable:
            self.release(self._stood_in)
            return plan.run(inputs)
        found = self.fetch(plan.result)
        plan.synchronize()
        return found, 0.0

    @property
    def launched(self) -> bool:
        """Whether a kernel has been recorded."""
        return any(isinstance(step, Launch) for step in self.steps)

    def register(self, node: Node) -> int:
        """Return the register that holds `node`, computing it first if need be."""
        return self.registers_of([node])[0]

    def registers_of(self, nodes: list[Node]) -> list[int]:
        """Return the registers that hold some nodes, computing them first, together, if need be."""
        missing = {id(node): node for node in nodes if id(node) not in self.done}
        if missing:
            if any(node.nbytes >= LEAST_FREED for node in missing.values()):
                self.compute_early()
            self.flush([node for key, node in missing.items() if key not in self.done])
        return [self.done[id(node)] for node in nodes]

    def array(self, node: Node) -> Any:
        """Return the value of `node`."""
        register = self.register(node)
        self.demand()
        return self.contents[register]

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any,
             copies: bool = False, unfilled: Callable[..., Any] | None = None) -> Any:  # fmt: skip
        """Call `function` on arrays that exist; return its results as nodes where they can be.

        Parameters
        ----------
        function
            What is called.
        args, kwargs
            With `Register` objects where a node's value goes.
        copies
            Whether it only moves elements, or shows them in another way: then it is called with
            what stands in for arrays, too, and once more when those are there.
        unfilled
            Of such a function, what to call in its place until the values are needed: returns what
            its result will be like, without moving anything.
        """
        if self.moved and not copies and not has(function, "portable"):
            name = self.breaks[-1][0] if self.breaks else _name(function)
            reason = self.breaks[-1][1] if self.breaks else GraphBreak.NO_KERNEL("no kernel")
            self.stop(reason.told(f"{name} needs NumPy arrays: {reason}"))
        registers = self.contents
        if self._cut and not copies:
            args, kwargs = changed(args, self._owning), changed(kwargs, self._owning)
        read = used_registers(args) | used_registers(kwargs)
        waits = unfilled is not None or not read.isdisjoint(self._stood_in)
        if not copies:
            self.demand()
            self.repeatable, waits = False, False
        with collecting(heeded()):
            called = unfilled or function
            found = called(*substitute(args, registers), **substitute(kwargs, registers))
        single = type(found) not in (list, tuple)
        values = (found,) if single else tuple(found)
        if not all(self._is_array(v) for v in values):
            reason = GraphBreak.NOT_ARRAYS(f"{_name(function)} gave something else than arrays")
            if not isinstance(function, np.ufunc) and any(map(_may_show, values)):
                self.stop(reason)
            self.escaped(reason)
            return found
        scalars = [isinstance(v, np.generic) for v in values]
        arrays = [np.asarray(v) if scalar else v for v, scalar in zip(values, scalars, strict=True)]
        there = {id(owner(registers[k])) for k in read}
        if any(a.nbytes >= LEAST_FREED and id(owner(a)) not in there for a in arrays):
            self.compute_early()
        leaves = [self.leaf(*each) for each in zip(arrays, scalars, strict=True)]
        results = tuple(leaf.register for leaf in leaves)
        kinds = tuple(map(kind, arrays))
        step = Call(function, args, kwargs, results, single, kinds, heeded())
        self.steps.append(step)
        if waits:
            self._postpone(step)
        return leaves[0] if single else type(found)(leaves)

    def compute_early(self) -> None:
        """Compute what keeps more memory from being let go of than its value takes."""
        kept = {*self.given, *(register for register, _ in self._constants)}
        there = (chunk for each in self.chunks if (chunk := each()) is not None)
        held = {id(chunk.held): chunk.held for chunk in there if id(chunk) not in self.gone}
        nodes = list(held.values())
        while (node := early(nodes, self.done, self.contents, kept)) is not None:
            self.flush([node])

    def _is_array(self, value: Any) -> bool:
        scalar = isinstance(value, np.generic) and self.device.can.host_memory
        return self.device.holds(np.asarray(value) if scalar else value)

    def view(self, node: Node, change: Callable[[np.ndarray], np.ndarray], repeats: bool) -> Node:
        """Return `node` seen through `change`, a function that only makes views.

        Parameters
        ----------
        repeats
            Whether several views of one node may show the same elements.

        Notes
        -----
        Operations are recorded once more for what is shown. They report the errors that the ones
        that they are parts of do, and belong to the same calls.
        """
        if isinstance(node, Scalar):
            return self.leaf_view(self.register(node), change)
        if id(node) in self.done:
            return self.leaf_view(self.done[id(node)], change)
        count = self._sliced[id(node)] = self._sliced.get(id(node), 0) + 1
        if (turned := self._turned(node, change)) is not None:
            return turned
        if isinstance(node, Reduce | Gather) or (repeats and count > 2):
            return self.leaf_view(self.register(node), change)
        assert isinstance(node, Apply)
        self.reduce_first([node])
        moved: dict[int, Node] = {}
        return self._push(node, node.shape, change, moved)

    def reduces(self, node: Node) -> bool:
        """Return whether a node needs reductions that have not been computed."""
        return id(node) not in self.done and bool(self._reductions([node]))

    def reduce_first(self, nodes: list[Node]) -> None:
        """Compute the reductions that nodes need: together, as one kernel may do some of them."""
        self.flush(self._reductions(nodes))

    def _reductions(self, nodes: list[Node]) -> list[Node]:
        every = postorder(nodes, lambda node: isinstance(node, Reduce))
        return [n for n in every if isinstance(n, Reduce) and id(n) not in self.done]

    def made_leaf(
        self, register: int, function: Callable[..., Any], *args: Any, copies: bool = False,
        unfilled: Callable[..., Any] | None = None,
    ) -> Leaf:  # fmt: skip
        """Return the node of what a function makes of what a register holds, see `call`."""
        found = self.call(function, (Register(register), *args), {}, copies, unfilled)
        assert isinstance(found, Leaf)
        return found

    def leaf_view(self, register: int, change: Callable[[np.ndarray], np.ndarray]) -> Node:
        """Return the node of a view of what a register holds."""
        found = self.made_leaf(register, change, copies=True)
        step = self.steps[-1]
        assert isinstance(step, Call)
        step.is_view = True
        if register in self._cut:
            piece, changes = self._cut[register]
            self._cut[found.register] = piece, (*changes, change)
        return found

    def wants_own(self, node: Node) -> None:
        """Note that a piece of an array is an array of its own in NumPy.

        Kernels read it where it is; whoever else is to see it, or a view of it, gets the `own` one.
        """
        if isinstance(node, Leaf):
            self._cut.setdefault(node.register, (node.register, ()))

    def is_piece(self, register: int) -> bool:
        """Return whether a register holds such a piece, or a view of one."""
        return register in self._cut

    def own(self, register: int) -> Node:
        """Return what such a register holds: the array, or the view of it, that NumPy has."""
        piece, changes = self._cut[register]
        if piece not in self._copies:
            self._copies[piece] = self.made_leaf(piece, copied, copies=True).register
        found = self._copies[piece]
        for change in changes:
            leaf = self.leaf_view(found, change)
            assert isinstance(leaf, Leaf)
            found = leaf.register
        return self._nodes["leaf", found]

    def _owning(self, item: Any) -> Any:
        """Return an argument, or an array of its own in place of a piece."""
        if type(item) is Register and item.number in self._cut and not item.scalar:
            return Register(self.register(self.own(item.number)))
        return item

    def _push(self, node: Node, shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray],
              moved: dict[int, Node]) -> Node:  # fmt: skip
        """Return the expression of `node`, broadcast to `shape`, with `change` on its inputs."""
        if isinstance(node, Scalar | Table):
            return node
        if id(node) not in moved:
            if isinstance(node, Apply) and id(node) not in self.done:
                self._viewed.add(id(node))
                arguments = tuple(self._push(a, shape, change, moved) for a in node.arguments)
                moved[id(node)] = self._applied(node.operation, arguments, node.dtype, node.output,
                                                node.reports, node)  # fmt: skip
            elif node.shape == shape and (turned := self._turned(node, change)) is not None:
                moved[id(node)] = turned
            else:

                def full(array: np.ndarray) -> np.ndarray:
                    return change(np.broadcast_to(array, shape))

                moved[id(node)] = self.leaf_view(self.register(node), full)
        return moved[id(node)]

    def _turned(self, node: Node, change: Callable[[np.ndarray], np.ndarray]) -> Node | None:
        """Return what is gathered of an array whose axes are in another order; None if not that."""
        if not isinstance(node, Gather) or id(node) in self.done:
            return None
        order = _permutation(node.shape, change)
        if not order:
            return None
        source = self.leaf_view(node.register, partial(np.transpose, axes=order))
        return self.gather(source, node.labels, order.index(node.axis))

    def is_still(self, value: Value, size: int) -> bool:
        """Return whether NumPy's loop over `size` elements reads one and the same of an operand."""
        if not isinstance(value, Node) or not value.shape:
            return True
        still = isinstance(value, Leaf) and not any(self.contents[value.register].strides)
        return still or math.prod(value.shape) == 1 < size

    def has_windows(self, node: Node) -> bool:
        """Return whether a node is an array that shows elements several times, as windows do."""
        if not isinstance(node, Leaf):
            return False
        array = self.contents[node.register]
        steps = [s for n, s in zip(array.shape, array.strides, strict=True) if s and n > 1]
        return len(set(steps)) < len(steps)

    # What is noted ----------------------------------------------------------------------

    def escaped(self, reason: Reason) -> None:
        """Note that a value left the recording, so that a plan would not repeat it."""
        self.escape = self.escape or reason

    def stop(self, reason: Reason) -> NoReturn:
        """End the recording: the program is to run on real arrays."""
        error = UnrecordableError(reason)
        self.stopped = self.stopped or error
        raise error

    def failed(self, error: Exception) -> None:
        """Note an error that a lazy chunk raised, which the program may catch."""
        self.stopped = self.stopped or error

    def broke(self, operation: str, reason: Reason) -> None:
        """Note a call that was handed over unfused.

        Where the program ignores warnings, it has to run as it is: the plan would show them.
        """
        if silent():
            self.stop(reason.told(f"{operation} where warnings are ignored: {reason}"))
        self.breaks.append((operation, reason))

    def own_numbers(self) -> np.errstate:
        """Return a context for the program, in which errors of its numbers are noted.

        They are computed while it is recorded and not by the plan; NumPy reports them for each run.
        """
        return collecting(heeded(), self._note)

    def _note(self, errors: int) -> None:
        self.errors |= errors

    def plan(self, arrays: tuple[tuple[int, int], ...], result: Any) -> Plan:
        """Return the plan that repeats what was recorded."""
        kept = used_registers(result)
        constants = tuple(self._constants)
        steps = unjoined.arranged(list(self.steps), kept, self.contents, self.apart)
        dying = last_uses(map(tiles.touched, steps), kept)
        running = tiles.arranged(steps, dying, self.contents, self.apart)
        ends = last_uses(map(tiles.touched, running), kept)
        launches = [isinstance(step, Launch | tiles.TiledLaunches) for step in running]
        stages = tuple(zip(running, launches, ends, strict=True))
        for step in steps:
            if isinstance(step, Launch) and step.device.can.streams:
                why = not_streamed(step.kernel.kernel.outputs, step.loops, step.outputs)
                self.apart += [("stream", why)] if why is not None else []
        return Plan(steps, len(self.contents), arrays, result, constants, dying, stages,
                    errors=self.errors, warned=tuple(self.warned),
                    branches=bool(self.answers))  # fmt: skip

    def check_thread(self) -> None:
        """Raise if a lazy chunk is used outside the thread that records it."""
        if threading.get_ident() != self._owner:
            raise RuntimeError("a lazy chunk of gpusched was used in another thread than its own")


def _reduced_shape(node: Node, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    kept = enumerate(node.shape)
    return tuple(1 if k in axes else n for k, n in kept if keepdims or k not in axes)


def _call(node: Node) -> object:
    """Return what the results of one operation on the same operands have in common."""
    if isinstance(node, Apply):
        return node.operation, *map(id, node.arguments)
    return id(node)


def error_state() -> tuple[object, ...]:
    """Return what `numpy.errstate` says here of each kind of floating-point error.

    And whether the program ignores warnings.
    """
    return (*np.geterr().values(), silent())


def _may_show(value: Any) -> bool:
    """Return whether a value may be, or hold, a view of a chunk, through which one could change it.

    Arrays of dtypes that no chunk here has are new ones, as are the results of ufuncs.
    """
    if isinstance(value, np.ndarray):
        return value.dtype in SUPPORTED or value.dtype.hasobject
    return not isinstance(value, bool | int | float | complex | str | np.generic | type(None))


def copied(array: Any) -> Any:
    """Return a copy of an array, in C order."""
    return array.copy()


def _permutation(shape: tuple[int, ...], change: Callable[[np.ndarray], np.ndarray]) -> list[int]:
    """Return which axis each axis of a view was; none if the view is not a permutation of axes."""
    shown = np.zeros(shape, np.int8)
    view = change(shown)
    axes, moved = (list(zip(a.shape, a.strides, strict=True)) for a in (shown, view))
    begins = view.base is shown and view.ctypes.data == shown.ctypes.data
    if not begins or sorted(axes) != sorted(moved):
        return []
    order = []
    for each in moved:  # Of axes of one element, some are alike.
        order.append(axes.index(each))
        axes[order[-1]] = (-1, -1)
    return order


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))


def _check(operation: Operation, inputs: tuple[np.dtype, ...], operands: tuple[Value, ...]) -> None:
    """Raise `UnfusibleError` where the table cannot give NumPy's result."""
    kind_ = inputs[0].kind
    if operation.template(inputs[0]) is None:
        raise UnfusibleError(GraphBreak.DTYPE, f"dtype {inputs[0]}")
    if len({d.kind for d in inputs if d.kind in "iu"}) > 1 and operation.name != "where":
        raise UnfusibleError(GraphBreak.SIGNS, "signed and unsigned operands")
    if operation.name == "power" and kind_ == "i":
        exponent = operands[1]
        if not isinstance(exponent, int | np.integer) or exponent < 0:
            raise UnfusibleError(GraphBreak.SIGNS, "integer power whose exponent may be negative")


def _reduced_before(combine: str, node: Node, axes: tuple[int, ...]) -> Reduce | None:
    """Return a node that is the same reduction of these axes: dask reduces parts, then those."""
    if isinstance(node, Reduce) and node.keepdims:
        return node if (node.combine, node.axes) == (combine, axes) else None
    return None
