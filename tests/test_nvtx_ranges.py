"""Ranges for NVIDIA's profilers: around the call where one listens, nothing elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gpusched.nvtx_ranges import Kind, shown


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a listening profiler is given, with CuPy standing in for itself."""
    given: list[str] = []
    nvtx = SimpleNamespace(
        RangePushC=lambda text, color: given.append(f"{text} {color:08x}"),
        RangePop=lambda: given.append("end"),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(nvtx=nvtx)))
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "listener.so")
    return given


def test_a_range_is_around_the_call(ranges: list[str]) -> None:
    shown(Kind.KERNEL, lambda items, *rest: f"of {len(items)}")(list)([1, 2])
    assert ranges == ["gpusched kernel: of 2 ff76b900", "end"]


def test_a_range_ends_with_an_error(ranges: list[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        shown(Kind.SPILL, "to disk")(lambda x: 1 / x)(0)
    assert ranges == ["gpusched spill: to disk ffd55e00", "end"]


def test_without_a_gpu_there_are_none(ranges: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy")
    assert shown(Kind.SPILL, "to disk")(len)([1]) == 1
    assert not ranges


def test_functions_stay_as_they_are_where_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    assert shown(Kind.TRANSFER, "to the device")(len) is len
