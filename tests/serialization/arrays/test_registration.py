"""Importing the package takes distributed's places, and no array library with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.serialization.arrays.sending import frames_of

ROOT = Path(__file__).parents[3]
OURS = "gpusched.serialization.arrays.registration"


def python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def family(imports: str) -> str:
    """Return whose function serializes arrays after some imports."""
    told = "families['dask'][0].__module__"
    return python(f"{imports}; from distributed.protocol.serialize import families; print({told})")


@pytest.mark.parametrize(
    "module", ["serialization", "workers.worker", "cluster", "workers.nanny", "serialization.codec"]
)
@pytest.mark.processes
def test_importing_registers(module: str) -> None:
    assert family(f"import gpusched.{module}") == OURS


@pytest.mark.processes
def test_importing_gpusched_alone_does_not() -> None:
    assert family("import gpusched; gpusched.enable()") == "distributed.protocol.serialize"


@pytest.mark.processes
def test_importing_loads_no_array_library_but_numpy() -> None:
    heavy = ("cupy", "cupyx", "numba", "torch", "jax", "tensorflow", "scipy", "ml_dtypes")
    code = "import sys, gpusched.serialization as s; s.register()"
    assert python(f"{code}; print([m for m in {heavy} if m in sys.modules])") == "[]"


def write(tmp_path: Path, frames: list[bytes]) -> str:
    """Write a message's frames to a file, and return code that reads them."""
    file = tmp_path / "message"
    file.write_text(repr([bytes(frame) for frame in frames]))
    return f"loads(eval(open({str(file)!r}).read()))['value']"


@pytest.mark.processes
def test_a_process_with_plain_distributed_reads_messages(tmp_path: Path) -> None:
    value = write(tmp_path, frames_of(np.broadcast_to(np.arange(3.0), (2, 3))))
    code = (
        "import sys; from distributed.protocol import loads; assert 'gpusched' not in sys.modules; "
        f"a = {value}; print(a.tolist(), a.strides, 'gpusched.serialization' in sys.modules)"
    )
    assert python(code) == "[[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]] (0, 8) True"


@pytest.mark.processes
def test_a_process_without_gpusched_says_what_it_lacks(tmp_path: Path) -> None:
    value = write(tmp_path, frames_of(np.arange(3.0)))
    code = (
        "import sys; sys.modules['gpusched'] = None; from distributed.protocol import loads\n"
        f"try: {value}\nexcept ModuleNotFoundError as error: print(error)"
    )
    assert python(code).startswith("No module named 'gpusched.serialization'")


@pytest.mark.parametrize(("library", "value"), [("torch", "ones(3)"), ("jax", "numpy.ones(3)")])
def test_a_library_that_is_missing_is_told(library: str, value: str, tmp_path: Path) -> None:
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    made = eval(f"module.{value}", {"module": module})
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "import gpusched.serialization.arrays.device as w\n"
        f"w.find_spec = lambda name: None if name == '{library}' else find(name)\n"
        "from distributed.protocol import loads\n"
        f"try: {write(tmp_path, frames_of(made))}\n"
        f"except ModuleNotFoundError as error: print(error, '{library}' in sys.modules)"
    )
    assert python(code).endswith(f"has arrived where {library} is not installed False")


@pytest.mark.processes
def test_types_that_were_sent_before_are_replaced() -> None:
    code = (
        "import numpy as np; from distributed.protocol.serialize import serialize\n"
        "class Sub(np.ndarray): pass\n"
        "arrays = [np.ones(3), np.ones(3).view(Sub), np.ma.ones(3)]\n"
        "for array in arrays: serialize(array)\n"
        "import gpusched.serialization\n"
        "print([serialize(array)[0]['sub-header']['as'] for array in arrays])"
    )
    assert python(code) == "['numpy', 'numpy', 'masked']"


def test_torch_that_was_sent_before_is_replaced() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    code = (
        "import torch; from distributed.protocol.serialize import serialize\n"
        "values = [torch.ones(3), torch.nn.Parameter(torch.ones(3)), torch.nn.Linear(2, 2)]\n"
        "for value in values: serialize(value)\n"
        "import gpusched.serialization\n"
        "print([serialize(value)[0]['sub-header']['as'] for value in values])"
    )
    assert python(code) == "['torch', 'torch', 'torch']"


@pytest.mark.processes
def test_registering_again_changes_nothing() -> None:
    code = (
        "import numpy as np; from distributed.protocol.serialize import *\n"
        "from distributed.protocol.serialize import families\n"
        "import gpusched.serialization as s; serialize(np.ones(3)); before = dict(families)\n"
        "s.register(); print(before == families, deserialize(*serialize(np.ones(2))))"
    )
    assert python(code) == "True [1. 1.]"
