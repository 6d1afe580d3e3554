"""numba-cuda's kernels: their LLVM IR, from before NVIDIA's compiler, on this processor."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from llvmlite import binding

from . import build, emulator
from .images import digest

_libm = ctypes.CDLL(ctypes.util.find_library("m"))
_REGISTER = r'@"?llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.([xyz])"?'
_REGISTERS = {
    "tid": "emulator_threadIdx",
    "ctaid": "emulator_blockIdx",
    "ntid": "emulator_blockDim",
    "nctaid": "emulator_gridDim",
}
_WARP_SIZE = r'@"?llvm\.nvvm\.read\.ptx\.sreg\.warpsize"?'
_HALVES = ("extendhfsf2", "truncsfhf2", "truncdfhf2")
_BARRIER = r'@"?llvm\.nvvm\.barrier0"?'


def install(codegen: ModuleType) -> None:
    """Keep the IR of each cubin that `numba.cuda.codegen` makes, under the cubin's digest."""
    usual = codegen.CUDACodeLibrary.get_cubin

    def get_cubin(self: Any, cc: Any = None) -> Any:
        found = usual(self, cc=cc)
        kept = path(digest(bytes(found.code)))
        if not kept.exists():
            written = build.unfinished(kept)
            written.write_text(self.get_llvm_str())
            written.replace(kept)
        return found

    codegen.CUDACodeLibrary.get_cubin = get_cubin


def path(digest: str) -> Path:
    """Return where the IR of a cubin is kept."""
    folder = build.cache() / "numba"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{digest}.ll"


class Module:
    """The kernels of one cubin, compiled from its IR."""

    def __init__(self, text: str) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        _add_symbols(text)
        parts = ["; ModuleID" + part for part in text.split("; ModuleID")[1:]]
        linked = binding.parse_assembly(_portable(parts[0]))
        for part in parts[1:]:
            linked.link_in(binding.parse_assembly(_portable(part)))
        self._waits = "llvm.nvvm.barrier" in text
        self._kernels = {name: _Kernel(linked, text, name) for name in _names(text)}
        for number, kernel in enumerate(self._kernels.values()):
            linked.link_in(binding.parse_assembly(kernel.wrapper(f"run{number}")))
        linked.verify()
        machine = binding.Target.from_default_triple().create_target_machine(opt=1)
        self._engine = binding.create_mcjit_compiler(linked, machine)
        self._engine.finalize_object()

    def fill(self, name: str, found: Any) -> bool:
        """Describe a kernel in `found`; return False if there is none of that name."""
        if name not in self._kernels:
            return False
        kernel = self._kernels[name]
        number = list(self._kernels).index(name)
        found.run = self._engine.get_function_address(f"run{number}")
        found.count, found.barriers = len(kernel.types), int(self._waits)
        found.most_threads = kernel.most_threads
        for index, kind in enumerate(kernel.types):
            found.sizes[index] = _size(kind)
        return True


class _Kernel:
    def __init__(self, linked: Any, text: str, name: str) -> None:
        self.name = name
        self.types = [str(each.type) for each in linked.get_function(name).arguments]
        most = re.search(rf'@"?{re.escape(name)}"?, !"maxntidx", i32 (\d+)', text)
        self.most_threads = int(most[1]) if most else 0

    def wrapper(self, called: str) -> str:
        """Return a function that takes the addresses of the kernel's arguments."""
        loads = [
            f"  %s{k} = getelementptr ptr, ptr %p, i64 {k}\n  %q{k} = load ptr, ptr %s{k}\n"
            f"  %v{k} = load {kind}, ptr %q{k}, align 1\n"
            for k, kind in enumerate(self.types)
        ]
        given = ", ".join(f"{kind} %v{k}" for k, kind in enumerate(self.types))
        return (
            f'declare void @"{self.name}"({", ".join(self.types)})\n'
            f'define void @"{called}"(ptr %p) {{\n{"".join(loads)}'
            f'  call void @"{self.name}"({given})\n  ret void\n}}\n'
        )


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r'!\{ void \([^!]*\)\* @"?([^\s",]+)"?, !"kernel"', text)))


def _add_symbols(text: str) -> None:
    """Tell LLVM where threads' numbers, barriers, conversions and libdevice's functions are."""
    for register, name in _REGISTERS.items():
        base = ctypes.addressof(ctypes.c_uint32.in_dll(emulator.driver, name))
        for number, axis in enumerate("xyz"):
            binding.add_symbol(f"gpu.{register}.{axis}", base + 4 * number)
    _add_symbol("emulator_barrier", emulator.driver.emulator_barrier)
    for name in _HALVES:
        _add_symbol(f"__{name}", getattr(emulator.driver, f"emulator_{name}"))
    for symbol in set(re.findall(r"__nv_\w+", text)):
        name = symbol.removeprefix("__nv_")
        if not hasattr(_libm, name):
            raise NotImplementedError(
                f"the emulated GPU has no {symbol}: the C library lacks {name}"
            )
        _add_symbol(symbol, getattr(_libm, name))


def _add_symbol(name: str, function: Any) -> None:
    binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


def _portable(text: str) -> str:
    """Return IR without what only NVPTX knows."""
    text = re.sub(r'^target (triple|datalayout) = ".*"$', "", text, flags=re.M)
    text = re.sub(r"^!nvvm.*$", "", text, flags=re.M)
    text = re.sub(r'^@"?llvm\.used"? = .*$', "", text, flags=re.M)
    text = re.sub(r"^!\d+ = !\{ (void|i32) \(.*$", "", text, flags=re.M)
    text = re.sub(rf"^declare i32 {_REGISTER}\(\)", _register, text, flags=re.M)
    text = re.sub(_REGISTER, r'@"sreg_\1_\2"', text)
    text = re.sub(
        rf"declare i32 {_WARP_SIZE}\(\)",
        'define internal i32 @"sreg_warpsize"() {\n  ret i32 32\n}',
        text,
    )
    text = re.sub(_WARP_SIZE, '@"sreg_warpsize"', text)
    text = re.sub(_BARRIER, '@"emulator_barrier"', text)
    for name in re.findall(r'declare void @"?(llvm\.nvvm\.membar\.\w+)"?\(\)', text):
        plain = name.removeprefix("llvm.")
        text = text.replace(
            f'declare void @"{name}"()', f'define internal void @"{plain}"() {{ ret void }}'
        ).replace(f'@"{name}"', f'@"{plain}"')
    return text


def _register(found: re.Match[str]) -> str:
    # Volatile: a thread that waited goes on with its own number, which was set in between.
    return (
        f'@"gpu.{found[1]}.{found[2]}" = external global i32\n'
        f'define internal i32 @"sreg_{found[1]}_{found[2]}"() {{\n'
        f'  %v = load volatile i32, i32* @"gpu.{found[1]}.{found[2]}"\n  ret i32 %v\n}}'
    )


def _size(kind: str) -> int:
    kind = kind.strip()
    if kind.startswith("ptr") or kind.endswith("*"):
        return 8
    if kind in ("float", "double"):
        return 4 if kind == "float" else 8
    bits = re.fullmatch(r"i(\d+)", kind)
    if bits is None:
        raise NotImplementedError(f"the emulated GPU passes no arguments of LLVM's type {kind}")
    return max(1, int(bits[1]) // 8)
