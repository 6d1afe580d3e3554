"""The emulated driver's prototypes are those of NVIDIA's header, where that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.emulated_gpu.build import SOURCE

_ROOTS = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *map(str, Path("/opt").glob("cuda*"))]


@pytest.mark.processes
def test_prototypes_are_those_of_cuda_h(tmp_path: Path) -> None:
    found = [root for root in _ROOTS if root and Path(root, "include", "cuda.h").exists()]
    if not found:
        pytest.skip("cuda.h is not installed")
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    check = tmp_path / "check.c"
    check.write_text(
        '#define WITH_CUDA_H\n#include "cuda_types.h"\n'
        "#define ENTRY(name, arguments) CUresult CUDAAPI name arguments;\n"
        '#include "entry_points.h"\n'
    )
    command = ["gcc", "-fsyntax-only", f"-I{SOURCE}", f"-I{found[0]}/include", str(check)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # A wrong prototype is one that the compiler refuses.
    check.write_text(check.read_text() + "CUresult CUDAAPI cuInit(const char *flags);\n")
    assert subprocess.run(command, capture_output=True).returncode
