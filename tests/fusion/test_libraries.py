"""What is compiled of a kernel, and what is kept of it."""

from __future__ import annotations

import json
import struct

import numpy as np
from numba.core.registry import cpu_target

from gpusched.fusion import hostloops
from gpusched.fusion.backends import cpu
from tests.fusion.test_cache import sample_kernel


def test_only_what_is_called_has_machine_code() -> None:
    kernel = sample_kernel("float64(11)")
    cpu.compile_kernel(kernel, hostloops.source(kernel), "<a kernel>")
    engine = cpu_target.target_context.codegen()._engine
    functions = {
        name
        for name in engine._defined_symbols
        if kernel.digest in name and "NumbaEnv" not in name and not name.startswith(".")
    }
    assert any("kernel_" in name for name in functions)
    assert not any("point_" in name for name in functions)


def test_kept_code_has_names_and_no_instructions() -> None:
    kernel = sample_kernel("float64(12)")
    text = hostloops.source(kernel)
    _, code = cpu.compile_kernel(kernel, text, "<a kernel>")
    assert code is not None
    (length,) = struct.unpack_from("<I", code)
    names = json.loads(code[4 : 4 + length])[2]
    assert [name for name in names if f"kernel_{kernel.digest}" in name]
    assert code[4 + length :].startswith(b"\x7fELF")

    loaded, _ = cpu.compile_kernel(kernel, text, "<a kernel>", code)
    out = np.empty(4)
    loaded(np.arange(4.0), out, 4)
    np.testing.assert_array_equal(out, 12 * np.arange(4.0) + 1)
