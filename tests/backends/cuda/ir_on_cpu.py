"""Test support: numba-cuda's own LLVM IR, compiled for this processor and run thread by thread.

It is the very IR that becomes the cubin, 16-byte accesses included.  Special registers become
global variables that are set before each call, libdevice becomes the C library, and a barrier
does nothing: only blocks of one thread may have barriers.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import binding

from gpusched.backends.cuda.compiler import Compiled
from gpusched.backends.cuda.geometry import Geometry
from gpusched.emit.skeleton.source_lines import POSITIONS

CTYPES = {"bool": ctypes.c_bool, "float32": ctypes.c_float, "float64": ctypes.c_double}
CTYPES |= {
    f"{u}int{n}": getattr(ctypes, f"c_{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)
}

_SREG = re.compile(r'declare i32 @"?llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.([xyz])"?\(\)')


def _portable(text: str) -> str:
    """Return one module's IR without what is NVIDIA's."""
    text = re.sub(r'^target (triple|datalayout) = ".*"$', "", text, flags=re.M)
    text = re.sub(r"^!nvvm.*$", "", text, flags=re.M)
    text = re.sub(r'^@"?llvm\.used"? = .*$', "", text, flags=re.M)
    text = re.sub(r"^!\d+ = !\{ (void|i32) \(.*$", "", text, flags=re.M)
    text = _SREG.sub(
        r'@"gpu.\1.\2" = external global i32\n'
        r'define internal i32 @"llvm_nvvm_\1_\2"() {\n'
        r'  %v = load i32, i32* @"gpu.\1.\2"\n  ret i32 %v\n}',
        text,
    )
    text = re.sub(r'@"?llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.([xyz])"?', r'@"llvm_nvvm_\1_\2"', text)
    text = re.sub(r'declare void @"?llvm\.nvvm\.barrier0"?\(\)',
                  'define internal void @"nvvm_barrier"() { ret void }', text)  # fmt: skip
    return re.sub(r'@"?llvm\.nvvm\.barrier0"?', '@"nvvm_barrier"', text)


def _c_function(symbol: str) -> int:
    """Return the address of the C library's function for one of libdevice's."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    name = symbol.removeprefix("__nv_")
    address = ctypes.cast(getattr(libm, name), ctypes.c_void_p).value
    assert address is not None
    return address


class OnCpu:
    """One compiled kernel that runs here.

    Parameters
    ----------
    compiled
        From `compile_kernel`, for any kind of GPU.
    """

    def __init__(self, compiled: Compiled) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        modules = ["; ModuleID" + m for m in compiled.llvm().split("; ModuleID")[1:]]
        assert modules
        machine = binding.Target.from_default_triple().create_target_machine(opt=2)
        names = [f"gpu.{r}.{d}" for r in POSITIONS.values() for d in "xyz"]
        self._registers = {name: ctypes.c_int32() for name in names}
        for name, value in self._registers.items():
            binding.add_symbol(name, ctypes.addressof(value))
        for symbol in set(re.findall(r"__nv_\w+", compiled.llvm())):
            binding.add_symbol(symbol, _c_function(symbol))
        linked = binding.parse_assembly(_portable(modules[0]))
        for text in modules[1:]:
            linked.link_in(binding.parse_assembly(_portable(text)))
        linked.verify()
        self._engine = binding.create_mcjit_compiler(linked, machine)
        self._engine.finalize_object()
        self._address = self._engine.get_function_address(compiled.name)

    def __call__(self, geometry: Geometry, arguments: Sequence[Any], kinds: Sequence[str]) -> None:
        """Run every thread; `kinds` are the dtypes of `arguments`, ``"pointer"`` for arrays."""
        types = [ctypes.c_void_p if kind == "pointer" else CTYPES[kind] for kind in kinds]
        call = ctypes.CFUNCTYPE(None, *types)(self._address)
        values = [t(a) for t, a in zip(types, map(_plain, arguments), strict=True)]
        self._place("nctaid", geometry.grid)
        self._place("ntid", geometry.block)
        threads = list(itertools.product(*map(range, geometry.block)))
        for block in itertools.product(*map(range, geometry.grid)):
            self._place("ctaid", block)
            for thread in threads:
                self._place("tid", thread)
                call(*values)

    def _place(self, register: str, position: Sequence[int]) -> None:
        for axis, value in zip("xyz", position, strict=True):
            self._registers[f"gpu.{register}.{axis}"].value = value


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    return value.item() if isinstance(value, np.generic) else value
