"""What a recorded program does: a list of steps over registers, run again without recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from gpusched import events
from gpusched.backends.devices import Device
from gpusched.dataclass import dataclass
from gpusched.emit.floatingpoint import UNDERFLOW, UNSURE, collecting, note
from gpusched.plan import timing
from gpusched.plan.layout import Loops, passed
from gpusched.store.handles import Handle
from gpusched.store.statistics import Statistics

Registers = list[Any]
Kind = tuple[Any, ...]


def kind(array: Any) -> Kind:
    """Return what a plan depends on: an array's dtype, shape and strides."""
    return (type(array), array.dtype, array.shape, array.strides)


class ReplayError(Exception):
    """A step gave something else than when it was recorded, which the plan does not hold for."""


class OtherKindError(ReplayError):
    """A call returned arrays of another kind, such as another length: chunks' values decide it.

    Attributes
    ----------
    step
        The register of the result of the program's call that made it.
    """

    def __init__(self, told: str, step: int) -> None:
        super().__init__(told)
        self.step = step


class Step(Protocol):
    """One instruction of a plan."""

    def __call__(self, registers: Registers) -> None:
        """Run the step."""


Stage = tuple[Step, bool, tuple[int, ...]]
"""What runs at once, whether it launches kernels, and the registers that nobody reads later."""


@dataclass(frozen=True)
class Allocation:
    """How an output comes to be."""

    register: int
    """Where the result goes."""
    shape: tuple[int, ...]
    """Of the buffer, slowest axis first."""
    dtype: np.dtype
    """Of the buffer."""
    axes: tuple[int, ...] | None
    """Transposition from the buffer to the result; None if there is none."""
    result_shape: tuple[int, ...]
    """Of the result."""
    result_dtype: np.dtype
    """Of the result; narrower than `dtype` where that is an accumulator's."""
    initial: Any = None
    """What reductions start from."""
    reports: int = 0
    """Floating-point errors of the conversion that NumPy would report."""
    filled: bool = True
    """Whether the kernel finds `initial` in the buffer, rather than writes it by itself."""

    @cached_property
    def is_result(self) -> bool:
        """Return whether the buffer is the result as it is."""
        same = self.axes is None and self.shape == self.result_shape
        return same and self.dtype == self.result_dtype

    @property
    def is_filled(self) -> bool:
        """Return whether the kernel finds a number everywhere in the buffer."""
        return self.initial is not None and self.filled

    def allocate(self, device: Device) -> Any:
        """Return the buffer a kernel writes."""
        if not self.is_filled:
            return device.empty(self.shape, self.dtype)
        return device.full(self.shape, self.initial, self.dtype)

    def buffer(self, device: Device, registers: Registers) -> Any:
        """Return what a kernel writes: the array in the result's register, or a new buffer."""
        waiting = registers[self.register]
        if waiting is None:
            return self.allocate(device)
        if self.is_filled:
            np.copyto(waiting, self.initial, casting="unsafe")  # As `BufferPool.full`.
        return waiting

    def stand_in(self, device: Device) -> Any:
        """Return an uninitialised array of the result's shape, dtype and strides."""
        return self.shaped(device.empty(self.shape, self.result_dtype))

    def shaped(self, buffer: Any) -> Any:
        """Return what was accumulated in a buffer, in the shape of the result."""
        array = buffer if self.axes is None else buffer.transpose(self.axes)
        return array if array.shape == self.result_shape else array.reshape(self.result_shape)

    def finish(self, buffer: Any, registers: Registers) -> None:
        """Put the result that is in a buffer where it goes."""
        if self.dtype != self.result_dtype:
            # Before it has the result's axes, of which NumPy may lay out those of one element
            # in another way than `stand_in`.
            with collecting(self.reports):
                buffer = buffer.astype(self.result_dtype)
        registers[self.register] = self.shaped(buffer)


_FIRST = [(slice(0, 1),) * n for n in range(65)]


def window(array: Any) -> Any:
    """Return a one-dimensional array that starts at the first element; kernels index from there."""
    flags = array.flags
    if flags.c_contiguous:
        return array if array.ndim == 1 else array.ravel()
    return array.T.ravel() if flags.f_contiguous else array[_FIRST[array.ndim]].ravel()


