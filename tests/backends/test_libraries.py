"""What is compiled of a kernel, and what is kept of it."""

from __future__ import annotations

import numpy as np

from gpusched.backends import cpu, elf, native
from gpusched.emit import hostloops
from tests.store.test_cache import sample_kernel


def compiled(constant: str) -> bytes:
    kernel = sample_kernel(constant)
    code = cpu.compile_code(kernel, hostloops.source(kernel), "<a kernel>")
    assert code is not None
    return code


def test_only_what_is_called_has_machine_code() -> None:
    file = elf.parsed(compiled("float64(11)"))
    defined = [symbol.name for symbol in file.symbols if symbol.section and symbol.name]
    defined = [name for name in defined if "NumbaEnv" not in name]
    assert [name for name in defined if "kernel_" in name]
    assert not [name for name in defined if "point_" in name or "cpython" in name]


def test_numba_has_no_part_in_kept_code() -> None:
    code = compiled("float64(12)")
    assert not [name for name in elf.parsed(code).imports if "numba" in name]
    out = np.empty(4)
    native.load(code).call(np.arange(4.0), out, 4)
    np.testing.assert_array_equal(out, 12 * np.arange(4.0) + 1)
