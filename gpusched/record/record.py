"""The recorder: NumPy calls on lazy chunks become expressions, and what cannot, a call."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, cast

import numpy as np

from gpusched.backends.buffer_pool import owner
from gpusched.backends.devices import HOST, Device
from gpusched.breaks import GraphBreak, Reason
from gpusched.emit.dtypes import SUPPORTED
from gpusched.emit.floatingpoint import collecting, enforced, heeded
from gpusched.emit.operations import conversion, reports
from gpusched.emit.policy import LEAST_FREED
from gpusched.plan import tiers, tiles, unjoined
from gpusched.plan.expression import (
    Apply,
    Constant,
    Leaf,
    Node,
    Reduce,
    Scalar,
    Table,
    UnfusibleError,
    UnrecordableError,
    broadcast_shapes,
    scalar,
)
from gpusched.plan.kernelbuilder import KernelBuilder, Part, not_streamed
from gpusched.plan.overrides import bounds
from gpusched.plan.plan import (
    Call,
    Empty,
    Launch,
    Plan,
    Register,
    Registers,
    Step,
    by_calls,
    is_named,
    kind,
    last_uses,
    of_items,
    substitute,
    touched,
    used_registers,
)
from gpusched.plan.schedule import Group, groups
from gpusched.record import parts
from gpusched.record.catalogue import has
from gpusched.record.postponed import FORMS, Postponed, early
from gpusched.record.views import Pieces, Views, gather_apart, owning
from gpusched.store.handles import Handle

if TYPE_CHECKING:
    from gpusched.record.steps import Calls

PYTHON_SCALARS = (bool, int, float)

ITEMS = 128
"""How many items of chunks a function may go through while it is recorded, in loops or by assigning
to positions: each is recorded on its own, which takes as long as computing hundreds."""

CALLS = 4096
"""How many calls of chunks a function of the user's may make while it is recorded: that takes some
100 us for each, and the plan keeps what comes of them."""

_OF_MEMORY = ("A", "K", "a", "k")
"""NumPy's names of such orders."""

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
    What is part of one concept only is in a file of its own, with the recorder's part of its state:
    steps that have not run (`postponed`), `views`, and `pieces` that were cut off before.
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
        """By register: an array, or what stands in for it (`gpusched.record.postponed`)."""
        self.chunks: list[Callable[[], Any]] = []
        """Weak references to its lazy chunks: NumPy has an array for each that there still is."""
        self.gone: set[int] = set()
        """Those, by identity, that nobody reads again, though their objects are still there."""
        self.given: set[int] = set()
        """Registers of the program's inputs."""
        self._constants: list[tuple[int, Any]] = []
        self.done: dict[int, int] = {}
        """By identity, nodes that have been computed, with their registers."""
        self._owner = threading.get_ident()
        self.steps: list[Step] = []
        self.postponed = Postponed(self.contents)
        """Those that have not run."""
        self.views = Views()
        self.pieces = Pieces()
        self.patient = True
        """Whether what is to run now may wait for a compiler."""
        self.missing: tuple[Handle, ...] = ()
        """Kernels that ended the recording, as they are not compiled."""
        self.repeatable = True
        """Whether the plan may run for these very inputs: no step that has run is seen outside."""
        self.in_parts: list[Node] = []
        """Nodes that are computed as parts of arrays, and by themselves have no register."""
        self.operations = 0
        self.escape: Reason | None = None
        """Why this run cannot be repeated from the plan, if it cannot."""
        self.answers: dict[int, bool] | None = None
        """By identity, nodes that the program has asked whether they are true, for what the plan
        holds (`gpusched.record.branches`); None where it is given values that no plan holds for."""
        self.exact = True
        """Whether kernels round as NumPy does."""
        self.closed = False
        """Whether what runs is a function of the user's that the plan is to do the same as: what it
        asks of a chunk, and is not known, ends the recording."""
        self.made = 0
        """How many calls of chunks such a function has made so far."""
        self.stopped: BaseException | None = None
        """What ended the recording, whoever has caught it since."""
        self.breaks: list[tuple[str, Reason]] = []
        self.apart: list[tuple[str, Reason]] = []
        """What the plan does not put together, and why."""
        self.errors = 0
        """Floating-point errors of numbers that the program computes besides its chunks."""
        self.items = 0
        """How many items of chunks the function has gone through that is recorded."""
        self.enforces = False
        """Whether `numpy.errstate` has more done than a warning given for errors of some calls."""
        self.warned: list[Warning] = []
        """What NumPy warns of whatever the values are, and no kernel does."""
        self.depth = 0
        """How many calls of chunks are being recorded, one within the other."""
        self.asked = 0, 0
        """How many calls functions of the user's have made, and the bytes that these would move."""
        self.lent: list[Any] = []
        """Chunks whose memory something shares since the outermost of these calls."""
        self.followed: Calls | None = None
        """What the function that is being recorded has called, if that is followed."""
        self.lanes: Any = None
        """What the lanes of a function have (`gpusched.record.lane.Fork`), while it is called
        for all lanes of a chunk at once."""
        self.spared = 0
        """How many functions have been called once that NumPy would call for each lane."""
        self.step = 0
        """Which call of the program is being recorded, by the register of its result."""
        self.made_by: dict[int, int] = {}
        """By identity of a node, the call of the program that it was recorded for."""

    # Nodes ------------------------------------------------------------------------------

    def nodes(self) -> Iterable[Node]:
        """Return all nodes, each after those that it is computed from."""
        return self._nodes.values()

    def recorded(self) -> list[Apply | Reduce]:
        """Return the operations that have been recorded."""
        return [node for node in self.nodes() if isinstance(node, Apply | Reduce)]

    def has_room(self, operations: int) -> bool:
        """Return whether so many operations can be recorded before any is computed."""
        return self.pending + operations <= self._limit

    def leaf(self, array: Any, scalar: bool = False) -> Leaf:
        """Return the node of an array that exists, in a new register.

        Parameters
        ----------
        scalar
            Whether NumPy gave it as a scalar.
        """
        self.contents.append(array)
        return self.leaf_in(len(self.contents) - 1, array.dtype, array.shape, scalar)

    def leaf_in(
        self, register: int, dtype: np.dtype, shape: tuple[int, ...], scalar: bool = False
    ) -> Leaf:
        """Return the node of the array that a register holds, or is to hold."""
        node = Leaf(dtype, shape, register, scalar)
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

    def known(self, node: Node) -> Any:
        """Return the array of a node that depends only on the inputs' kinds; None of others."""
        register = self.done.get(id(node))
        return next((array for k, array in self._constants if k == register), None)

    def heeded_errors(self, errors: int) -> int:
        """Return those of the errors of a kernel that `numpy.errstate` does not ignore here."""
        if errors and errors & enforced():
            if self.moved:
                self.stop(GraphBreak.NEEDS_HOST("numpy.errstate raises errors that no GPU reports"))
            self.enforces = True
        return errors and errors & heeded()

    def interned(self, key: Any, make: Callable[[], Node], like: Node | None = None) -> Node:
        """Return the one node that a key stands for.

        A new one is made, as one of the call that is being recorded or that has made `like`.
        """
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = make()
            self.made_by[id(found)] = self.step if like is None else self.made_by[id(like)]
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
        errors = self.heeded_errors(reports(name, arguments[0].dtype, dtype))
        return self.applied(name, arguments, dtype, output, errors)

    def applied(self, name: str, arguments: tuple[Node, ...], dtype: np.dtype, output: int,
                errors: int, like: Node | None = None) -> Node:  # fmt: skip
        """Do what `apply` does, where it is known which errors are reported; `like` as above."""
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

    # Execution --------------------------------------------------------------------------

    def flush(self, roots: list[Node]) -> None:
        """Compute `roots`, so that each has a register."""
        for root in roots:
            if isinstance(root, Scalar) and id(root) not in self.done:
                leaf = self.constant(np.asarray(root.value))
                self.done[id(root)] = leaf.register
        for root in roots:
            gather_apart(self, [root])
        for group in groups(roots, self.done, self.contents):
            self.compute(group)
        self.pending = 0

    def compute(self, group: Group) -> None:
        """Add the step that computes a group."""
        for node, target in zip(group.nodes, self.add_launch(group), strict=True):
            self.done[id(node)] = target

    def add_launch(self, group: Group, part: Part | None = None) -> list[int]:
        """Add the step that computes a group, and return the registers of its results."""
        builder = KernelBuilder(group, self.done, self.contents)
        if len(group.axes) < 2 and not group.scanned:
            read = [self.contents[k] for k in builder.registers]
            over = None if group.labels is not None else next(iter(group.reduced), None)
            builder.cut = unjoined.divided(self.steps, read, group.shape, over, self.contents)
        targets = [len(self.contents) + k for k in range(len(group.nodes))]
        step = self.launch(builder, targets, part)
        if isinstance(step, Launch):
            nodes = map(id, (*builder.order, *group.nodes))
            step.steps = tuple(sorted({self.made_by[n] for n in nodes if n in self.made_by}))
        self.contents += [None] * len(targets)
        self.steps.append(step)
        self.postponed.add(step)
        for output in step.outputs:
            self.contents[output.register] = output.stand_in(self.device)
        return targets

    def launch(self, builder: KernelBuilder, targets: list[int],
               part: Part | None = None) -> Launch | Empty:  # fmt: skip
        """Return the step that computes a group of nodes into `targets`, or as a part of one."""
        return builder.launch(targets, self.device, part)

    def demand(self) -> None:
        """Run what has been recorded and has not run, since values are needed now."""
        steps = self._runnable()
        self.repeatable &= not steps
        self.postponed.run(steps)

    def _runnable(self) -> list[Step]:
        """Return what is to run, with CuPy's calls where kernels are not compiled.

        Where there are none it waits for the compiler, or ends the recording.
        """
        steps = self.postponed.steps
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
            self.postponed.discard()
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

    def is_to_be_computed(self, node: Node) -> TypeGuard[Apply]:
        """Return whether a node is an operation whose result is not there yet."""
        return isinstance(node, Apply) and id(node) not in self.done

    def array(self, node: Node) -> Any:
        """Return the value of `node`."""
        register = self.register(node)
        self.demand()
        return self.contents[register]

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any,
             copies: bool = False) -> Any:  # fmt: skip
        """Call `function` on arrays that exist; return its results as nodes where they can be.

        Parameters
        ----------
        function
            What is called.
        args, kwargs
            With `Register` objects where a node's value goes.
        copies
            Whether it only moves elements, or shows them in another way: then it is called with
            what stands in for arrays, too, and once more when those are there; or not before
            that, if it is known what its result will be like (`gpusched.record.postponed`).
        """
        registers = self.contents
        if not copies:
            self._must_not_see(args, kwargs)
            self._must_be_portable(function)
            args, kwargs = owning(self, args), owning(self, kwargs)
        read = used_registers(args) | used_registers(kwargs)
        waits = self.postponed.writes(read)
        if not copies:
            # What it does not read may run later: the functions that are called change nothing.
            if waits:
                self.demand()
            self.repeatable, waits = False, False
        given = substitute(args, registers), substitute(kwargs, registers)
        form = FORMS.get(function) if copies else None
        with collecting(heeded()):
            found = None if form is None else form(*given[0], **given[1])
            if found is not None:
                waits = True
            else:
                found = self.result_of(function, *given)
        # A function of the user's may take these apart, and gives none back (`of_the_users`).
        named = self.closed and is_named(found)
        single = type(found) not in (list, tuple) and not named
        values = (found,) if single else tuple(found)
        if not all(self._is_array(v) for v in values):
            self._gave_others(function, values)
            return found
        scalars = [isinstance(v, np.generic) for v in values]
        arrays = [np.asarray(v) if scalar else v for v, scalar in zip(values, scalars, strict=True)]
        there = {id(owner(registers[k])) for k in read}
        if any(a.nbytes >= LEAST_FREED and id(owner(a)) not in there for a in arrays):
            self.compute_early()
        leaves = [self.leaf(*each) for each in zip(arrays, scalars, strict=True)]
        results = tuple(leaf.register for leaf in leaves)
        kinds = tuple(map(kind, arrays))
        step = Call(function, args, kwargs, results, single, kinds, heeded(), self.step)
        self.steps.append(step)
        if waits:
            self.postponed.add(step)
        return leaves[0] if single else of_items(found, leaves)

    def result_of(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return what a function gives of arrays."""
        return function(*args, **kwargs)

    def _must_not_see(self, args: Any, kwargs: Any) -> None:
        """Stop if what a function gives depends on how an array is in memory: in orders A and K.

        A piece of an array has gaps, and another order than what is computed of the piece alone.
        """
        if any(type(each) is str and each in _OF_MEMORY for each in (*args, *kwargs.values())):
            self.stop(GraphBreak.OPTION("the order in which a chunk is in memory"))

    def _must_be_portable(self, function: Callable[..., Any]) -> None:
        """Stop if a function is to be called on arrays that are copies of NumPy's on the device."""
        if self.moved and not has(function, "portable"):
            no_kernel = _name(function), GraphBreak.NO_KERNEL("no kernel")
            name, reason = self.breaks[-1] if self.breaks else no_kernel
            self.stop(reason.told(f"{name} needs NumPy arrays: {reason}"))

    def _gave_others(self, function: Callable[..., Any], values: tuple[Any, ...]) -> None:
        """Note that a function gave something else than arrays; stop if that may show one."""
        reason = GraphBreak.NOT_ARRAYS(f"{_name(function)} gave something else than arrays")
        if not isinstance(function, np.ufunc) and any(map(_may_show, values)):
            self.stop(reason)
        self.escaped(reason)

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

    def made_leaf(
        self, register: int, function: Callable[..., Any], *args: Any, copies: bool = False
    ) -> Leaf:
        """Return the node of what a function makes of what a register holds, see `call`."""
        found = self.call(function, (Register(register), *args), {}, copies)
        assert isinstance(found, Leaf)
        return found

    def derived(self, node: Node, function: Callable[..., Any], *args: Any) -> Leaf:
        """Return what a function makes of a node, registers and numbers; once for the same ones.

        Such are arrays for kernels to read: labels, lanes, tables.
        """
        register = self.register(node)
        # What stands in for labels that are still to be computed may be beyond all arrays.
        written = self.postponed.writes({register, *used_registers(args)})
        copies = function in FORMS or not written

        def make() -> Node:
            return self.made_leaf(register, function, *args, copies=copies)

        # -0.0 equals 0.0, and is another number.
        return cast(Leaf, self.interned(("derived", function, register, repr(args)), make))

    def table(self, leaf: Leaf) -> Table:
        """Return the node of an array of one axis that operations get as a whole."""

        def make() -> Node:
            self.done[id(found)] = leaf.register
            return found

        found = Table(leaf.dtype, (), leaf.register)
        return cast(Table, self.interned(("table", leaf.register), make))

    # What is noted ----------------------------------------------------------------------

    def escaped(self, reason: Reason) -> None:
        """Note that a value left the recording, so that a plan would not repeat it."""
        if self.closed:
            self.stop(GraphBreak.OWN_DECIDES(reason))
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
        """Note a call that was handed over unfused."""
        self.breaks.append((operation, reason))

    @property
    def is_spent(self) -> bool:
        """Whether the last function of the user's has done more than is recorded of one."""
        return self.made > CALLS or self.items > ITEMS

    def count(self) -> None:
        """Count a call that a function of the user's makes; stop where there are too many."""
        self.made += 1
        if self.made > CALLS:
            self.stop(GraphBreak.CHANGES("makes many calls of chunks"))

    def asks(self, *values: Any) -> None:
        """Count a call by what it is given and what it gives."""
        calls, nbytes = self.asked
        # Of a view that waits, what it is of: nothing has read it so far.
        held = [getattr(each, "held", each) for each in values]
        self.asked = calls + 1, nbytes + sum(getattr(each, "nbytes", 0) for each in held)

    def go_through(self, items: int) -> None:
        """Count items of chunks that the program goes through; stop where they are too many."""
        self.items += items
        if self.items > ITEMS:
            self.stop(GraphBreak.CHANGES("goes through many items of chunks"))

    def own_numbers(self) -> np.errstate:
        """Return a context for the program, in which errors of its numbers are noted.

        They are computed while it is recorded and not by the plan; NumPy reports them for each run.
        """
        return collecting(heeded(), self._note)

    def _note(self, errors: int) -> None:
        self.errors |= errors

    def plan(self, arrays: tuple[tuple[int, int], ...], result: Any) -> Plan:
        """Return the plan that repeats what was recorded.

        What need not be joined is not, and some kernels run tile by tile.
        """
        kept = used_registers(result)
        steps = unjoined.arranged(list(self.steps), kept, self.contents, self.apart)
        dying = last_uses(map(touched, steps), kept)
        running = tiles.arranged(steps, dying, self.contents, self.apart)
        ends = last_uses(map(tiles.touched_together, running), kept)
        launches = [isinstance(step, Launch | tiles.TiledLaunches) for step in running]
        for step in steps:
            if isinstance(step, Launch) and step.device.can.streams:
                why = not_streamed(step.kernel.kernel.outputs, step.loops, step.outputs)
                self.apart += [("stream", why)] if why is not None else []
        stages = tuple(zip(running, launches, ends, strict=True))
        return Plan(steps, len(self.contents), arrays, result, tuple(self._constants), stages,
                    errors=self.errors, warned=tuple(self.warned),
                    branches=bool(self.answers))  # fmt: skip

    def check_thread(self) -> None:
        """Raise if a lazy chunk is used outside the thread that records it."""
        if threading.get_ident() != self._owner:
            raise RuntimeError("a lazy chunk of gpusched was used in another thread than its own")


def _may_show(value: Any) -> bool:
    """Return whether a value may be, or hold, a view of a chunk, through which one could change it.

    Arrays of dtypes that no chunk here has are new ones, as are the results of ufuncs.
    """
    if isinstance(value, np.ndarray):
        return value.dtype in SUPPORTED or value.dtype.hasobject
    return not isinstance(value, bool | int | float | complex | str | np.generic | type(None))


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", getattr(function, "method", repr(function))))