@dataclass
class Launch:
    """One kernel call."""

    device: Device
    kernel: Handle
    inputs: tuple[int, ...]
    """Registers."""
    outputs: tuple[Allocation, ...]
    constants: tuple[Any, ...]
    """Numbers of the program that are not part of the kernel."""
    loops: Loops
    bytes_read: int
    bytes_written: int
    operations: int
    """Scalar operations per element."""
    steps: tuple[int, ...] = ()
    """Calls of the program that it does, by the registers of their results."""
    numbers: tuple[Any, ...] = field(init=False)
    """What the kernel is passed after its arrays."""

    def __post_init__(self) -> None:
        self.numbers = passed(self.kernel.kernel, self.constants, self.loops)

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.kernel.name

    def __call__(self, registers: Registers) -> None:
        """Run the kernel on newly allocated outputs."""
        # Loops rather than comprehensions, and one call less: this runs for every task.
        arguments: list[Any] = []
        flat = not self.device.can.addresses
        for k in self.inputs:
            arguments.append(window(registers[k]) if flat else registers[k])
        for output in self.outputs:
            buffer = registers[output.register] = output.buffer(self.device, registers)
            arguments.append(buffer.ravel() if flat and buffer.ndim != 1 else buffer)
        arguments += self.numbers
        errors = timing.call(self, arguments) if events.active else self.kernel.call(*arguments)
        if errors:
            note(_shown(errors, [registers[output.register] for output in self.outputs]))
        for output in self.outputs:
            if not output.is_result:
                output.finish(registers[output.register], registers)


def _shown(errors: int, results: list[Any]) -> int:
    """Return errors without those that only flags show which were raised for nothing.

    What overflows or is invalid in a sum or a product stays infinite, or becomes NaN.
    """
    unsure = errors >> UNSURE & ~UNDERFLOW
    if unsure and all(np.isfinite(each).all() for each in results):
        errors &= ~(unsure << UNSURE)
    return errors


@dataclass(kw_only=True)
class PartLaunch(Launch):
    """A launch that writes a part of its result, whose other parts other launches write."""

    index: tuple[slice, ...]
    """Which part."""
    whole: int | None
    """Register of the result with the parts before it; None for the first one, which allocates."""

    def __call__(self, registers: Registers) -> None:
        """Run the kernel on the part."""
        (output,) = self.outputs
        if self.whole is None:
            array = output.shaped(output.buffer(self.device, registers))
        else:
            array = registers[self.whole]
        registers[output.register] = array
        arguments = [window(registers[k]) for k in self.inputs]
        arguments += [window(array[self.index]), *self.numbers]
        errors = timing.call(self, arguments) if events.active else self.kernel.call(*arguments)
        if errors:
            note(errors)


@dataclass
class Empty:
    """Outputs with no elements, or that nothing is reduced to."""

    device: Device
    outputs: tuple[Allocation, ...]

    def __call__(self, registers: Registers) -> None:
        """Allocate the outputs, with the value that nothing is reduced to."""
        for output in self.outputs:
            output.finish(output.allocate(self.device), registers)


@dataclass
class Register:
    """A reference to a register inside a structure of arguments or results."""

    number: int
    item: Any = None
    """What of the value it stands for: None for the whole; of several results the number of one, or
    a slice, for some in a `Spread`; ``()`` for a 0-d array as a NumPy scalar, as NumPy's functions
    return it."""

    @property
    def scalar(self) -> bool:
        """Return whether it stands for a NumPy scalar."""
        return self.item == ()

    def fetch(self, registers: Registers) -> Any:
        """Return the value, or the item of it."""
        value = registers[self.number]
        return value if self.item is None else value[self.item]


class Spread(list[Any]):
    """A list in which a register with a slice stands for several items, one after the other."""

    def filled(self, registers: Registers) -> list[Any]:
        """Return the list with the values."""
        found: list[Any] = []
        for item in self:
            value = substitute(item, registers)
            several = type(item) is Register and type(item.item) is slice
            found.extend(value if several else [value])
        return found


def substitute(structure: Any, registers: Registers) -> Any:
    """Return `structure` with every register replaced by what it holds."""
    found = type(structure)
    if found is Register:
        return structure.fetch(registers)
    if found is list or found is tuple:
        # Most items are registers: a call less for each.
        return found([
            item.fetch(registers) if type(item) is Register else substitute(item, registers)
            for item in structure
        ])  # fmt: skip
    if found is dict:
        return {key: substitute(value, registers) for key, value in structure.items()}
    return structure.filled(registers) if found is Spread else structure


def is_open(structure: Any) -> bool:
    """Return whether `substitute` returns another object than `structure`.

    Examples
    --------
    >>> from gpusched.plan.plan import Register, is_open
    >>> is_open((1, "x")), is_open((1, Register(0))), is_open([1])
    (False, True, True)
    """
    if type(structure) is tuple:
        return any(map(is_open, structure))
    return type(structure) in (Register, Spread, list, dict)


