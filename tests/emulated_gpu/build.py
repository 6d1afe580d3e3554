"""Compiles the emulated GPU's C sources, once for each state of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sysconfig
import threading
from functools import cache as once
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "source"

DRIVER = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
CUBLAS = "libcublas.so.13"
CUBLASLT = "libcublasLt.so.13"
CURAND = "libcurand.so.10"
CUFFT = "libcufft.so.12"
CUSOLVER = "libcusolver.so.12"
CUSPARSE = "libcusparse.so.12"

_SOURCES = {
    DRIVER: (
        "driver.c",
        "memory.c",
        "modules.c",
        "kernels.c",
        "streams.c",
        "interprocess.c",
        "cupy_runtime.c",
        "lapack.c",
    ),
    NVML: ("nvml.c",),
    CUBLAS: ("cublas.c",),
    CUBLASLT: ("cublaslt.c",),
    CURAND: ("curand.c",),
    CUFFT: ("cufft.c",),
    CUSOLVER: ("cusolver.c",),
    CUSPARSE: ("cusparse.c",),
}
_FLAGS = ("-std=gnu17", "-O2", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall")


def cache() -> Path:
    """Return the folder of everything that is compiled for the emulated GPU."""
    given = os.environ.get("GPUSCHED_EMULATED_GPU_CACHE")
    root = Path(given) if given else Path(__file__).resolve().parents[2] / ".pytest_cache"
    return root / "emulated_gpu"


def folder() -> Path:
    """Return the folder of what is compiled from the present sources."""
    return cache() / _digest()


def libraries() -> dict[str, Path]:
    """Return the libraries by name, compiled from the present sources.

    Raises
    ------
    RuntimeError
        The C compiler is missing or refuses a source.
    """
    found = {name: folder() / name for name in _SOURCES}
    for name, sources in _SOURCES.items():
        found[name].parent.mkdir(parents=True, exist_ok=True)
        if not found[name].exists():
            _compile(found[name], sources)
    return found


@once
def _digest() -> str:
    found = hashlib.blake2b(sysconfig.get_path("include").encode(), digest_size=8)
    for path in sorted(SOURCE.iterdir()):
        found.update(path.name.encode() + path.read_bytes())
    found.update(Path(__file__).read_bytes())
    return found.hexdigest()


def _compile(target: Path, sources: tuple[str, ...]) -> None:
    run(
        ["gcc", *_FLAGS, f"-I{sysconfig.get_path('include')}"]
        + [str(SOURCE / name) for name in sources]
        # CuPy is linked to symbols whose version is their library's name.
        + [f"-Wl,-soname,{target.name}", "-Wl,--default-symver", "-lpthread", "-lm"],
        target,
    )


def unfinished(target: Path) -> Path:
    """Return a name beside `target` that no other process and thread writes to."""
    return target.with_name(f"{os.getpid()}.{threading.get_ident()}.{target.name}")


def run(command: list[str], target: Path) -> None:
    """Run a compiler, and put what it makes in place at once, whoever else does the same."""
    made = unfinished(target)
    try:
        done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError(
            f"the emulated GPU needs {command[0]}, which is not on PATH: apt-get install g++"
        ) from None
    if done.returncode:
        raise RuntimeError(f"{command[0]} cannot compile {target.name}: {done.stderr[:4000]}")
    made.replace(target)
