"""Functions of the user's own: with no access to their module, and only if trusted."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.saving import FormatError, UntrustedError, describe

MODULE = """
    import dask.array as da
    import numpy as np
    import helping
    from helping import Scale

    LEVELS = [1.0, 2.0]

    def brighter(block):
        return helping.shifted(block) * LEVELS[1] + Scale(3.0).of(block)

    def make():
        return da.from_array(np.arange(1000.0), chunks=300).map_blocks(brighter).sum()

    def whole(x):
        return np.sqrt(x) + np.where(x > 3, x, 0)
"""
HELPING = """
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def of(self, block):
            return block * self.factor

    def shifted(block):
        return block + 1
"""
EXPECTED = float((np.arange(1000.0) + 1).sum() * 2 + np.arange(1000.0).sum() * 3)


def python(code: str, folder: Path) -> str:
    """Run code in a fresh interpreter, inside a folder, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Save from a process with modules of its own, and delete these."""
    author, reader = tmp_path / "author", tmp_path / "reader"
    author.mkdir()
    reader.mkdir()
    (author / "making.py").write_text(textwrap.dedent(MODULE))
    (author / "helping.py").write_text(textwrap.dedent(HELPING))
    code = f"""
        import gpusched, making, numpy as np
        gpusched.save({str(reader / "array")!r}, making.make())
        gpusched.save({str(reader / "code")!r}, making.brighter)
        gpusched.save({str(reader / "recorded")!r}, making.whole, np.ones(5))
        import cloudpickle
        assert not cloudpickle.list_registry_pickle_by_value()
    """
    python(code, author)
    shutil.rmtree(author)
    return reader


@pytest.mark.processes
def test_array_is_computed_without_the_module(made: Path) -> None:
    code = """
        import gpusched, sys
        x = gpusched.load("array", trust=True)
        with gpusched.enable():
            print(float(x.compute(scheduler="threads")), "making" in sys.modules)
    """
    assert python(code, made) == f"{EXPECTED} False"


@pytest.mark.processes
def test_array_is_computed_by_worker_processes_without_the_module(made: Path) -> None:
    code = """
        import gpusched
        from distributed import Client

        if __name__ == "__main__":
            with gpusched.Cluster(n_workers=1) as cluster, Client(cluster):
                print(float(gpusched.load("array", trust=True).compute()))
    """
    (made / "script.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=made, timeout=120
    )
    assert done.stdout.strip() == str(EXPECTED), done.stderr


@pytest.mark.processes
def test_code_is_called_without_the_module(made: Path) -> None:
    code = """
        import gpusched, numpy as np
        print(gpusched.load("code", trust=True)(np.ones(2)).tolist())
    """
    assert python(code, made) == "[7.0, 7.0]"


@pytest.mark.processes
def test_recorded_function_needs_neither_module_nor_trust(made: Path) -> None:
    code = """
        import gpusched, numpy as np
        print(gpusched.load("recorded")(np.arange(5.0) ** 2).tolist())
    """
    assert python(code, made) == "[0.0, 1.0, 6.0, 12.0, 20.0]"


@pytest.mark.parametrize("name", ["array", "code"])
@pytest.mark.processes
def test_code_is_refused_by_name_unless_trusted(made: Path, name: str) -> None:
    with pytest.raises(UntrustedError, match=r"making\.brighter.*trust=True"):
        gpusched.load(made / name)
    assert "making" not in sys.modules
    (function,) = describe(made / name)["code"]
    assert function["name"] == "making.brighter"


def test_nothing_of_an_untrusted_file_is_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harmed",)

    gpusched.save(tmp_path / "x", [da.ones(3), Harmful()])
    with pytest.raises(UntrustedError, match=r"a value of type .*Harmful"):
        gpusched.load(tmp_path / "x")
    assert not (tmp_path / "harmed").exists()
    gpusched.load(tmp_path / "x", trust=True)
    assert (tmp_path / "harmed").exists()


def test_lambda_and_closure(tmp_path: Path) -> None:
    factor = 3.0
    x = da.ones((50, 50), chunks=30)
    y = x.map_blocks(lambda block: block * factor, dtype="f8") + x.map_blocks(
        lambda block, block_id=None: block * block_id[0], dtype="f8"
    )
    gpusched.save(tmp_path / "x", y.sum())
    loaded = gpusched.load(tmp_path / "x", trust=True)
    assert float(loaded.compute(scheduler="threads")) == 50 * 50 * 3 + 20 * 50


def test_function_in_a_recorded_function(tmp_path: Path) -> None:
    def whole(x: Any) -> Any:
        return da.map_blocks(lambda block: block[::-1] * 2, x) + 1

    gpusched.save(tmp_path / "f", whole, np.ones(5))
    with pytest.raises(UntrustedError, match="lambda"):
        gpusched.load(tmp_path / "f")
    loaded = gpusched.load(tmp_path / "f", trust=True)
    np.testing.assert_array_equal(loaded(np.arange(5.0)), np.arange(5.0)[::-1] * 2 + 1)


def test_packages_that_the_code_needs_are_told(tmp_path: Path) -> None:
    def decoded(block: Any) -> Any:
        return block * len(platform.machine()) * len(dask_named())  # Python's own is not told

    def dask_named() -> str:
        return da.Array.__name__

    gpusched.save(tmp_path / "x", da.ones(3).map_blocks(decoded, dtype="f8"))
    modules = describe(tmp_path / "x")["modules"]
    assert modules["dask"] == dask.__version__
    assert "platform" not in modules


def test_objects_that_are_kept_elsewhere_are_carried_as_references(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "values.zarr", shape=20, chunks=5, dtype="f8")
    stored[:] = np.arange(20.0)
    gpusched.save(tmp_path / "x", da.from_zarr(tmp_path / "values.zarr") + 1)
    with pytest.raises(UntrustedError, match="zarr"):
        gpusched.load(tmp_path / "x")
    loaded = gpusched.load(tmp_path / "x", trust=True)
    np.testing.assert_array_equal(loaded.compute(scheduler="threads"), np.arange(20.0) + 1)


def test_code_of_another_python_is_refused(tmp_path: Path) -> None:
    gpusched.save(tmp_path / "x", da.ones(3).map_blocks(lambda block: block + 1))
    with zipfile.ZipFile(tmp_path / "x") as file:
        members = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(members["manifest.json"])
    manifest["made with"]["python"] = "3.99.1"
    with zipfile.ZipFile(tmp_path / "x", "w") as file:
        for name, data in members.items():
            file.writestr(name, json.dumps(manifest) if name == "manifest.json" else data)
    with pytest.raises(FormatError, match=r"Python 3\.99\.1"):
        gpusched.load(tmp_path / "x", trust=True)