@dataclass
class Call:
    """A function called on arrays that exist: a view, or something no kernel can do."""

    function: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    results: tuple[int, ...]
    """Registers of the results."""
    single: bool
    """Whether the function returns one array rather than a sequence of them."""
    kinds: tuple[Kind, ...]
    """What the results were when recorded."""
    heeded: int = 0
    """Floating-point errors that `numpy.errstate` did not ignore where it was recorded."""
    step: int = 0
    """The register of the result of the program's call that makes it."""
    is_view: bool = False
    """Whether it only shows an array in another way."""

    def __call__(self, registers: Registers) -> None:
        """Call the function; raise `OtherKindError` if its results are of another kind."""
        args, kwargs = substitute(self.args, registers), substitute(self.kwargs, registers)
        with nullcontext() if self.is_view else collecting(self.heeded):
            found = self.function(*args, **kwargs)
        values = (found,) if self.single else tuple(found)
        for register, value, expected in zip(self.results, values, self.kinds, strict=True):
            array = np.asarray(value) if isinstance(value, np.generic) else value
            if kind(array) != expected:
                told = f"{self.function} returned {kind(array)}, not {expected}"
                raise OtherKindError(told, self.step)
            registers[register] = array


@dataclass
class Plan:
    """The steps of one program for inputs of one kind.

    Notes
    -----
    Immutable once made but for `ready` and `unfused`, so that threads share it; each run has
    registers of its own.
    """

    steps: list[Step]
    size: int
    """Number of registers."""
    arrays: tuple[tuple[int, int], ...]
    """(input, register) for each input that is an array."""
    result: Any
    """Structure of the results, with registers in it."""
    constants: tuple[tuple[int, Any], ...] = ()
    """(register, array) for arrays that do not depend on the inputs' values."""
    stages: tuple[Stage, ...] = ()
    """What runs: the steps, some of them together."""
    errors: int = 0
    """Floating-point errors of numbers that were computed when it was recorded."""
    warned: tuple[Warning, ...] = ()
    """What NumPy warns of in each run, whatever the values are."""
    ready: bool = False
    """Whether all kernels are known to be compiled; it stays so."""
    unfused: Any = None
    """How whoever has recorded it does the same without kernels, if not by the functions alone."""
    branches: bool = False
    """Whether it holds for those inputs only for which functions go the same ways."""

    def synchronize(self) -> None:
        """Wait for the kernels of this thread, if others could use the results before them."""
        if self.launches:
            device = self.launches[0].device
            if events.active or not device.in_order():
                device.synchronize()
            if events.active:
                timing.resolve()

    @cached_property
    def dying(self) -> tuple[tuple[int, ...], ...]:
        """Per step, the registers nobody reads later."""
        return last_uses(map(touched, self.steps), used_registers(self.result))

    @cached_property
    def launches(self) -> list[Launch]:
        """The kernel calls among the steps."""
        return [step for step in self.steps if isinstance(step, Launch)]

    @cached_property
    def kernels(self) -> tuple[Handle, ...]:
        """What they call, each once."""
        return tuple({id(launch.kernel): launch.kernel for launch in self.launches}.values())

    @cached_property
    def by_calls(self) -> Plan | None:
        """The plan with calls of CuPy's for its kernels; None where there are none for one."""
        steps = by_calls([step for step, _, _ in self.stages])
        if steps is None:
            return None
        others = zip(steps, self.stages, strict=True)
        stages = tuple((step, launches, ends) for step, (_, launches, ends) in others)
        return replace(self, steps=steps, stages=stages)

    @cached_property
    def passes(self) -> int:
        """How many such calls there are, about."""
        return sum(max(launch.operations, 1) for launch in self.launches)

    @cached_property
    def names(self) -> list[str]:
        """The name of each of these calls."""
        return [launch.name for launch in self.launches]

    @cached_property
    def traffic(self) -> tuple[int, int]:
        """Bytes that its kernels read, and bytes that they write."""
        read = sum(launch.bytes_read for launch in self.launches)
        return read, sum(launch.bytes_written for launch in self.launches)

    def count(self, counters: Statistics, seconds: float) -> None:
        """Add one run, and the seconds spent in kernels, to some counters."""
        names = self.names
        read, written = self.traffic
        counters.launches += len(names)
        counters.kernel_seconds += seconds
        counters.bytes_read += read
        counters.bytes_written += written
        kernels = counters.kernels
        for name in names:
            kernels[name] += 1

    @cached_property
    def last_allocation(self) -> Allocation | None:
        """How the last result comes to be, if kernels write all of it and nothing but it."""
        last = self.result[-1]
        if type(last) is not Register or last.item is not None:
            return None
        number = last.number
        if number in used_registers(self.result[:-1]):
            return None
        for step in reversed(self.steps):
            if isinstance(step, PartLaunch) and number in written(step) and step.whole is not None:
                number = step.whole  # of which that register is another name
            elif isinstance(step, Launch) and number in written(step):
                (found,) = (each for each in step.outputs if each.register == number)
                return found if found.is_result and step.device.can.host_memory else None
        return None

    def run(self, inputs: tuple[Any, ...], into: Any = None) -> tuple[Any, float]:
        """Return the results, and the seconds spent in kernels.

        Parameters
        ----------
        inputs
            Of the program, made flat.
        into
            A contiguous array that the last result is written to, where kernels can do so; None for
            a new one.

        Raises
        ------
        ReplayError
            If it does not hold for these inputs, of which nothing has been changed.
        """
        registers: Registers = [None] * self.size
        output = None if into is None else self.last_allocation
        if output is not None and (into.shape, into.dtype) == (output.shape, output.dtype):
            registers[output.register] = into
        for number, register in self.arrays:
            registers[register] = inputs[number]
        for register, array in self.constants:
            registers[register] = array
        seconds = 0.0
        try:
            for step, launches, dying in self.stages:
                if launches:
                    started = time.perf_counter()
                    step(registers)
                    seconds += time.perf_counter() - started
                else:
                    step(registers)
                for register in dying:
                    registers[register] = None
        except Exception as error:
            # A step that another way does without may come before the answer that says so.
            if self.branches and not isinstance(error, MemoryError):
                raise ReplayError("a step failed for a chunk that may go another way") from error
            raise
        self.synchronize()
        return substitute(self.result, registers), seconds


