"""Kernels' machine code, loaded without numba: its checks of arguments, and its end."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusched.backends import cpu, elf, native
from gpusched.emit import hostloops
from gpusched.emit.kernel import Access, Input, Kernel, Output, Statement

ONE = (Access.UNIT,)
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float32", "float64"]  # fmt: skip


def scaled(dtype: str) -> Kernel:
    """Return the kernel that multiplies an array with a number that is passed."""
    statement = Statement("multiply", 0, (0, 1), dtype, dtype)
    return Kernel((Input(dtype, ONE),), (dtype,), (statement,), (Output(2, dtype, ONE),), ("map",))


@cache
def code(dtype: str) -> bytes:
    kernel = scaled(dtype)
    made = cpu.compile_code(kernel, hostloops.source(kernel), "<a kernel>")
    assert made is not None
    return made


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_in_and_out(dtype: str) -> None:
    values = np.array([1, 0, 1, 1] if dtype == "bool" else [3, 0, 7, 1]).astype(dtype)
    for factor in (values[0], values[0].item()):
        found = np.empty_like(values)
        assert native.load(code(dtype)).call(values, found, factor, 4) == 0
        np.testing.assert_array_equal(found, values * values[0])


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("uint64", 2**64 - 1), ("int64", -(2**63)), ("int8", -128), ("uint8", 255),
     ("float32", 0.1), ("float64", -np.inf), ("float64", -1.0), ("int64", -1)],
)  # fmt: skip
def test_numbers_arrive_whole(dtype: str, number: Any) -> None:
    one, found = np.ones(1, dtype), np.empty(1, dtype)
    native.load(code(dtype)).call(one, found, number, 1)
    assert found[0] == np.dtype(dtype).type(number)


@pytest.mark.skipif(sys.byteorder != "little", reason="the order that is named is not its own")
def test_byte_order_may_be_named() -> None:
    dtype = np.dtype(">f8").newbyteorder()  # As zarr gives it.
    assert dtype.byteorder == "<"
    values, found = np.arange(3.0).astype(dtype), np.empty(3)
    native.load(code("float64")).call(values, found, 2.0, 3)
    assert found.tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("dtype", ["q", "l", "Q", "L"])
def test_both_of_c_s_names_of_a_dtype_are_known(dtype: str) -> None:
    values = np.arange(4).astype(dtype)
    found = np.empty_like(values)
    native.load(code(np.dtype(dtype).name)).call(values, found, 3, 4)
    np.testing.assert_array_equal(found, 3 * values)


def test_subclasses_of_arrays_and_any_address_are_taken() -> None:
    class Own(np.ndarray):
        pass

    unaligned = np.frombuffer(b"x" + np.arange(4.0).tobytes(), np.uint8)[1:].view("f8")
    for values in (np.arange(4.0).view(Own), unaligned):
        found = np.empty(4)
        native.load(code("float64")).call(values, found, 2.0, 4)
        np.testing.assert_array_equal(found, 2 * np.arange(4.0))


X, OUT = np.arange(4.0), np.zeros(4)
READ_ONLY = np.zeros(4)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), TypeError, "takes 4 arguments; 0 were given"),
        ((X, OUT, 2.0), TypeError, "takes 4 arguments; 3 were given"),
        ((X, OUT, 2.0, 4, 4), TypeError, "takes 4 arguments; 5 were given"),
        ((X.tolist(), OUT, 2.0, 4), TypeError, "argument 1 must be .* array of float64"),
        ((None, OUT, 2.0, 4), TypeError, "argument 1"),
        ((X.astype("f4"), OUT, 2.0, 4), TypeError, "argument 1"),
        ((X.astype("i8"), OUT, 2.0, 4), TypeError, "argument 1"),
        ((X.astype(">f8"), OUT, 2.0, 4), TypeError, "argument 1"),
        ((X[::2], OUT, 2.0, 4), TypeError, "argument 1"),
        ((X.reshape(2, 2), OUT, 2.0, 4), TypeError, "argument 1"),
        ((np.array(1.0), OUT, 2.0, 4), TypeError, "argument 1"),
        ((X, X[::2], 2.0, 4), TypeError, "argument 2"),
        ((X, READ_ONLY, 2.0, 4), TypeError, "argument 2"),
        ((X, OUT, "2", 4), TypeError, "real number"),
        ((X, OUT, None, 4), TypeError, "real number"),
        ((X, OUT, 2.0, 4.0), TypeError, "integer"),
        ((X, OUT, 2.0, 2**64), OverflowError, "too"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    kernel = native.load(code("float64"))
    with pytest.raises(error, match=message):
        kernel.call(*arguments)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("int8", 128), ("int8", -129), ("uint8", 256), ("uint8", -1), ("uint64", -1),
     ("uint64", 2**64), ("int32", 2**31), ("int64", 2**63)],
)  # fmt: skip
def test_numbers_beyond_a_dtype_are_refused(dtype: str, number: int) -> None:
    one = np.ones(1, dtype)
    with pytest.raises(OverflowError):
        native.load(code(dtype)).call(one, one.copy(), number, 1)


def test_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match="keyword"):
        native.load(code("float64")).call(X, OUT, 2.0, n0=4)


def test_machine_code_goes_with_what_calls_it() -> None:
    kernel = native.load(code("float64"))
    image = weakref.ref(kernel.call.__self__.image)  # type: ignore[attr-defined]
    call = kernel.call
    del kernel
    gc.collect()
    assert image() is not None
    call(X, OUT, 2.0, 4)
    del call
    gc.collect()
    assert image() is None


def test_threads_call_at_once_without_the_lock() -> None:
    kernel = native.load(code("float64"))
    threads = 8
    barrier = threading.Barrier(threads)

    def run(number: int) -> np.ndarray:
        values, found = np.full(10_000, float(number)), np.empty(10_000)
        barrier.wait()
        for _ in range(50):
            kernel.call(values, found, 3.0, values.size)
        return found

    with ThreadPoolExecutor(threads) as pool:
        for number, found in enumerate(pool.map(run, range(threads))):
            assert (found == 3.0 * number).all()


def test_what_a_kernel_must_not_call_is_not_found() -> None:
    for name in ("PyRun_SimpleString", "numba_unpickle", "NRT_Allocate", "no_such_function"):
        assert not native.is_known(name)


def test_code_that_was_cut_short_is_refused() -> None:
    whole = code("float64")
    for length in range(0, len(whole) - 1, 97):
        with pytest.raises(native.UnknownCodeError):
            native.load(whole[:length])


def test_places_outside_of_sections_are_refused() -> None:
    whole = code("float64")
    file = elf.parsed(whole)
    relocations = next(s for s in file.sections if s.kind == 4 and file.sections[s.target].loaded)
    start = whole.index(relocations.content)
    for place in (2**40, 2**64 - 4):
        with pytest.raises(native.UnknownCodeError):
            native.load(whole[:start] + struct.pack("<Q", place) + whole[start + 8 :])


def test_code_for_another_processor_is_refused() -> None:
    whole = bytearray(code("float64"))
    whole[18:20] = struct.pack("<H", 183)
    with pytest.raises(native.UnknownCodeError, match="x86-64"):
        native.load(bytes(whole))


def test_a_kernel_that_reads_objects_is_numba_s() -> None:
    kernel = replace(scaled("float64"), parameters=("int64",))
    statement = Statement("astype", 0, (0,), "float64", "float64")
    kernel = replace(kernel, statements=(statement,))
    text = (
        "def point(a, s0):\n    return (a, -a)[s0]\n"
        "def kernel(a, out, s0, n0):\n    for i in range(n0):\n        out[i] = point(a[i], s0)\n"
    )
    assert cpu.compile_code(kernel, text, "<raises>") is None
    call = cpu.compile_here(kernel, text, "<raises>")
    found = np.empty(4)
    call(X, found, 1, 4)
    np.testing.assert_array_equal(found, -X)
    with pytest.raises(IndexError):
        call(X, found, 2, 4)


@pytest.mark.processes
def test_a_process_that_finds_its_kernels_loads_no_other_library(tmp_path: Path) -> None:
    code = (
        # Where sparse is installed, dask imports it, and it numba.
        "import sys; sys.modules['sparse'] = None\n"
        "import dask, dask.array as da, numpy as np, gpusched\n"
        f"dask.config.set({{'gpusched.fusion.cache-directory': {str(tmp_path)!r}, "
        "'gpusched.fusion.compile': 'wait', 'scheduler': 'threads'})\n"
        "values = np.random.default_rng(1).random((3000, 500)).astype('f4')\n"
        "x = da.from_array(values, chunks=(1000, 500))\n"
        "with gpusched.disable():\n"
        "    x.sum().compute()\n"
        "before = set(sys.modules)\n"
        "def softmax(x):\n"
        "    powers = np.exp(x - x.max(axis=1, keepdims=True))\n"
        "    return powers / powers.sum(axis=1, keepdims=True)\n"
        "with gpusched.enable():\n"
        "    found = dask.compute(softmax(x), (x * 2 + 1).sum(axis=0), np.sqrt(x).mean(axis=1))\n"
        "    np.testing.assert_allclose(found[0], softmax(values), rtol=1e-5)\n"
        "made = gpusched.statistics()\n"
        "print(made.compilations, made.kernels_loaded, made.fused_tasks)\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*loaded.difference(sys.stdlib_module_names))\n"
    )
    root = Path(__file__).parents[2]
    told = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                       cwd=root).stdout.splitlines()
        for _ in range(2)
    ]  # fmt: skip
    (compiled, *_), (again, loaded, fused) = (first.split() for first, _ in told)
    assert int(compiled) >= 3 and int(again) == 0
    assert int(loaded) >= int(compiled) and int(fused) > 0
    assert set(told[1][1].split()) <= {"gpusched", "dask"}
