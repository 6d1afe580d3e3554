"""``gpusched cache``: what is told of kernels on disk, and packs between real processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import dask
import pytest

from tests.cli.conftest import Runner, call

SCRIPT = """
import dask.array as da, gpusched
x = da.ones((400, 400), chunks=(200, 400)).persist()
print(float(((x - 1) * 3 + x).sum().compute()))
print("compiled", gpusched.statistics().compilations)
"""


@pytest.fixture
def own(gpusched: Runner, tmp_path: Path) -> Runner:
    """Give a runner with a cache of its own."""
    gpusched.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return gpusched


def test_a_fresh_process_with_a_pack_compiles_nothing(own: Runner) -> None:
    script = own.script(SCRIPT)
    first = own("run", "--local", "--quiet", script)
    assert first.stdout.split()[:2] == ["160000.0", "compiled"], first.stderr
    assert int(first.stdout.split()[2]) > 0
    assert "kernel" in own("cache", "export", "kernels.pack").stdout
    shutil.rmtree(own.folder / "cache")
    done = own("cache", "import", "kernels.pack")
    assert done.returncode == 0, done.stderr
    again = own("run", "--local", "--quiet", script)
    assert again.stdout.split() == ["160000.0", "compiled", "0"], again.stderr


def test_two_processes_import_at_once(own: Runner) -> None:
    own("run", "--local", "--quiet", own.script(SCRIPT))
    own("cache", "export", "kernels.pack")
    shutil.rmtree(own.folder / "cache")
    both = [own.start("cache", "import", "kernels.pack") for _ in range(2)]
    for process in both:
        _, told = process.communicate()
        assert process.returncode == 0, told
    told = own("cache", "import", "kernels.pack").stdout
    assert told.startswith("0 kernels imported")


def test_info_says_what_kernels_are_for(own: Runner) -> None:
    assert "no kernels" in own("cache", "info").stdout
    own("run", "--local", "--quiet", own.script(SCRIPT))
    told = json.loads(own("cache", "info", "--json").stdout)
    (made,) = told["made"]
    assert made["usable"] and made["kernels"] > 0 and made["bytes"] > 0
    assert "numba" in made["made_with"]
    assert "here" in own("cache", "info").stdout
    assert f"{made['kernels']} kernel" in own("cache", "clear").stdout
    assert "no kernels" in own("cache", "info").stdout


def test_prune_removes_what_other_versions_have_made(tmp_path: Path) -> None:
    old = tmp_path / "kernels" / "0123-4567" / f"a-{'0' * 32}.code"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"code")
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        kept = call("cache", "prune", "--unused-for", "1 day")
        assert old.exists(), kept.output
        done = call("cache", "prune", "--other-versions")
    assert done.output == "1 kernel removed, 4 B\n"
    assert not old.parent.exists()


def test_without_a_folder_there_is_a_remedy() -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        for words in (["info"], ["clear"], ["prune"], ["import", "x"], ["export", "x"]):
            done = call("cache", *words)
            assert done.exit_code == 1, words


def test_nothing_to_export_is_an_error(tmp_path: Path) -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        done = call("cache", "export", str(tmp_path / "x.pack"))
    assert done.exit_code == 1
    assert "there are no kernels to export" in done.output


@pytest.mark.parametrize("size", ["many", "-1"])
def test_a_size_that_cannot_be_read_is_refused(size: str) -> None:
    done = call("cache", "prune", "--size", size)
    assert done.exit_code == 2
    assert "--size cannot be" in done.output
