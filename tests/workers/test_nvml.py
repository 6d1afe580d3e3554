"""What NVML says, played by a small module since there may be no GPU."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpusched.workers import nvml
from gpusched.workers.nvml import Card, GpuFacts, GpuSample, UnknownDeviceError

UUIDS = ["GPU-aaaa1111", "GPU-aaaa2222"]
PART = "MIG-3333"


class NVMLError(Exception):
    def __init__(self, text: str, value: int = 999) -> None:
        super().__init__(text)
        self.value = value


class Library(ModuleType):
    """Two GPUs; the second is divided, and its whole tells neither power nor cores.

    `hidden` are GPUs that cannot be opened, and the number of NVML's error for it.
    """

    NVMLError = NVMLError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.open = 0
        self.hidden: dict[int, int] = {}

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise NVMLError("Invalid Argument")
        if index in self.hidden:
            raise NVMLError("It cannot be opened", self.hidden[index])
        return index

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if handle == 0:
            raise NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 7 if handle else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, number: int) -> str:
        if number != 2:
            raise NVMLError("Not Found")
        return PART

    def nvmlDeviceGetMemoryAffinity(self, handle: int, words: int, scope: int) -> list[int]:
        if handle:
            raise NVMLError("Not Supported")
        return [0b10] + [0] * (words - 1)

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        if uuid.decode() != PART:
            raise NVMLError("Not Found")
        return PART

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any) -> int:
        if handle != PART:
            raise NVMLError("Invalid Argument")
        return 1

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle

    def nvmlDeviceGetUUID(self, handle: Any) -> bytes:
        return (PART if handle == PART else UUIDS[handle]).encode()

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        return SimpleNamespace(total=10 if handle == PART else 80, used=4)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=b"0000:17:00.0")

    def nvmlDeviceGetCpuAffinity(self, handle: int, words: int) -> list[int]:
        if handle:
            raise NVMLError("Not Supported")
        return [0b1011, 0b1]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle:
            raise NVMLError("Not Supported")
        return 350_500


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


@pytest.mark.parametrize("entry", ["0", "GPU-aaaa1111", "GPU-aaaa1"])
def test_facts_of_a_card(library: Library, entry: str) -> None:
    expected = GpuFacts(0, UUIDS[0], "NVIDIA H200", 80, (0, 1, 3, 64), 1, "0000:17:00.0")
    assert nvml.facts(entry) == expected
    assert library.open == 0


def test_part_has_its_own_memory_and_its_cards_place(library: Library) -> None:
    expected = GpuFacts(1, PART, "NVIDIA H200", 10, (), None, "0000:17:00.0")
    assert nvml.facts(PART) == expected


@pytest.mark.parametrize("entry", ["MIG-33", PART])
def test_part_is_found_by_the_beginning_of_its_uuid(library: Library, entry: str) -> None:
    found = nvml.facts(entry)
    assert found is not None
    assert found.uuid == PART


def test_cards_and_their_parts(library: Library) -> None:
    assert nvml.cards() == [Card(UUIDS[0]), Card(UUIDS[1], True, (PART,))]
    assert library.open == 0


@pytest.mark.parametrize(("error", "told"), [(4, ""), (15, "GPU 0 is left out")])
def test_card_that_cannot_be_opened_is_left_out(
    library: Library, caplog: pytest.LogCaptureFixture, error: int, told: str
) -> None:
    library.hidden = {0: error}
    assert nvml.cards() == [Card(UUIDS[1], True, (PART,))]
    # As CUDA counts them.
    found = nvml.facts("0")
    assert found is not None
    assert found.uuid == UUIDS[1]
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)


def test_card_that_has_fallen_off_the_bus_is_left_out(
    library: Library, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tell = library.nvmlDeviceGetUUID

    def lost(handle: Any) -> bytes:
        if handle == 0:
            raise NVMLError("GPU is lost", 15)
        return tell(handle)

    monkeypatch.setattr(library, "nvmlDeviceGetUUID", lost)
    assert nvml.cards() == [Card(UUIDS[1], True, (PART,))]
    assert "GPU 0 is left out, since NVML says: GPU is lost" in caplog.text


def test_card_that_could_be_divided_and_is_not(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "nvmlDeviceGetMigMode", lambda handle: [0, 1])
    assert nvml.cards() == [Card(UUIDS[0]), Card(UUIDS[1])]


def test_card_that_tells_only_its_uuid(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise NVMLError("Not Supported")

    for name in ("MemoryInfo", "PciInfo", "Name", "CpuAffinity", "MemoryAffinity"):
        monkeypatch.setattr(library, f"nvmlDeviceGet{name}", fail)
    assert nvml.facts("0") == GpuFacts(0, UUIDS[0], "", 0, (), None, "")


@pytest.mark.parametrize("entry", ["2", "GPU-cccc", "GPU-aaaa", "MIG-4444"])
def test_unknown_device_is_named(library: Library, entry: str) -> None:
    with pytest.raises(UnknownDeviceError, match=entry):
        nvml.facts(entry)
    assert library.open == 0


def test_sample_leaves_out_what_a_card_does_not_tell(library: Library) -> None:
    assert nvml.sample(UUIDS[0]) == GpuSample(4, 80, 97, 61, 350.5)
    assert nvml.sample(PART) == GpuSample(4, 10, 97, 61, None)


@pytest.mark.parametrize("missing", ["module", "driver"])
def test_machine_without_nvml(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    library = Library()
    monkeypatch.setitem(sys.modules, "pynvml", None if missing == "module" else library)

    def fail() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setattr(library, "nvmlInit", fail)
    assert nvml.cards() is None
    assert nvml.facts("0") is None
    assert nvml.sample("0") is None
