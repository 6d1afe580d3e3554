"""Sources show the user's names and lines, and still run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest

from gpusched import disable, explain
from gpusched.backends import python
from gpusched.emit import hostloops
from gpusched.graph.callsites import is_last, site_of
from gpusched.inspection.kernel_listings import ExplainedKernel

from .programs import PROGRAMS, numbers

FILE = __file__.rpartition("/")[2]


def line_of(function: Callable[..., Any], text: str) -> int:
    """Return the number of the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if text in line)


def slope(z: Any) -> Any:
    dx = (z[1:-1, 2:] - z[1:-1, :-2]) / 2
    dy = (z[2:, 1:-1] - z[:-2, 1:-1]) / 2
    steep = np.sqrt(dx * dx + dy * dy)
    return steep * 57.3


def built() -> Any:
    heights = da.from_array(np.random.default_rng(0).random((80, 60)), chunks=20)
    steepness = heights.map_overlap(slope, depth=1, boundary="reflect", trim=False, dtype=float)
    scaled = (steepness - 3.75) / (heights + 1)
    return scaled


@pytest.fixture
def kernel() -> ExplainedKernel:
    (found,) = explain(built()).kernels
    return found


def test_variables_are_the_users(kernel: ExplainedKernel) -> None:
    text = kernel.source
    for name in ("dx", "dy", "steep", "scaled"):
        assert f"    {name} = " in text
    assert text.count("def point(z, z2, z3, z4, heights, s0, s1):") == 1


def test_lines_are_the_users(kernel: ExplainedKernel) -> None:
    lines = {line.partition(" = ")[0].strip(): line for line in kernel.source.splitlines()}
    for name in ("dx", "dy", "steep"):
        assert lines[name].endswith(f"{FILE}:{line_of(slope, f'{name} = ')}")
    assert lines["scaled"].endswith(f"{FILE}:{line_of(built, 'scaled = ')}")
    assert {place.line for place in kernel.places} >= {line_of(slope, "dx ="),
                                                       line_of(built, "scaled =")}  # fmt: skip


def test_constants_and_types_are_told(kernel: ExplainedKernel) -> None:
    assert "#   s0: float64 57.3" in kernel.source
    assert "#   heights: float64 [strided, unit] 20x20" in kernel.source
    assert "# float64  sqrt  " in kernel.source


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_named_sources_do_what_the_plain_ones_do(build: Callable[[], Any]) -> None:
    for found in explain(build()).kernels:
        plain = python.compile_kernel(found.kernel, hostloops.source(found.kernel), "<plain>")
        named = python.compile_kernel(found.kernel, found.source, "<named>")
        launch, builder = found.use.launch, found.use.builder
        rng = np.random.default_rng(0)
        results = []
        inputs = [
            (rng.random(array.size) * 4).astype(array.dtype)
            for array in (builder.arrays[register] for register in builder.registers)
        ]
        strided = [np.concatenate([each] * 8) for each in inputs]
        for call in (plain, named):
            outputs = [output.allocate(launch.device) for output in launch.outputs]
            with np.errstate(all="ignore"):
                call(*strided, *(o.ravel() for o in outputs), *launch.numbers)
            results.append(outputs)
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)


def test_names_that_clash_get_numbers() -> None:
    def odd(kernel: Any, i: Any) -> Any:
        point = kernel + i
        point = point * 2
        a_0 = point - kernel
        return a_0 / 3

    x, y = numbers((40, 40), 20), numbers((40, 40), 20, seed=1)
    (found,) = explain(da.map_blocks(odd, x, y, dtype=float)).kernels
    compile(found.source, "<kernel>", "exec")
    assert "def point(kernel_, i_, s0):" in found.source or "def point(kernel_, i_)" in found.source
    assert "    point_ = kernel_ + i_" in found.source


@pytest.mark.parametrize("axis", [0, 1])
def test_places_in_an_array_are_named_after_it(axis: int) -> None:
    def total(image: Any, a: Any) -> Any:
        return ((image - a) * 2).sum(axis=axis, keepdims=True)

    x, y = numbers((40, 40), 20), numbers((40,), 20, seed=1)
    (found,) = explain(da.map_blocks(total, x, y, dtype=float)).kernels
    loops = found.source[found.source.index("def kernel(") :]
    assert "image_0_row3[i]" in loops if axis == 0 else "prefetch(image_block, image_ahead" in loops
    assert not re.search(r"\ba_(0|ahead|row)", loops)


def test_stages_have_the_variable_and_the_line() -> None:
    x = numbers((40, 40), 20)
    total = ((x + 1) * 2).sum(axis=0)
    found = explain(total)
    last = found.stages[-1]
    assert last.variable == "total"
    text = "total = ((x + 1) * 2).sum(axis=0)"
    assert {place.text for stage in found.stages for place in stage.places} == {text}


def test_call_sites_are_noted_only_while_fusion_is_on() -> None:
    with disable():
        before = da.ones(10, chunks=5) + 17
    after = da.ones(10, chunks=5) + 18
    assert site_of(before.name) is None
    assert site_of(after.name) is not None
    assert is_last(after.name)


def test_cuda_source_has_the_names_too(kernel: ExplainedKernel) -> None:
    assert "steep = sqrt(" in kernel.cuda_source
    compile(kernel.cuda_source, "<kernel>", "exec")


def test_llvm_of_the_cpu_is_shown() -> None:
    (found,) = explain((numbers((40, 40), 20) * 2 + 1) * 3).kernels
    assert "define " in found.llvm()
    assert "fmul" in found.llvm()


@pytest.mark.processes
@pytest.mark.parametrize("cc", [(8, 0), "sm_90", 100])
def test_machine_code_of_gpus_needs_no_gpu(cc: Any) -> None:
    pytest.importorskip("numba_cuda")
    (found,) = explain((numbers((40, 40), 20) * 2 + 1) * 3).kernels
    assert ".visible .entry" in found.ptx(cc)
    assert "define " in found.llvm(cc)
    sass = found.sass(cc)
    assert "DMUL" in sass or "DADD" in sass


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    (found,) = explain((numbers((40, 40), 20) * 2 + 1) * 3).kernels
    with pytest.raises(ImportError, match=r"\[cuda13\]"):
        found.ptx("sm_90")


def test_a_wrong_capability_is_refused() -> None:
    (found,) = explain((numbers((40, 40), 20) * 2 + 1) * 3).kernels
    with pytest.raises(ValueError, match="compute capability"):
        found.ptx("hopper")
