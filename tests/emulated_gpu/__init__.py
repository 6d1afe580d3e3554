"""An emulated GPU: the real CuPy, numba-cuda and cuda-core on a CUDA driver of our own.

Device memory is host memory, streams are queues that run when somebody waits, kernels run on this
processor. README.md says how, what it can show and what it cannot.
"""

from __future__ import annotations

import os
from pathlib import Path

from . import build, emulator, hooks, images

SWITCH = "GPUSCHED_EMULATED_GPU"
"""Environment variable that turns the emulated GPU on; `README.md` lists what it may say."""

START = Path(__file__).resolve().parent / "start"
"""Folder that turns it on in every Python process with this folder in PYTHONPATH."""

HOW = (
    "that takes effect before anything imports CuPy only: use 'make test-gpu', or set "
    "PYTHONPATH=tests/emulated_gpu/start, too"
)

active = False
"""Whether this process has the emulated GPU."""


def requested() -> bool:
    """Return whether this process is to use the emulated GPU."""
    return os.environ.get(SWITCH, "0") not in ("", "0")


def activate() -> None:
    """Give this process and those that it starts the emulated GPU."""
    global active
    if active:
        return
    emulator.load()
    images.install()
    hooks.install(
        {
            "cuda.pathfinder._headers.find_nvidia_headers": "headers",
            "cupy_backends.cuda.api.runtime": "runtime",
            "cupy_backends.cuda.libs.cublas": "linear_algebra",
            "cupy_backends.cuda.libs.cusolver": "linear_algebra",
            "cupy.cuda.compiler": "cupy_kernels",
            "cupy.cuda.thrust": "sorting",
            "cupy.random._generator_api": "random_numbers",
            "numba.cuda.codegen": "numba_kernels",
        }
    )
    os.environ["CUPY_ACCELERATORS"] = ""  # CUB, whose kernels are machine code.
    # Of these sources: CuPy finds what it has kept by its own sources, which do not say more.
    os.environ["CUPY_CACHE_DIR"] = str(build.folder() / "cupy-images")
    _activate_children()
    active = True


def _activate_children() -> None:
    """Have every Python that this process starts run `start/sitecustomize.py`."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(START) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(START), *filter(None, paths)])
