"""torch.compile on the whole tensors; it writes C++, so it needs a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import torch

from tests.benchmarks.contenders.base import THREADS, Prepared, Unavailable
from tests.benchmarks.works import Work


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    if not _compiler_works():
        raise Unavailable("torch.compile needs a C++ compiler, and none works here")
    torch.set_num_threads(THREADS)
    tensors = [torch.from_numpy(x) for x in inputs]
    compiled = torch.compile(lambda *values: work.function(torch, *values), dynamic=False)
    return Prepared(lambda: compiled(*tensors), lambda result: result.numpy())


def _compiler_works() -> bool:
    """Return whether the compiler that torch would call turns a program with OpenMP into code."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return False
    command = [compiler, "-x", "c++", "-fopenmp", "-o", os.devnull, "-"]
    program = b"#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }"
    return subprocess.run(command, input=program, capture_output=True).returncode == 0
