"""A kernel with arguments to measure it on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpusched.backends.devices import HOST, Device, device_of
from gpusched.config import ChoiceError
from gpusched.editing.samples import labels, numbers
from gpusched.emit import generate
from gpusched.emit.kernel import Kernel
from gpusched.emit.operations import SEARCHED
from gpusched.inspection.kernel_listings import ExplainedKernel
from gpusched.inspection.tracing import TracingRecorder
from gpusched.plan.layout import Loops, passed
from gpusched.plan.plan import Launch, window
from gpusched.record.chunk import LazyChunk, lazies
from gpusched.record.record import PYTHON_SCALARS


@dataclass(frozen=True)
class Case:
    """A kernel's arguments, but for its outputs."""

    kernel: Kernel
    inputs: tuple[Any, ...]
    """One-dimensional, from the first element on."""
    constants: tuple[Any, ...]
    loops: Loops

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        """What the kernel is passed after its arrays."""
        return passed(self.kernel, self.constants, self.loops)

    def reach(self, operand: int) -> tuple[int, int]:
        """Return how many elements an operand has before its first, and from it on."""
        before, after = 0, 1
        for size, step in zip(self.loops.sizes, self.loops.strides[operand], strict=True):
            far = step * (size - 1)
            before, after = before + max(-far, 0), after + max(far, 0)
        return before, after

    def outputs(self, device: Device) -> list[Any]:
        """Return new outputs, as the kernel expects them."""
        found = []
        for number, output in enumerate(self.kernel.outputs):
            length = self.reach(len(self.kernel.inputs) + number)[1]
            dtype = np.dtype(output.dtype)
            if output.combine:
                initial = generate.identity_value(output.combine, dtype)
                found.append(device.full((length,), initial, dtype))
            else:
                found.append(device.empty((length,), dtype))
        return found


def explained_case(kernel: ExplainedKernel, sample: Sequence[Any] | None, device: Device) -> Case:
    """Return an explained kernel with arrays of its inputs' shapes.

    Raises `ChoiceError` if the sample is not as the kernel's inputs are.

    Parameters
    ----------
    kernel
        The kernel.
    sample
        Its inputs; random numbers if None.
    device
        Where it is measured.
    """
    launch = kernel.use.launch
    if sample is None:
        return random_case(kernel.kernel, launch, device)
    builder = kernel.use.builder
    wanted = [builder.arrays[register] for register in builder.registers]
    if len(sample) != len(wanted):
        raise ChoiceError(
            f"kernel {kernel.name} has {len(wanted)} inputs; {len(sample)} were given"
        )
    for number, (array, like) in enumerate(zip(sample, wanted, strict=True)):
        told = getattr(array, "dtype", None), getattr(array, "shape", None)
        if told != (like.dtype, like.shape) or array.strides != like.strides:
            raise ChoiceError(
                f"input {number} of kernel {kernel.name} is {like.dtype} of shape {like.shape} and "
                f"strides {like.strides}; the sample is {told[0]} of shape {told[1]}"
            )
    placed = [array if device_of(array) == device else device.take_in(array) for array in sample]
    return Case(kernel.kernel, tuple(map(window, placed)), launch.constants, launch.loops)


def random_case(kernel: Kernel, launch: Launch, device: Device) -> Case:
    """Return a kernel with random numbers as the inputs that a launch has."""
    random = np.random.default_rng(0)
    case = Case(kernel, (), launch.constants, launch.loops)
    inputs = []
    # Lengths of what operations get as a whole are among the constants.
    lengths = (int(c) for c in launch.constants if isinstance(c, np.integer))
    longest = max((1 << SEARCHED) - 1, *lengths) if kernel.tables else 0
    for number, each in enumerate(kernel.inputs):
        before, after = case.reach(number)
        size = before + after if number not in kernel.tables else longest
        values = numbers(random, size, each.dtype, special=False)
        if number == kernel.labels:
            values[:] = labels(size, kernel.segmented)
        elif kernel.tables and values.dtype == np.int64 and number not in kernel.tables:
            values[:] = 0  # They may be places in a table.
        if number in kernel.tables:
            values.sort()
        inputs.append((values if device.can.host_memory else device.take_in(values))[before:])
    return replace(case, inputs=tuple(inputs))


def function_cases(function: Any, sample: Sequence[Any]) -> Iterator[Case]:
    """Yield the kernels that a function of arrays runs."""
    devices = {d.name: d for d in map(device_of, sample) if d is not None}
    if len(devices) != 1:
        told = ", ".join(type(value).__name__ for value in sample)
        raise ChoiceError(f"the sample needs arrays of one device, and has {told or 'nothing'}")
    (device,) = devices.values()
    recorder = TracingRecorder(device)
    given = [
        value
        if type(value) in PYTHON_SCALARS or isinstance(value, np.generic)
        else LazyChunk(recorder, recorder.leaf(value))
        for value in sample
    ]
    recorder.flush(lazies(function(*given)))
    registers = recorder.registers()
    for _, launch in recorder.launches:
        yield launch_case(launch, registers)


def launch_case(launch: Launch, registers: list[Any]) -> Case:
    """Return a launch with the arrays that it has in a recording."""
    inputs = tuple(window(registers[k]) for k in launch.inputs)
    return Case(launch.kernel.kernel, inputs, launch.constants, launch.loops)


def device_for(target: str) -> Device:
    """Return where a target's kernels run.

    Raises `gpusched.backends.cuda.runtime.NoDeviceError` if there is no GPU.
    """
    if target == "cpu":
        return HOST
    from gpusched.backends.cuda.runtime import check_driver

    check_driver()
    from gpusched.backends.devices import cuda

    return cuda()
