"""torch.compile on the whole tensors; it writes C++, so it needs a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import Any

import torch

from tests.benchmarks import names
from tests.benchmarks.contenders.base import THREADS, Case, Prepared, Unavailable


def prepare(case: Case) -> Prepared:
    if not _compiler_works():
        raise Unavailable("torch.compile needs a C++ compiler, and none works here")
    torch.set_num_threads(THREADS)
    # Programs compiled before count as versions of this one, of which only some are allowed.
    torch._dynamo.reset()
    program, xp = case.work.program_of("torch"), names.torch()
    tensors = [torch.from_numpy(x) for x in case.inputs]
    compiled = torch.compile(lambda *values: program(xp, *values), dynamic=False)

    def run() -> Any:
        with torch.inference_mode():
            return compiled(*tensors)

    return Prepared(run)


@cache
def _compiler_works() -> bool:
    """Return whether the compiler that torch would call turns a program with OpenMP into code."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return False
    command = [compiler, "-x", "c++", "-fopenmp", "-o", os.devnull, "-"]
    program = b"#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }"
    return subprocess.run(command, input=program, capture_output=True).returncode == 0
