"""Users' versions of kernels: what is taken, what is compared, and where they hold."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends.cache import kernels, reference
from gpusched.backends.cuda import simulator
from gpusched.cli.summary import summary
from gpusched.editing.checking import MismatchError
from gpusched.editing.samples import sample
from gpusched.emit.editions import EditionError, check_names
from gpusched.emit.kernel import EDITED
from gpusched.kernels.errors import KernelError
from gpusched.plan.overrides import OverrideError
from gpusched.tuning.overriding import UnknownKernelError
from tests.tiers import every, exhaustive
from tests.tuning.conftest import kernel_of

A = da.from_array(np.random.default_rng(1).random((6, 10)), chunks=(3, 5))
B = da.from_array(np.random.default_rng(2).random(10).astype("float32"), chunks=5)
PROGRAMS: dict[str, Callable[[], da.Array]] = {
    "flat": lambda: (A + 1) * 3,
    "broadcast": lambda: A * B + 2.7,
    "transposed": lambda: A.T * 2 + A.T.astype("float32"),
    "slices": lambda: A[:, ::-2] * 2 + A[::-1, ::2],
    "sum": lambda: ((A - B) ** 2).sum(),
    "sum of rows": lambda: (A * 2.5 - 1).sum(axis=0),
    "greatest of columns": lambda: (A * 2 + 1).max(axis=1),
    "product": lambda: (A + 0.5).prod(axis=0),
    "int": lambda: (A * 100).astype("int32") // 7 + 3,
    "uint8": lambda: (A * 100).astype("uint8") * 3,
    "bool": lambda: (A > 0.5) & (B < 0.3),
    "exp": lambda: np.exp(-A) * B,
    "any": lambda: ((A > 2) | (B > 3)).any(axis=0),
    "standard deviation": lambda: (A * 3).std(axis=1),
    "variance of columns": lambda: A.var(axis=0),
    "complex": lambda: (A + 1j) * (B - 2j),
    "complex product": lambda: (A + 1j).prod(axis=0),
}
NAMES = list(PROGRAMS)


@pytest.mark.parametrize("name", every(6, NAMES))
def test_unchanged_source_is_equal_in_every_kind_of_kernel(name: str) -> None:
    program = PROGRAMS[name]()
    expected = program.compute()
    for kernel in gpusched.explain(program).kernels:
        gpusched.reset_statistics()
        with gpusched.override(kernel, kernel.source) as mine:
            assert mine.check() > 100
            np.testing.assert_array_equal(program.compute(), expected)
        assert gpusched.statistics().edited_launches > 0
        assert mine.name.startswith(kernel.name + EDITED)


@pytest.mark.parametrize("name", ["broadcast", *exhaustive("sum", "int")])
@pytest.mark.skipif(find_spec("greenlet") is None, reason="the simulator's threads are greenlets")
def test_source_for_cuda_gives_its_functions_to_the_cpu(name: str) -> None:
    program = PROGRAMS[name]()
    kernel = gpusched.explain(program).kernels[0]
    point = kernel.cuda_source.replace("return ", "return 1 - ")
    loops = kernel.cuda_source.replace("thread_x()", "(thread_x() + 1)", 1)
    names = kernel.cuda_source.replace("block_x()", "no_block_x()", 1)
    for changed, told in (
        (point, "samples"),
        (loops, "expected"),
        (names, "'no_block_x' is not defined"),
    ):
        with pytest.raises((MismatchError, EditionError), match=told):
            gpusched.override(kernel, changed, target="cuda")
    with gpusched.override(kernel, kernel.cuda_source, target="cuda"):
        np.testing.assert_array_equal(
            gpusched.explain(program).kernels[0].cuda_source.strip(), kernel.cuda_source.strip()
        )
        assert program.compute().shape == program.shape


def test_function_runs_in_the_place_of_the_kernel(program: da.Array, numbers: np.ndarray) -> None:
    kernel = kernel_of(program)
    factor = 2.0

    def mine(a: float, s0: float) -> float:
        return (a + 1) * s0 * factor

    with gpusched.override(kernel, mine, check=False):
        np.testing.assert_array_equal(program.compute(), (numbers + 1) * 7 * 2)
    np.testing.assert_array_equal(program.compute(), (numbers + 1) * 7)


def test_point_alone_is_enough_whatever_its_loops_call() -> None:
    """Those of variances call functions that the whole source has, and this text has not."""
    program = A.var(axis=1)
    kernel = gpusched.explain(program).kernels[0]
    text = kernel.source
    for kept in ("def point(a):\n    return a, a, a, a\n", text[: text.index("def kernel")]):
        gpusched.reset_statistics()
        with gpusched.override(kernel, kept):
            np.testing.assert_allclose(program.compute(), A.compute().var(axis=1))
        assert gpusched.statistics().edited_launches > 0
    with pytest.raises(EditionError, match="a function deviation of their own"):
        gpusched.override(kernel, text[: text.index("def kernel")].replace("- mean", "+ mean"))


def test_gpus_count_what_variances_are_of() -> None:
    kernel = gpusched.explain(A.var(axis=1)).kernels[0]
    text = kernel.cuda_source
    check_names(text, "<kernel>", simulator.namespace())
    with pytest.raises(EditionError, match=r"on GPUs .* has one result more"):
        gpusched.override(kernel, text, target="cuda")


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        (r"point\((\w+)\[i\]", r"point(\1[i + 10**12]", "IndexError: .* not in the memory"),
        (r"(\w+)\[i\] =", r"\1[i + n0] =", "IndexError: .* not in the memory"),
        (r"out\[i\] =", "assert i < 0; out[i] =", "AssertionError"),
    ],
)
def test_what_loops_do_wrong_is_an_error_with_its_line(right: str, wrong: str, told: str) -> None:
    """Compiled, it may end the process."""
    kernel = kernel_of((B + 1) * 7)
    changed, count = re.subn(right, wrong, kernel.source)
    line = next(k for k, text in enumerate(changed.split("\n"), 1) if text not in kernel.source)
    assert count == 1
    with pytest.raises(EditionError, match=rf":{line}: {told}"):
        gpusched.override(kernel, changed)


def test_version_holds_however_chunks_lie_in_memory() -> None:
    whole = np.random.default_rng(3).random((9, 10))

    def program(array: np.ndarray) -> da.Array:
        return da.from_array(array, chunks=(4, 5)) * 1.5 - 1

    kernel = gpusched.explain(program(whole)).kernels[0]
    changed = kernel.source.replace("float64(1.0)", "float64(2.0)")
    for mine in (changed, lambda a, s0: a * s0 - 2):
        with gpusched.override(kernel, mine, check=False):
            for array in (whole, whole.T, whole[::-1], np.asfortranarray(whole), whole[:, 0]):
                chunks = (4, 5)[: array.ndim]
                found = (da.from_array(array, chunks=chunks) * 1.5 - 1).compute()
                np.testing.assert_array_equal(found, array * 1.5 - 2)


def test_reference_runs_the_version(program: da.Array) -> None:
    kernel = kernel_of(program)
    version = gpusched.override(kernel, lambda a, s0: (a + 1) * s0)
    try:
        made = version._make().version(kernel.kernel)
    finally:
        version.remove()
    given = sample(kernel.kernel, special=True, innermost=9)
    (expected,) = given.call(reference(kernel.kernel).call)
    for compiled in (reference(made), kernels.get(made)):
        np.testing.assert_array_equal(given.call(compiled.call)[0], expected)
    assert EDITED in kernels.get(made).name


def test_functions_take_the_place_in_reductions() -> None:
    program = (A * 2 + 1).sum(axis=1)
    kernel = gpusched.explain(program).kernels[0]
    with gpusched.override(kernel, lambda a: a + a + 1):
        np.testing.assert_allclose(program.compute(), (A.compute() * 2 + 1).sum(axis=1), 1e-14)
    assert gpusched.statistics().edited_launches > 0
    with pytest.raises(MismatchError, match=r"of \S+ samples. The first, for a = "):
        gpusched.override(kernel, lambda a: a + a + 2)


def test_mismatch_shows_inputs_expected_and_found(program: da.Array) -> None:
    with pytest.raises(MismatchError, match=r"for a = .*, s0 = .*: out is .*, expected ") as caught:
        gpusched.override(kernel_of(program), lambda a, s0: a * s0 + s0)
    assert "a tolerance of" in str(caught.value)
    assert "check=False" in str(caught.value)
    with gpusched.override(kernel_of(program), lambda a, s0: a * s0 + s0, tolerance=1e-9):
        pass


def test_special_values_are_compared(program: da.Array) -> None:
    with pytest.raises(MismatchError, match="a = nan"):
        gpusched.override(kernel_of(program), lambda a, s0: (a + 1) * s0 if a == a else 0.0)


def test_functions_of_math_are_compared_compiled_where_plain_python_raises() -> None:
    program = da.log(A) * 2
    with gpusched.override(kernel_of(program), lambda a: math.log(a) * 2, tolerance=1e-12):
        np.testing.assert_allclose(program.compute(), np.log(A.compute(scheduler="sync")) * 2)
    with pytest.raises(MismatchError):
        gpusched.override(kernel_of(program), lambda a: math.log(abs(a)) * 2, tolerance=1e-12)


def test_integers_are_compared_at_their_extremes() -> None:
    program = da.from_array(np.arange(10, dtype="int8"), chunks=5) + np.int8(5) - 1

    def saturating(a: int, s0: int) -> int:
        return min(a + s0 - 1, 127)

    with pytest.raises(MismatchError, match="out is 127, expected -"):
        gpusched.override(kernel_of(program), saturating)


@pytest.mark.parametrize(
    ("mine", "error", "told"),
    [
        (lambda a: a, EditionError, "takes 1 arguments; point of kernel .* takes 2: a: float64"),
        (lambda a, s0: "x", KernelError, "returns a number"),
        (3, TypeError, "not 3 of type int"),
        ("nowhere.py", FileNotFoundError, "is not a file"),
        ("def point(a, s0):\n    return (a\n", EditionError, "<your version>:2: "),
        ("x = 1\n", EditionError, "neither point nor kernel"),
        ("def point(a, s0):\n    return a + b\n", EditionError, ":2: name 'b' is not defined"),
        ("def point(a, s0):\n    return a.b\n", EditionError, ":2: your version .*'b'"),
        ("def point(a):\n    return a\n", EditionError, ":1: point takes 1 arguments"),
        ("def point(a, s0):\n    while True: pass\n\n\ndef kernel(a):\n    pass\n", EditionError,
         ":5: kernel takes 1 arguments"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(program: da.Array, mine: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        gpusched.override(kernel_of(program), mine)


def test_unknown_kernels(program: da.Array) -> None:
    name = kernel_of(program).name
    gpusched.override(name, lambda a, s0: (a + 1) * s0).remove()
    with pytest.raises(UnknownKernelError, match=f"{name}.*explain"):
        gpusched.override(name[:-1], lambda a: a)
    with pytest.raises(TypeError, match="not by 3 of type int"):
        gpusched.override(3, lambda a: a)
    with pytest.raises(ValueError, match="tolerance -1"):
        gpusched.override(name, lambda a, s0: a, tolerance=-1)
    with pytest.raises(ValueError, match="say 'cpu' or 'cuda'"):
        gpusched.override(name, lambda a, s0: a, target="gpu")


def test_versions_in_succession_never_mix(program: da.Array) -> None:
    kernel = kernel_of(program)
    original = program.compute()
    first = gpusched.override(kernel, lambda a, s0: 1.0, check=False)
    assert (program.compute() == 1).all()
    second = gpusched.override(kernel, lambda a, s0: 2.0, check=False)
    assert (program.compute() == 2).all()
    first.remove()
    assert (program.compute() == 2).all()
    second.remove()
    second.remove()
    np.testing.assert_array_equal(program.compute(), original)


def test_version_of_a_version_replaces_the_original(program: da.Array) -> None:
    with gpusched.override(kernel_of(program), lambda a, s0: 1.0, check=False) as first:
        again = kernel_of(program)
        assert again.edited == first.kernel.name
        with gpusched.override(again, lambda a, s0: 2.0, check=False):
            assert (program.compute() == 2).all()
        assert (program.compute() == 1).all()


def test_block_holds_for_its_own_thread(program: da.Array) -> None:
    kernel, expected = kernel_of(program), program.compute()
    meet = threading.Barrier(3)

    def run(value: float | None) -> None:
        if value is None:
            meet.wait()
            for _ in range(20):
                np.testing.assert_array_equal(program.compute(), expected)
            return
        version = gpusched.override(kernel, [lambda a, s0: 1.0, lambda a, s0: 2.0][int(value) - 1],
                                    check=False)  # fmt: skip
        with version:
            meet.wait()
            for _ in range(20):
                assert (program.compute() == value).all()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, [1.0, 2.0, None]))


def test_version_of_a_kernel_called_on_arrays(numbers: np.ndarray) -> None:
    @gpusched.kernel
    def cube(x: float) -> float:
        return x * x * x

    expected = cube(numbers)
    name = next(iter(gpusched.statistics().kernels))
    with gpusched.override(name, lambda a: 1.0, check=False):
        assert (cube(numbers) == 1).all()
    np.testing.assert_array_equal(cube(numbers), expected)


def test_explanations_and_summaries_say_so(program: da.Array) -> None:
    name = kernel_of(program).name
    assert kernel_of(program).edited is None
    with gpusched.override(name, lambda a, s0: (a + 1) * s0):
        found = gpusched.explain(program)
        program.compute()
    assert f"your version of {name}" in found.text(width=200)
    assert found.to_dict()["kernels"][0]["edited"] == name
    assert "your versions of kernels, launched 4 times" in summary(gpusched.statistics(), 1)


def test_version_that_does_not_compile_on_a_worker_stops_the_task(
    program: da.Array, tmp_path: Path
) -> None:
    mine = "def point(a, s0):\n    return a.nothing\n"
    with (
        dask.config.set({"gpusched.fusion.strict": False}),
        gpusched.override(kernel_of(program), mine, check=False),
        pytest.raises(OverrideError, match="cannot be compiled for cpu"),
    ):
        program.compute()


def test_fusion_off_runs_numpy(program: da.Array, numbers: np.ndarray) -> None:
    version = gpusched.override(kernel_of(program), lambda a, s0: 1.0, check=False)
    try:
        with gpusched.disable():
            np.testing.assert_array_equal(program.compute(), (numbers + 1) * 7)
    finally:
        version.remove()
