"""Groups of nodes -> kernels and their launches: what each reads and writes, and in which loops."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpusched.backends.buffer_pool import owner
from gpusched.backends.devices import Device
from gpusched.breaks import GraphBreak, Reason
from gpusched.dataclass import dataclass
from gpusched.emit import generate
from gpusched.emit.dtypes import computed
from gpusched.emit.floatingpoint import IS_X86, OVERFLOW
from gpusched.emit.kernel import BY_LINES, FIRSTS, Access, Input, Kernel, Output, Statement
from gpusched.emit.operations import named
from gpusched.emit.policy import BLOCK, JOINED_ROWS, ROOM, STREAMED, WINDOW_ROWS
from gpusched.plan.expression import (
    Apply,
    Constant,
    Gather,
    Leaf,
    Node,
    Reduce,
    Scalar,
    Segments,
    Table,
    postorder,
)
from gpusched.plan.layout import (
    Loops,
    Strides,
    axis_order,
    element_strides,
    in_c_order,
    labels_outside,
    nest,
)
from gpusched.plan.plan import Allocation, Empty, Launch, PartLaunch, Registers
from gpusched.plan.schedule import Group, Materialised
from gpusched.plan.watching import chosen, watched


@dataclass(frozen=True)
class Part:
    """Where a launch writes, if that is a part of an array that several launches write."""

    array: Allocation
    """The array, for no register yet."""
    index: tuple[slice, ...]
    """Which part."""
    before: int | None
    """Register of the array with the parts before; None for the first part."""
    strides: Strides
    """In elements, from one of the part to the next along each axis."""


class KernelBuilder:
    """Turns a group into a kernel and its launch."""

    def __init__(self, group: Group, done: Materialised, arrays: Registers) -> None:
        self.group = group
        self.done = done
        self.arrays = arrays
        self.cut: Container[int] = ()
        """Axes along which parts may be computed apart."""
        self.registers: list[int] = []
        self.parameters: list[Scalar] = []
        self.names: dict[int, int | str] = {}
        self.order: list[Apply] = []
        self.labels = group.labels
        """What chooses results, or elements of arrays that are read."""
        self.label_axis = group.axes[0] if group.labels is not None else 0
        """The axis of the iteration space that these go along."""
        self.label_input: int | None = None
        """The number of the input that holds them."""
        self.gathered: dict[int, int] = {}
        """By the numbers of the inputs that are read where labels say: bytes that are read."""
        self.tables: set[int] = set()
        """The numbers of the inputs that operations get as a whole."""
        self._collect()

    def _roots(self) -> list[Node]:
        return [n.argument if isinstance(n, Reduce) else n for n in self.group.nodes]

    def _collect(self) -> None:
        """Give numbers to the values: inputs, then parameters, then statements."""
        leaves, scalars, self.order = self._walked()
        hoisted: dict[tuple[Any, ...], list[Node]] = defaultdict(list)
        choices = chosen(self.order)
        for node in scalars:
            text = None if id(node) in choices else baked(node)
            if text is None:
                hoisted[node.dtype, node.value.tobytes()].append(node)
            else:
                self.names[id(node)] = text
        for number, ((register, kind), nodes) in enumerate(leaves.items()):
            self.registers.append(register)
            self.names.update((id(node), number) for node in nodes)
            if kind is Gather:
                self.gathered[number] = nodes[0].nbytes
            self.tables |= {number} if kind is Table else set()
        if self.labels is not None:
            self.label_input = len(self.registers)
            self.registers.append(self.labels.register)
        for nodes in hoisted.values():
            assert isinstance(nodes[0], Scalar)
            number = len(self.registers) + len(self.parameters)
            self.parameters.append(nodes[0])
            self.names.update((id(node), number) for node in nodes)
        first = len(self.registers) + len(self.parameters)
        self.names.update((id(node), first + k) for k, node in enumerate(self.order))

    def _walked(self) -> tuple[dict[Any, list[Node]], list[Scalar], list[Apply]]:
        """Return what is read, by register and kind, the numbers, and the operations in order."""
        leaves: dict[tuple[int, type[Node]], list[Node]] = defaultdict(list)
        scalars: list[Scalar] = []
        order: list[Apply] = []
        for node in postorder(self._roots(), lambda node: self.register(node) is not None):
            register = self.register(node)
            if register is not None:
                leaves[register, Table if isinstance(node, Table) else Leaf].append(node)
            elif isinstance(node, Gather):
                leaves[node.register, Gather].append(node)
                self.labels = node.labels
                self.label_axis = len(self.group.shape) - node.ndim + node.axis
            elif isinstance(node, Scalar):
                scalars.append(node)
            else:
                assert isinstance(node, Apply)
                order.append(node)
        return leaves, scalars, order

    def register(self, node: Node) -> int | None:
        """Return the register that holds a node's values, or None."""
        if isinstance(node, Leaf):
            return node.register
        return self.done.get(id(node))

    def statements(self) -> tuple[Statement, ...]:
        """Return the kernel's statements, in order."""
        return tuple(
            Statement(
                node.operation,
                node.output,
                tuple(self.names[id(a)] for a in node.arguments),
                node.dtype.name,
                node.arguments[0].dtype.name,
            )
            for node in self.order
        )

    def strides(self, number: int) -> Strides:
        """Return an input's strides in elements over the iteration space."""
        array = self.arrays[self.registers[number]]
        if number == self.label_input:
            return tuple(int(axis == self.label_axis) for axis in range(len(self.group.shape)))
        if number in self.tables:
            return (0,) * len(self.group.shape)
        steps = element_strides(array)
        return (0,) * (len(self.group.shape) - len(steps)) + steps

    def place(self, number: int, element: tuple[int, ...]) -> tuple[int, ...]:
        """Return where an input is read for an element, as if it were of the iteration space."""
        if number not in self.gathered or self.labels is None:
            return element
        axis = self.label_axis
        label = int(self.arrays[self.labels.register][element[axis]])
        return (*element[:axis], label, *element[axis + 1 :])

    def part(self, number: int, where: tuple[slice, ...]) -> Any:
        """Return what an input shows to a part of the iteration space.

        Of an input that is read where labels say, that is all along the labels' axis.
        """
        array, shape, index = self.arrays[self.registers[number]], [*self.group.shape], [*where]
        if number in self.tables:
            return array
        axis = self.label_axis
        if number == self.label_input:
            array = array.reshape(-1, *[1] * (len(shape) - 1 - axis))
        elif number in self.gathered:
            shape[axis], index[axis] = array.shape[axis - len(shape)], slice(None)
        return np.broadcast_to(array, shape)[tuple(index)]

    def kept(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """Return the axes that are not reduced, in order."""
        return tuple(axis for axis in order if axis not in self.group.reduced)

    def launch(
        self, targets: list[int], device: Device, part: Part | None = None
    ) -> Launch | Empty:
        """Return the step that computes the group into `targets`, or as a part of the only one."""
        shape, axes = self.group.shape, self.group.axes
        inputs = [self.strides(number) for number in range(len(self.registers))]
        order = axis_order(shape, inputs, axes)
        if self.group.labels is not None:
            order = labels_outside(order, axes[0], shape, inputs)
        if any(isinstance(n, Reduce) and n.combine in FIRSTS for n in self.group.nodes):
            order = in_c_order(order, axes)
        kept = self.kept(order)
        written = _strides_in(order, [n if k in kept else 0 for k, n in enumerate(shape)])
        if self.group.labels is not None:
            written = self._labelled(written)
        outputs = [written if part is None else part.strides] * len(targets)
        if 0 in shape:
            return Empty(device, tuple(self.allocations(targets, kept, False)))
        labelled = (self.label_axis,) if self.labels is not None else ()
        loops = nest(shape, order, inputs + outputs, axes, self.cut, labelled)
        overlaps = self._reduces_windows(inputs)
        wide = loops.reduced[-1] or overlaps
        allocations = self.allocations(targets, kept, wide)
        windows = self._windows(loops) if device.can.windows else None
        if (device.can.begins and not labelled) or windows is not None:
            allocations = [replace(each, filled=False) for each in allocations]
        few = overlaps and windows is None and device.can.windows
        kernel = replace(
            self.kernel(loops, allocations, device),
            windows=windows,
            rows=_few_rows(loops) if few else None,
        )
        given = (
            device,
            device.compile(kernel),
            tuple(self.registers),
            tuple(allocations),
            tuple([computed(p.dtype).type(p.value) for p in self.parameters]),
            loops,
            self.bytes_read(),
            sum(math.prod(a.result_shape) * a.result_dtype.itemsize for a in allocations),
            len(kernel.statements) + len(targets) * bool(axes),
        )
        if part is None:
            return Launch(*given)
        found = PartLaunch(*given, index=part.index, whole=part.before)
        found.outputs = (replace(part.array, register=targets[0]),)
        return found

    def _labelled(self, written: Strides) -> Strides:
        """Return an output's strides with that from one label's results to the next one's."""
        steps = list(written)
        kept = (n for k, n in enumerate(self.group.shape) if k not in self.group.axes)
        steps[self.group.axes[0]] = math.prod(kept)
        return tuple(steps)

    def bytes_read(self) -> int:
        """Return the bytes of the inputs; views that overlap count what they show once."""
        owners: dict[int, tuple[int, int]] = {}
        for number, register in enumerate(self.registers):
            array = self.arrays[register]
            whole = owner(array)
            nbytes = _span(array) if whole is array else whole.nbytes
            shown, _ = owners.get(id(whole), (0, 0))
            more = self.gathered.get(number, array.size * array.itemsize)
            owners[id(whole)] = shown + more, nbytes
        return sum(min(shown, whole) for shown, whole in owners.values())

    def _reduces_windows(self, inputs: list[Strides]) -> bool:
        """Return whether overlapping windows are reduced: NumPy adds the elements of some by pairs.

        Parameters
        ----------
        inputs
            Elements to move per axis, by input.
        """
        reduced = self.group.axes
        return any(
            bool(steps[axis])
            and steps[axis] in (s for k, s in enumerate(steps) if k not in reduced)
            for steps in inputs
            for axis in reduced
        )

    def _windows(self, loops: Loops) -> int | None:
        """Return the loop along which windows slide, if loops reduce those: as in `Kernel`.

        What a window has of an input at a row is then what the next one has at the row before.
        """
        nodes = self.group.nodes
        joined = [n for n in nodes if isinstance(n, Reduce) and n.combine not in BY_LINES]
        if not self.group.reduced or self.labels is not None or len(joined) < len(nodes):
            return None
        if any(named(node.combine).function is not None for node in joined):
            return None
        count, rows = len(loops.sizes), loops.sizes[-2:-1]
        if sum(loops.reduced) != 1 or loops.reduced[-2:] != (True, False) or rows[0] < WINDOW_ROWS:
            return None
        inputs = loops.strides[: len(self.registers)]
        found = [loop for loop in (count - 3, count - 1)
                 if loop >= 0 and all(own[loop] == own[-2] for own in inputs)]  # fmt: skip
        if not found or (found[0] == count - 1 and rows[0] > ROOM // 2):
            return None
        return found[0]

    def allocations(
        self, targets: list[int], kept: tuple[int, ...], widened: bool
    ) -> list[Allocation]:
        """Return how each output is allocated and finished.

        Parameters
        ----------
        targets
            Their registers.
        kept
            The axes that are not reduced, in order.
        widened
            Whether sums of float32 are kept in float64.
        """
        shape = tuple(self.group.shape[axis] for axis in kept)
        if self.group.labels is not None:
            kept = (*self.group.axes, *kept)
            shape = (self.group.nodes[0].shape[kept[0]], *shape)
        natural = tuple(sorted(kept))
        axes = tuple(kept.index(axis) for axis in natural)
        transposed = axes if axes != tuple(range(len(axes))) else None
        found = []
        for node, register in zip(self.group.nodes, targets, strict=True):
            dtype, initial, errors = node.dtype, None, 0
            if isinstance(node, Reduce) and not self.group.scanned:
                errors, dtype = node.reports & OVERFLOW, computed(dtype)
                wide = widened or isinstance(node, Segments)
                if wide and node.combine == "add" and dtype == np.float32:
                    dtype = np.dtype(np.float64)
                initial = generate.identity_value(node.combine, dtype)
                if isinstance(node, Segments):
                    initial = node.initial
            found.append(
                Allocation(
                    register, shape, dtype, transposed, node.shape, node.dtype, initial, errors
                )
            )
        return found

    def kernel(self, loops: Loops, allocations: list[Allocation], device: Device) -> Kernel:
        """Return the kernel for loops that are known."""
        count = len(self.registers)
        inputs = tuple(
            Input(self.arrays[register].dtype.name, self._access(loops, k, k in self.gathered))
            for k, register in enumerate(self.registers)
        )
        scanned = self.group.scanned
        outputs = tuple(
            Output(
                self.names[id(root)],
                allocation.dtype.name,
                self._access(loops, count + k, self.group.labels is not None),
                node.combine if isinstance(node, Reduce) else None,
                (
                    computed(root.dtype) if isinstance(node, Reduce) and not scanned else root.dtype
                ).name,
            )
            for k, (node, root, allocation) in enumerate(
                zip(self.group.nodes, self._roots(), allocations, strict=True)
            )
        )
        parameters = tuple(computed(p.dtype).name for p in self.parameters)
        joined = "scan" if self.group.scanned else "reduce"
        kinds = tuple(joined if reduced else "map" for reduced in loops.reduced)
        found = Kernel(inputs, parameters, self.statements(), outputs, kinds,
                       labels=self.label_input)  # fmt: skip
        if device.can.errors:
            flags, tests = watched(self.group.nodes, self._roots(), self.order)
            found = replace(found, checked=bool(flags or tests), flags=flags, tests=tests)
        if not device.can.streams:
            return found
        streamed = not_streamed(outputs, loops, allocations) is None
        return replace(found, streamed=streamed)

    def _access(self, loops: Loops, operand: int, labelled: bool) -> tuple[Access, ...]:
        """Return how an operand moves in each loop; in that along the labels, as they say."""
        if operand in self.tables:
            return (Access.TABLE,) * len(loops.sizes)
        found = list(loops.access(operand))
        if labelled:
            assert self.label_input is not None
            found[loops.strides[self.label_input].index(1)] = Access.LABELLED
        return tuple(found)


def _few_rows(loops: Loops) -> int | None:
    """Return how many rows are joined; None where a kernel for any number of rows is as good."""
    rows = loops.sizes[-2] if loops.reduced[-2:] == (True, False) else 0
    return rows if 1 < rows < JOINED_ROWS else None


def _span(array: Any) -> int:
    """Return the bytes from an array's first element to its last: CuPy's windows have no base."""
    axes = zip(array.shape, array.strides, strict=True)
    return int(array.itemsize + sum((size - 1) * abs(stride) for size, stride in axes))


def _strides_in(order: tuple[int, ...], lengths: list[int]) -> Strides:
    """Return the strides of a contiguous buffer; a length of 0 stands for an axis it lacks."""
    strides = [0] * len(lengths)
    step = 1
    for axis in reversed(order):
        if lengths[axis]:
            strides[axis] = step if lengths[axis] > 1 else 0
            step *= lengths[axis]
    return tuple(strides)


def not_streamed(
    outputs: tuple[Output, ...], loops: Loops, allocations: Sequence[Allocation]
) -> Reason | None:
    """Return why a kernel on the host does not write its results past the caches; None if it does.

    Parameters
    ----------
    outputs, loops
        Of the kernel.
    allocations
        What it writes to.
    """
    if not IS_X86:
        return GraphBreak.NO_GAIN("a processor without such instructions")
    if sum(math.prod(a.shape) * a.dtype.itemsize for a in allocations) < STREAMED:
        return GraphBreak.NO_GAIN("results that stay in the cache")
    if any(o.combine is not None or o.access[-1] is not Access.UNIT for o in outputs):
        return GraphBreak.NO_GAIN("results that are joined, or whose elements are not side by side")
    return None if loops.sizes[-1] >= BLOCK else GraphBreak.SMALL("rows of less than a block")


_BAKED = frozenset([-2, -1, 0, 1, 2, 3, 4, 0.5, -0.5, 0.25])


def baked(node: Scalar) -> str | None:
    """Return a constant as source, or None if it is passed at launch.

    Small numbers show what a program does and let the compiler simplify; all others are passed,
    so that a loop that changes a constant does not compile a kernel each time round.
    """
    value = node.value.item()
    if isinstance(node, Constant):
        return generate.literal(value, node.dtype.name)
    if node.dtype.kind != "b" and value not in _BAKED:
        return None
    if value == 0 and node.dtype.kind == "f" and np.signbit(node.value):
        return None
    return generate.literal(value, node.dtype.name)