def by_calls(steps: Iterable[Step]) -> list[Step] | None:
    """Return steps that compute the same by calls of CuPy's; None where one has none."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Launch):
            called = step.device.calls(step.kernel)
            if called is None:
                return None
            found.append(replace(step, kernel=called))
        else:
            found.append(step)
    return found


def changed(structure: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure of lists, tuples and dictionaries with each item in it changed.

    Examples
    --------
    >>> from gpusched.plan.plan import changed
    >>> changed([1, {"a": (2, 3)}], float)
    [1.0, {'a': (2.0, 3.0)}]
    """
    found = type(structure)
    if found is list or found is tuple:
        return found([changed(item, change) for item in structure])
    if found is dict:
        return {key: changed(value, change) for key, value in structure.items()}
    return change(structure)


def is_named(value: Any) -> bool:
    """Return whether a value is a tuple whose items have names, as `numpy.linalg.eigh` gives."""
    return isinstance(value, tuple) and hasattr(value, "_make")


def of_items(like: Any, found: list[Any]) -> Any:
    """Return a list, a tuple, or a tuple whose items have names, of other items.

    Examples
    --------
    >>> from gpusched.plan.plan import of_items
    >>> of_items((1, 2), [3, 4])
    (3, 4)
    """
    return like._make(found) if is_named(like) else type(like)(found)


def items(structure: Any) -> Iterator[Any]:
    """Yield each item in a structure of lists, tuples and dictionaries."""
    if type(structure) in (list, tuple, dict, Spread):
        for each in structure.values() if type(structure) is dict else structure:
            yield from items(each)
    else:
        yield structure


def used_registers(structure: Any) -> set[int]:
    """Return the registers a structure refers to."""
    return {each.number for each in items(structure) if type(each) is Register}


def reads(step: Step) -> set[int]:
    """Return the registers a step reads."""
    if isinstance(step, PartLaunch) and step.whole is not None:
        return {*step.inputs, step.whole}
    if isinstance(step, Launch):
        return set(step.inputs)
    if isinstance(step, Call):
        return used_registers(step.args) | used_registers(step.kwargs)
    return set()


def written(step: Step) -> set[int]:
    """Return the registers a step writes."""
    if isinstance(step, Launch | Empty):
        return {output.register for output in step.outputs}
    return set(step.results) if isinstance(step, Call) else set()


def touched(step: Step) -> set[int]:
    """Return the registers a step reads or writes: what nobody reads later is let go of then."""
    return reads(step) | written(step)


def last_uses(read: Iterable[set[int]], kept: set[int]) -> tuple[tuple[int, ...], ...]:
    """Return, per step, the registers whose last reader it is.

    Parameters
    ----------
    read
        The registers that each step reads, in the order of the steps.
    kept
        Those that are needed after the last one.

    Examples
    --------
    >>> from gpusched.plan.plan import last_uses
    >>> last_uses([{0, 1}, {1, 2}, {3}], kept={3})
    ((0,), (1, 2), ())
    """
    dying: list[tuple[int, ...]] = []
    later = set(kept)
    for registers in reversed(list(read)):
        now = registers - later
        dying.append(tuple(sorted(now)))
        later |= now
    return tuple(reversed(dying))
