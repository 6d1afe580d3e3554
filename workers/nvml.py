"""What NVIDIA's management library says of the GPUs: the one place that asks it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

_NO_PERMISSION = 4
"""NVML_ERROR_NO_PERMISSION."""
_NODE_WORDS = 16
"""64-bit words of a mask of NUMA nodes: Linux has 1024 of them at most."""


@dataclass(frozen=True)
class Card:
    """A GPU that this process may open."""

    uuid: str
    divided: bool = False
    """Whether it is in MIG mode, in which only its parts can compute."""
    parts: tuple[str, ...] = ()
    """The UUIDs of its parts (MIG)."""


@dataclass(frozen=True)
class GpuFacts:
    """What does not change about a GPU."""

    index: int
    """In NVML's order; of the whole card for a part of one (MIG)."""
    uuid: str
    name: str
    """The product's; empty where unknown."""
    memory_total: int
    """Bytes; of the part for a part. 0 where unknown."""
    cpus: tuple[int, ...]
    """The cores that are near it; empty where unknown."""
    numa_node: int | None
    """The host's memory that is nearest to it; None where unknown."""
    pci_bus_id: str
    """Empty where unknown."""


@dataclass(frozen=True)
class GpuSample:
    """How a GPU is doing; None where the card does not report."""

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
    """Give the module `pynvml`, ready to be asked, or None where there is no NVML."""
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


def cards() -> list[Card] | None:
    """Return the GPUs that this process may open, in NVML's order; None where there is no NVML."""
    with session() as library:
        if library is None:
            return None
        return [_describe(library, handle) for handle in _handles(library)]


def facts(entry: str) -> GpuFacts | None:
    """Return what is known of a GPU, or None where there is no NVML.

    Raises `UnknownDeviceError` if NVML knows no such GPU.

    Parameters
    ----------
    entry
        As in CUDA_VISIBLE_DEVICES: an index, a UUID or its beginning, also of a part (MIG).
    """
    with session() as library:
        if library is None:
            return None
        handle = _handle(library, entry)
        card = _card(library, handle)
        memory = _ask(library, "nvmlDeviceGetMemoryInfo", handle)
        place = _ask(library, "nvmlDeviceGetPciInfo", card)
        nodes = _ask(library, "nvmlDeviceGetMemoryAffinity", card, _NODE_WORDS, 0)
        cores = _ask(library, "nvmlDeviceGetCpuAffinity", card, _core_words())
        return GpuFacts(
            index=library.nvmlDeviceGetIndex(card),
            uuid=_uuid(library, handle),
            name=_text(_ask(library, "nvmlDeviceGetName", card) or ""),
            memory_total=0 if memory is None else int(memory.total),
            cpus=_bits(cores or ()),
            numa_node=next(iter(_bits(nodes or ())), None),
            pci_bus_id="" if place is None else _text(place.busId),
        )


def sample(uuid: str) -> GpuSample | None:
    """Return how a GPU is doing, or None where there is no NVML.

    Raises `UnknownDeviceError` if NVML knows no such GPU.
    """
    with session() as library:
        if library is None:
            return None
        handle = _handle(library, uuid)
        card = _card(library, handle)
        memory = _ask(library, "nvmlDeviceGetMemoryInfo", handle)
        rates = _ask(library, "nvmlDeviceGetUtilizationRates", card)
        power = _ask(library, "nvmlDeviceGetPowerUsage", card)
        return GpuSample(
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            utilization=None if rates is None else int(rates.gpu),
            # Sensor 0 is the chip's, NVML_TEMPERATURE_GPU.
            temperature=_ask(library, "nvmlDeviceGetTemperature", card, 0),
            power=None if power is None else power / 1000,
        )


def _handles(library: Any) -> list[Any]:
    """Return the cards that this process may open, which is how CUDA counts them too."""
    found = []
    for index in range(library.nvmlDeviceGetCount()):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            library.nvmlDeviceGetUUID(handle)
        except library.NVMLError as error:
            # Queueing systems hide other jobs' GPUs by NVML_ERROR_NO_PERMISSION, which is no news.
            if getattr(error, "value", None) != _NO_PERMISSION:
                logger.warning("GPU %d is left out, since NVML says: %s", index, error)
        else:
            found.append(handle)
    return found


def _describe(library: Any, handle: Any) -> Card:
    mode = _ask(library, "nvmlDeviceGetMigMode", handle)
    if not mode or not mode[0]:
        return Card(_uuid(library, handle))
    return Card(
        _uuid(library, handle),
        True,
        tuple(_uuid(library, part) for part in _parts(library, handle)),
    )


def _parts(library: Any, card: Any) -> list[Any]:
    count = _ask(library, "nvmlDeviceGetMaxMigDeviceCount", card) or 0
    found = [
        _ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", card, number)
        for number in range(count)
    ]
    return [part for part in found if part is not None]


def _handle(library: Any, entry: str) -> Any:
    exact = None
    if not entry.isdecimal():
        exact = _ask(library, "nvmlDeviceGetHandleByUUID", entry.encode())
    found = _matching(library, entry) if exact is None else [exact]
    if not found:
        raise UnknownDeviceError(f"NVML knows no GPU {entry}: `nvidia-smi -L` shows those it knows")
    if len(found) > 1:
        raise UnknownDeviceError(f"{len(found)} GPUs have a UUID that starts with {entry}")
    return found[0]


def _matching(library: Any, entry: str) -> list[Any]:
    handles = _handles(library)
    if entry.isdecimal():
        return handles[int(entry) : int(entry) + 1]
    parts = [part for card in handles for part in _parts(library, card)]
    return [each for each in [*handles, *parts] if _uuid(library, each).startswith(entry)]


def _card(library: Any, handle: Any) -> Any:
    """Return the card that a part belongs to, and a card itself."""
    card = _ask(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return handle if card is None else card


def _core_words() -> int:
    # More than the online ones, since a core keeps its number while others are offline.
    return -(-max(os.cpu_count() or 1, os.sysconf("SC_NPROCESSORS_CONF")) // 64)


def _bits(words: Iterable[int]) -> tuple[int, ...]:
    return tuple(
        64 * number + bit
        for number, word in enumerate(words)
        for bit in range(64)
        if word >> bit & 1
    )


def _ask(library: Any, name: str, *arguments: Any) -> Any:
    """Return an answer, or None: not every card reports all, nor does every version of NVML."""
    question = getattr(library, name, None)
    if question is None:
        return None
    try:
        return question(*arguments)
    except library.NVMLError:
        return None


def _uuid(library: Any, handle: Any) -> str:
    return _text(library.nvmlDeviceGetUUID(handle))


def _text(value: str | bytes) -> str:
    # Older versions of the module give bytes.
    return value.decode() if isinstance(value, bytes) else value
