"""Finding GPUs; NVML is played by a small module, since there may be none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.workers import nvml, visible_gpus
from gpusched.workers.nvml import Card
from gpusched.workers.visible_gpus import (
    NoDeviceError,
    parse_request,
    select_devices,
    visible_devices,
)

UUIDS = ["GPU-aaaa1111-0", "GPU-aaaa2222-0", "GPU-bbbb3333-0"]

Machine = Callable[[Sequence[str] | None], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Give a function that sets which GPUs NVML reports; None for a machine without NVML."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(uuids: Sequence[str] | None) -> None:
        if uuids is None:
            monkeypatch.setitem(sys.modules, "pynvml", None)
            return
        nvml = ModuleType("pynvml")
        nvml.NVMLError = OSError
        nvml.nvmlInit = lambda: None
        nvml.nvmlShutdown = lambda: None
        nvml.nvmlDeviceGetCount = lambda: len(uuids)
        nvml.nvmlDeviceGetHandleByIndex = lambda index: index
        nvml.nvmlDeviceGetUUID = lambda index: uuids[index].encode()
        monkeypatch.setitem(sys.modules, "pynvml", nvml)

    return install


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,0", ["2", "0"]),
        (" 1 , 2 ", ["1", "2"]),
        ("0,3,1", ["0"]),
        ("0,-1,1", ["0"]),
        ("1,1", ["1"]),
        ("0,GPU-aaaa1111-0,2", ["0"]),
        ("GPU-aaaa1111,1,0", ["GPU-aaaa1111", "1"]),
        ("GPU-aaaa2222-0,0", ["GPU-aaaa2222-0", "0"]),
        ("GPU-bbbb", ["GPU-bbbb"]),
        ("GPU-aaaa", []),
        ("GPU-cccc", []),
        ("MIG-1234-5678", ["MIG-1234-5678"]),
    ],
)
def test_environment_variable_is_read_as_cuda_does(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, setting: str | None, expected: list[str]
) -> None:
    machine(UUIDS)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert visible_devices() == expected


def test_machine_without_driver_has_no_gpu(
    monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    machine(UUIDS)

    def fail() -> None:
        raise OSError("NVML shared library not found")

    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", fail)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert visible_devices() == []


def test_without_nvml_the_kernel_driver_is_asked(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, tmp_path: visible_gpus.Path
) -> None:
    machine(None)
    monkeypatch.setattr(visible_gpus, "_DRIVER_FOLDER", tmp_path / "gpus")
    assert visible_devices() == []
    for name in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert visible_devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa1111-0,1,7")
    assert visible_devices() == ["GPU-aaaa1111-0", "1"]


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be a machine of two GPUs, of which the second is in MIG mode and in two parts."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards = [Card("GPU-aaaa"), Card("GPU-bbbb", True, ("MIG-1111", "MIG-2222"))]
    monkeypatch.setattr(nvml, "cards", lambda: cards)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, ["0", "MIG-1111", "MIG-2222"]),
        ("1", ["MIG-1111", "MIG-2222"]),
        ("GPU-bbbb,0", ["MIG-1111", "MIG-2222", "0"]),
        ("MIG-2222,1", ["MIG-2222", "MIG-1111"]),
        ("MIG-2,0", ["MIG-2222", "0"]),
    ],
)
@pytest.mark.usefixtures("divided")
def test_parts_stand_for_a_gpu_that_is_divided(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, expected: list[str]
) -> None:
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert visible_devices() == expected


@pytest.mark.usefixtures("divided")
def test_parts_are_asked_for_like_gpus() -> None:
    visible = visible_devices()
    assert select_devices("MIG-2222,GPU-a", visible) == ["MIG-2222", "0"]
    assert select_devices("MIG-1,MIG-1", visible) == ["MIG-1111", "MIG-1111"]
    assert select_devices([2, 1], visible) == ["MIG-2222", "MIG-1111"]
    with pytest.raises(NoDeviceError, match=r"GPU-bbbb; there are 3 \(position 0 is 0, position 1"):
        select_devices("GPU-bbbb,", visible)
    with pytest.raises(ValueError, match="MIG- may be any of MIG-1111, MIG-2222"):
        select_devices(["MIG-"], visible)


@pytest.mark.parametrize(
    ("text", "request_"),
    [("all", "all"), ("3", 3), ("0,2", [0, 2]), ("1,", [1]), (" 2 ", 2), ("0, 1", [0, 1])],
)
def test_request_as_typed(text: str, request_: object) -> None:
    assert parse_request(text) == request_


@pytest.mark.parametrize("text", ["", "x", "0,0,x", "-1", "1.5", ",", ",1", "0;1", "0,,1"])
def test_request_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        parse_request(text)


@pytest.mark.parametrize("request_", [0, [], [0, 0, 1], [-1, 0], "0,0,1", "0,1,1"])
def test_request_that_makes_no_sense(request_: int | list[int] | str) -> None:
    with pytest.raises(ValueError, match=r"at least one GPU|name each once|cannot be negative"):
        select_devices(request_, ["0", "1"])


@pytest.mark.parametrize("request_", [3, [0, 2], "all", "1,2"])
def test_missing_device_is_told(monkeypatch: pytest.MonkeyPatch, request_: int | str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoDeviceError, match="CUDA_VISIBLE_DEVICES is ''"):
        select_devices(request_, [] if request_ == "all" else ["0"])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("0,0,1,1", ["0", "0", "1", "1"]),
        ("1,1,", ["1", "1"]),
        ("GPU-bbbb", ["2"]),
        ("GPU-aaaa2222-0,0", ["1", "0"]),
        (["GPU-aaaa1111-0", 0], ["0", "0"]),
    ],
)
def test_devices_by_uuid_and_several_workers_on_one(
    machine: Machine, request_: str | list[int | str], expected: list[str]
) -> None:
    machine(UUIDS)
    assert select_devices(request_, visible_devices()) == expected


def test_same_device_under_two_names_is_seen(machine: Machine) -> None:
    machine(UUIDS)
    with pytest.raises(ValueError, match="GPU 0 is named 2 times in 0,GPU-aaaa1111,1"):
        select_devices([0, "GPU-aaaa1111", 1], visible_devices())


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ([0, 3, 4], "no such GPU: 3, 4"),
        ("GPU-cccc,0", "no such GPU: GPU-cccc"),
        (5, "not so many GPUs: 5 were asked for"),
        (10**20, "not so many GPUs: 100000000000000000000 were asked for"),
    ],
)
def test_missing_devices_are_named(
    machine: Machine, request_: list[int] | str | int, named: str
) -> None:
    machine(UUIDS)
    with pytest.raises(NoDeviceError, match=f"{named}; there are 3 \\(0, 1, 2\\)"):
        select_devices(request_, visible_devices())


@pytest.mark.parametrize(("request_", "asked"), [("all", "all GPUs were"), (1, "1 GPU was")])
def test_request_without_any_device_is_named(request_: str | int, asked: str) -> None:
    with pytest.raises(NoDeviceError, match=f"^{asked} asked for; none was found "):
        select_devices(request_, [])


def test_positions_are_told_where_they_are_not_the_names() -> None:
    with pytest.raises(NoDeviceError, match=r"no such GPU: 2; .*position 0 is 2, position 1 is 3"):
        select_devices([2], ["2", "3"])


def test_text_in_a_list_is_read_as_on_the_command_line() -> None:
    assert select_devices(["1", "0"], ["3", "5"]) == select_devices("1,0", ["3", "5"])


@pytest.mark.parametrize("request_", [[1.5], ["first"], [None], [True], 1.5])
def test_name_that_cannot_be_read(request_: Any) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        select_devices(request_, ["0", "1"])


@pytest.mark.parametrize("visible", [[], ["0"], ["0", "1"]])
def test_contradiction_is_one_on_any_machine(visible: list[str]) -> None:
    with pytest.raises(ValueError, match="GPU 0 is named 2 times in 0,0,1 and others 1 times"):
        select_devices("0,0,1", visible)


@given(st.lists(st.integers(0, 99).map(str), unique=True, min_size=1), st.data())
def test_selection_is_by_position(visible: list[str], data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, len(visible) - 1), unique=True, min_size=1))
    assert select_devices(positions, visible) == [visible[position] for position in positions]
    assert select_devices(len(positions), visible) == visible[: len(positions)]
    assert select_devices("all", visible) == visible
