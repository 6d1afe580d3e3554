"""The check that a worker has its own GPU; the driver is played by a small class."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

import pytest

from gpusched.workers.pinning import WrongDeviceError, check

FIRST, SECOND = (str(uuid.UUID(int=number)) for number in (1, 2))


class Driver:
    """`libcuda` with some GPUs."""

    def __init__(self, *uuids: str, status: int = 0) -> None:
        self.uuids = uuids
        self.status = status

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self.uuids)
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        device._obj.value = number
        return 0

    def cuDeviceGetUuid_v2(self, raw: Any, device: Any) -> int:
        raw._obj[:] = uuid.UUID(self.uuids[device.value]).bytes
        return 0


@pytest.mark.parametrize("kind", ["GPU", "MIG"])
def test_right_device_is_accepted(kind: str) -> None:
    check(f"{kind}-{FIRST}", Driver(FIRST))


class OldDriver(Driver):
    """`libcuda` before 11.4, which lacks the second version of the question."""

    cuDeviceGetUuid_v2 = None  # type: ignore[assignment]

    def cuDeviceGetUuid(self, raw: Any, device: Any) -> int:
        return Driver.cuDeviceGetUuid_v2(self, raw, device)


def test_old_driver_is_asked_as_it_can_be() -> None:
    check(f"GPU-{FIRST}", OldDriver(FIRST))
    with pytest.raises(WrongDeviceError, match=f"sees GPU-{SECOND}"):
        check(f"GPU-{FIRST}", OldDriver(SECOND))


@pytest.mark.parametrize("seen", [(SECOND,), (FIRST, SECOND), ()])
def test_wrong_device_is_refused(monkeypatch: pytest.MonkeyPatch, seen: tuple[str, ...]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    with pytest.raises(WrongDeviceError) as caught:
        check(f"GPU-{FIRST}", Driver(*seen))
    for told in (f"GPU-{FIRST}", "CUDA_VISIBLE_DEVICES is '5'", *(seen or ["none"])):
        assert told in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "told"),
    [
        (Driver(FIRST, status=999), "cuInit says 999"),
        # What a CUDA_VISIBLE_DEVICES that names no GPU leads to.
        (Driver(FIRST, status=100), "sees none"),
    ],
)
def test_driver_that_shows_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, told: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(WrongDeviceError) as caught:
        check(f"GPU-{FIRST}", driver)
    for part in (told, f"GPU-{FIRST}", "CUDA_VISIBLE_DEVICES is '7'", "nvidia-smi"):
        assert part in str(caught.value)


def test_missing_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    with pytest.raises(WrongDeviceError, match=r"no NVIDIA driver .* libcuda\.so\.1"):
        check(f"GPU-{FIRST}")


@pytest.mark.parametrize("expected", ["", f"MIG-GPU-{FIRST}/1/0"])
def test_nothing_to_compare_with(expected: str) -> None:
    check(expected, Driver(SECOND))
