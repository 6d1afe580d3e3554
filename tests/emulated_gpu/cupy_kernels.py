"""CuPy's own kernels: the CUDA C++ that CuPy gives NVRTC, compiled by g++ for this processor."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from . import build

MAGIC = b"EMULATED"
"""What the images made here begin with, in the place of a cubin; a path follows."""

_FLAGS = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fpermissive", "-ffp-contract=off")
_KERNEL = re.compile(
    r"(template\s*<[^;{}]*>\s*)?__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\("
)
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w:<>, ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_WAITING = ("__syncthreads", "__syncwarp", "__shfl")


def install(compiler: ModuleType) -> None:
    """Have `cupy.cuda.compiler` compile here; set `real_nvrtc` to ask NVRTC's opinion, too."""
    nvrtc = compiler._compile_using_nvrtc_no_warning

    def compile_source(
        source: str,
        options: Sequence[str] = (),
        arch: str | None = None,
        filename: str = "kern.cu",
        name_expressions: Sequence[str] | None = None,
        *others: Any,
    ) -> tuple[bytes, dict[str, str] | None]:
        if "nvrtc" in os.environ.get("GPUSCHED_EMULATED_GPU", "").split(","):
            nvrtc(source, options, arch, filename, name_expressions, *others)
        names = {text: f"expression_{k}" for k, text in enumerate(name_expressions or ())}
        return compile_for_host(source, options, names), names or None

    compiler._compile_using_nvrtc_no_warning = compile_source
    compiler._preprocess = lambda *_: "emulated"


def compile_for_host(source: str, options: Sequence[str], names: Mapping[str, str]) -> bytes:
    """Return the image of a CUDA C++ source.

    Parameters
    ----------
    source, options
        As NVRTC is given them.
    names
        By C++ expression of a kernel, such as a template's instance: the name to give it.

    Raises
    ------
    RuntimeError
        g++ cannot compile it: most likely `device.hpp` lacks something of CUDA's.
    """
    kept = [each for each in options if each.startswith(("-I", "-D")) and "/cuda-" not in each]
    text = _translate(source, names)
    header = build.SOURCE / "device.hpp"
    key = hashlib.blake2b(header.read_bytes(), digest_size=12)
    key.update(repr((text, kept, _FLAGS)).encode())
    folder = build.cache() / "cupy"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{key.hexdigest()}.so"
    if not library.exists():
        written = build.unfinished(library.with_suffix(".cpp"))
        written.write_text(text)
        build.run(["g++", *_FLAGS, f"-I{build.SOURCE}", *kept, str(written)], library)
        written.replace(library.with_suffix(".cpp"))
    return MAGIC + str(library).encode() + b"\0"


def _translate(source: str, expressions: Mapping[str, str]) -> str:
    body = _DYNAMIC_SHARED.sub(r"\1 *\2 = (\1 *)emulator_dynamic_shared;", source)
    names = dict.fromkeys(name for template, name in _KERNEL.findall(source) if not template)
    waits = int(any(word in source for word in _WAITING))
    half = "EMULATOR_HALF\n" if "cupy/float16.cuh" in source else ""
    kernels = "".join(f"EMULATOR_KERNEL({name}, {name})\n" for name in names)
    kernels += "".join(f"EMULATOR_KERNEL({name}, {text})\n" for text, name in expressions.items())
    return (
        f'#include "device.hpp"\n{body}\n{half}{kernels}'
        f'extern "C" int emulator_waits() {{ return {waits}; }}\n'
    )


class Module:
    """The kernels of one compiled source."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(str(Path(path)))

    def fill(self, name: str, found: Any) -> bool:
        """Describe a kernel in `found`; return False if there is none of that name."""
        try:
            run = getattr(self._library, f"emulator_run_{name}")
        except AttributeError:
            return False
        found.run = ctypes.cast(run, ctypes.c_void_p).value
        found.count = getattr(self._library, f"emulator_sizes_{name}")(ctypes.byref(found.sizes))
        found.barriers = self._library.emulator_waits()
        return True
