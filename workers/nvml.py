"""What NVIDIA's management library says of the GPUs: the one place that asks it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GpuFacts:
    """What does not change about a GPU."""

    index: int
    """In NVML's order; of the whole card for a part of one (MIG)."""
    uuid: str
    name: str
    """The product's."""
    memory_total: int
    """Bytes."""
    cpus: tuple[int, ...]
    """The cores that are near it; empty where unknown."""
    pci_bus_id: str


@dataclass(frozen=True)
class GpuSample:
    """How a GPU is doing; None where the card does not tell."""

    memory_used: int | None
    """Bytes, of all processes."""
    memory_total: int | None
    """Bytes."""
    utilization: int | None
    """Per cent of the last interval in which a kernel ran."""
    temperature: int | None
    """Degrees Celsius."""
    power: float | None
    """Watts."""


class UnknownDeviceError(LookupError):
    """NVML knows no such GPU."""


@contextmanager
def session() -> Iterator[Any]:
    """Give the module `pynvml`, ready to be asked, or None where there is no NVML.

    Examples
    --------
    >>> from gpusched.workers import nvml
    >>> with nvml.session() as library:
    ...     library is None or library.nvmlDeviceGetCount() >= 0
    True
    """
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def facts(entry: str) -> GpuFacts | None:
    """Return what is known of a GPU, or None where there is no NVML.

    Parameters
    ----------
    entry
        As in CUDA_VISIBLE_DEVICES: an index, a UUID or its beginning, or the UUID of a part (MIG).

    Raises
    ------
    UnknownDeviceError
        If NVML knows no such GPU.
    """
    with session() as library:
        if library is None:
            return None
        handle = _handle(library, entry)
        card = _card(library, handle)
        return GpuFacts(
            index=library.nvmlDeviceGetIndex(card),
            uuid=text(library.nvmlDeviceGetUUID(handle)),
            name=text(library.nvmlDeviceGetName(card)),
            memory_total=int(library.nvmlDeviceGetMemoryInfo(handle).total),
            cpus=_cpus(library, card),
            pci_bus_id=text(library.nvmlDeviceGetPciInfo(card).busId),
        )


def sample(uuid: str) -> GpuSample | None:
    """Return how a GPU is doing, or None where there is no NVML.

    Raises
    ------
    UnknownDeviceError
        If NVML knows no such GPU.
    """
    with session() as library:
        if library is None:
            return None
        handle = _handle(library, uuid)
        card = _card(library, handle)
        memory = _ask(library, lambda: library.nvmlDeviceGetMemoryInfo(handle))
        rates = _ask(library, lambda: library.nvmlDeviceGetUtilizationRates(card))
        sensor = getattr(library, "NVML_TEMPERATURE_GPU", 0)
        power = _ask(library, lambda: library.nvmlDeviceGetPowerUsage(card))
        return GpuSample(
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            utilization=None if rates is None else int(rates.gpu),
            temperature=_ask(library, lambda: library.nvmlDeviceGetTemperature(card, sensor)),
            power=None if power is None else power / 1000,
        )


def _handle(library: Any, entry: str) -> Any:
    try:
        if entry.isdecimal():
            return library.nvmlDeviceGetHandleByIndex(int(entry))
        if not entry.startswith("GPU-"):
            return library.nvmlDeviceGetHandleByUUID(entry.encode())
        found = [
            handle
            for handle in map(
                library.nvmlDeviceGetHandleByIndex, range(library.nvmlDeviceGetCount())
            )
            if text(library.nvmlDeviceGetUUID(handle)).startswith(entry)
        ]
    except library.NVMLError as error:
        raise UnknownDeviceError(f"NVML knows no GPU {entry}: {error}") from error
    if len(found) != 1:
        raise UnknownDeviceError(f"{len(found)} GPUs have a UUID that starts with {entry}")
    return found[0]


def _card(library: Any, handle: Any) -> Any:
    """Return the card that a part belongs to, and a card itself."""
    try:
        return library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except (library.NVMLError, AttributeError):
        return handle


def _cpus(library: Any, card: Any) -> tuple[int, ...]:
    words = -(-(os.cpu_count() or 1) // 64)
    masks = _ask(library, lambda: library.nvmlDeviceGetCpuAffinity(card, words))
    if masks is None:
        return ()
    return tuple(
        64 * word + bit for word, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1
    )


def _ask(library: Any, question: Callable[[], Any]) -> Any:
    try:
        return question()
    except library.NVMLError:
        # Not every card has every sensor.
        return None


def text(value: str | bytes) -> str:
    """Return a name that NVML gives, which older versions of its module give as bytes."""
    return value.decode() if isinstance(value, bytes) else value
