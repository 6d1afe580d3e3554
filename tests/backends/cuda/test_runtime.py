"""What the GPU runtime asks of CuPy and cuda.core, with stand-ins that note it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import dask
import numpy as np
import pytest

from gpusched.backends.cuda import runtime
from gpusched.backends.cuda.compiler import Compiled
from gpusched.emit.kernel import Access, Input, Kernel, Output
from gpusched.store.statistics import reset_statistics, statistics

UNIT, STILL = (Access.UNIT,), (Access.BROADCAST,)
SCALE = Kernel((Input("float32", UNIT),), ("float32",), (), (Output(0, "float32", UNIT),), ("map",))
SUM = Kernel((Input("float32", UNIT),), (), (), (Output(0, "float32", STILL, "add", "float32"),),
             ("reduce",))  # fmt: skip


class Fake:
    """Stands for CuPy and cuda.core."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.stream = 0
        self.address = 1 << 20

    def array(self, size: int, dtype: str) -> Any:
        self.address += 1 << 20
        return SimpleNamespace(data=SimpleNamespace(ptr=self.address), size=size, dtype=dtype)

    def cupy(self) -> ModuleType:
        module = ModuleType("cupy")
        device = MagicMock(id=0, compute_capability="100")
        stream = SimpleNamespace
        module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
            Device=lambda number=0: device,
            get_current_stream=lambda: stream(ptr=self.stream),
            runtime=SimpleNamespace(
                getDevice=lambda: 0, getDeviceProperties=lambda number: {"name": b"Fake 100"}
            ),
        )
        module.ndarray = self.array  # type: ignore[attr-defined]
        return module

    def core(self) -> ModuleType:
        module = ModuleType("cuda.core")
        module.LEGACY_DEFAULT_STREAM = "legacy"  # type: ignore[attr-defined]
        module.PER_THREAD_DEFAULT_STREAM = "per thread"  # type: ignore[attr-defined]
        module.LaunchConfig = lambda grid, block: (grid, block)  # type: ignore[attr-defined]
        module.Stream = SimpleNamespace(from_handle=lambda h: f"stream {h}")  # type: ignore[attr-defined]
        module.launch = lambda *a: self.calls.append(("launch", *a))  # type: ignore[attr-defined]
        code = SimpleNamespace(get_kernel=lambda name: f"loaded {name}")
        module.ObjectCode = SimpleNamespace(from_cubin=lambda cubin, name: code)  # type: ignore[attr-defined]
        return module

    def launches(self) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == "launch"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    found = Fake()
    monkeypatch.setitem(sys.modules, "cupy", found.cupy())
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", found.core())
    monkeypatch.setattr(runtime, "check_driver", lambda: None)
    runtime._core.cache_clear()
    monkeypatch.setattr(runtime, "_runtimes", {})
    monkeypatch.setattr(runtime, "_kernels", {})
    monkeypatch.setattr(
        runtime, "_build", lambda kernel, text, cc: Compiled(kernel.name, cc, b"\x7fELF")
    )
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        yield found
    runtime._core.cache_clear()


def test_launch_passes_pointers_constants_sizes_and_tiles(fake: Fake) -> None:
    a, out = fake.array(8200, "float32"), fake.array(8200, "float32")
    runtime.kernels().get(SCALE).call(a, out, np.float32(2), 8200)
    config = ((2, 1, 1), (256, 1, 1))
    addresses = (a.data.ptr, out.data.ptr)
    (found,) = fake.launches()
    assert found == ("legacy", config, f"loaded {SCALE.name}", *addresses, 2, 8200, 2, 1)
    assert type(found[5]) is np.float32


def test_unaligned_pointer_gets_no_tiles(fake: Fake) -> None:
    a, out = fake.array(8200, "float32"), fake.array(8200, "float32")
    a.data.ptr += 4
    runtime.kernels().get(SCALE).call(a, out, np.float32(2), 8200)
    (found,) = fake.launches()
    assert found[1] == ((33, 1, 1), (256, 1, 1))
    assert found[-2] == 0


def test_launch_goes_to_the_current_stream(fake: Fake) -> None:
    a = fake.array(8, "float32")
    for fake.stream in (0, 2, 4711):
        runtime.kernels().get(SCALE).call(a, a, np.float32(2), 8)
    assert [found[0] for found in fake.launches()] == ["legacy", "per thread", "stream 4711"]


def test_long_sum_joins_partial_results_in_a_second_launch(fake: Fake) -> None:
    a, out = fake.array(1 << 22, "float32"), fake.array(1, "float32")
    runtime.kernels().get(SUM).call(a, out, 1 << 22)
    first, second = fake.launches()
    splits = first[1][0][0]
    assert splits > 1
    assert first[3] == a.data.ptr
    assert second[3] == first[4], "the second reads what the first wrote"
    assert second[4:6] == (out.data.ptr, splits)


def test_kernel_is_compiled_for_this_device_once(fake: Fake) -> None:
    reset_statistics()
    assert runtime.kernels().get(SCALE) is runtime.kernels().get(SCALE)
    assert statistics().compilations == 1
    assert runtime._runtimes[0].cc == (10, 0)
