"""The package as others see it: its names, what importing it costs, and how it is installed."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

import gpusched
from gpusched import installing

ROOT = Path(__file__).parents[1]

PUBLIC = {
    "Cluster",
    "Statistics",
    "apply",
    "checkpoint",
    "debug",
    "disable",
    "enable",
    "explain",
    "find_nonfinite",
    "fusible",
    "kernel",
    "load",
    "local",
    "override",
    "profile",
    "reset_statistics",
    "save",
    "statistics",
    "trace_element",
    "tune",
}


def python(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout


def test_public_names_are_the_documented_ones() -> None:
    assert set(gpusched.__all__) == PUBLIC
    assert len(gpusched.__all__) == len(PUBLIC)
    for name in PUBLIC:
        assert getattr(gpusched, name).__doc__
        assert name in dir(gpusched)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        gpusched.no_such_name  # noqa: B018


@pytest.mark.essential
def test_packages_are_imported_on_first_use() -> None:
    code = "import sys, gpusched; print('gpusched.threadsafe' in sys.modules, end=' '); "
    assert python(f"{code} print(gpusched.threadsafe.lock('a'))").split() == ["False", "lock(a)"]
    assert "threadsafe" in dir(gpusched)


@pytest.mark.essential
def test_a_first_computation_imports_what_few_graphs_need_no_sooner() -> None:
    few = ("certain", "drawing", "grouped", "shownshapes", "taking", "unsplitting")
    code = (
        "import sys, dask.array as da, gpusched\n"
        "x = da.ones((100, 100), chunks=10)\n"
        "with gpusched.enable(): ((x - x.mean(axis=0)) / x.std(axis=0)).compute()\n"
        "print(gpusched.statistics().tasks > 0, 'shlex' in sys.modules, "
        "[m for m in sys.modules if m.startswith('gpusched.graph.') and "
        f"m.rpartition('.')[2] in {few}])"
    )
    assert python(code).strip() == "True False []"


@pytest.mark.essential
def test_importing_loads_no_heavy_library() -> None:
    heavy = ("numba", "cupy", "distributed", "bokeh", "scipy", "click")
    loaded = python(f"import sys, gpusched; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


@pytest.mark.essential
def test_command_line_loads_no_heavy_library_before_it_runs() -> None:
    heavy = ("numba", "cupy", "distributed", "bokeh", "dask.array")
    loaded = python(f"import sys, gpusched.cli; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


@pytest.mark.essential
def test_fusion_on_threads_loads_no_more_of_clusters_and_pages_than_dask_does() -> None:
    """dask itself imports distributed, where it is installed, to look for a client.

    Nor does it load what users' own kernels need, where nobody has loaded numba: dask loads it with
    the package sparse.
    """
    code = (
        "import sys, dask.array as da\n"
        "y = ((da.ones((400, 400), chunks=200) + 1) * 2).sum()\n"
        "y.compute(scheduler='threads'); before = {*sys.modules}\n"
        "import gpusched\n"
        "with gpusched.enable():\n"
        "    y.compute(scheduler='threads')\n"
        "names = {name.partition('.')[0] for name in {*sys.modules} - before}\n"
        "print(names & {'bokeh', 'click', 'distributed', 'psutil', 'rich', 'tornado'}, end=' ')\n"
        "loaded = [] if 'numba' in before else sys.modules\n"
        "print([name for name in loaded if name.startswith('gpusched.kernels')])"
    )
    assert python(code).strip() == "set() []"


@pytest.mark.essential
def test_new_arrays_load_nothing_of_clusters_and_wait_for_no_measuring() -> None:
    code = (
        "import sys, dask.array as da, gpusched\n"
        "with gpusched.enable(): da.ones((4000, 4000))\n"
        "print({'distributed', 'gpusched.machine'} & {*sys.modules})"
    )
    assert python(code).strip() == "set()"


@pytest.mark.parametrize(
    "names", ["workers.worker, gpusched.workers.nanny", "cluster.scheduler", "cli.script_run"]
)
@pytest.mark.essential
def test_cluster_needs_no_arrays_to_start(names: str) -> None:
    """Neither with fusion on: a worker that dies is back sooner."""
    code = (
        f"import sys, gpusched.{names}\n"
        "from gpusched.cluster.specs import fusing; fusing()\n"
        "print([m for m in ('dask.array', 'numba', 'pandas', 'scipy') if m in sys.modules])"
    )
    assert python(code).strip() == "[]"


@pytest.mark.essential
def test_importing_needs_nothing_that_dask_array_does_not() -> None:
    code = (
        "import dask.array, sys; before = {*sys.modules}; import gpusched; "
        "print(*{name.partition('.')[0] for name in {*sys.modules} - before})"
    )
    assert set(python(code).split()) <= {"gpusched", *sys.stdlib_module_names}


@pytest.mark.parametrize("name", ["workers", "serialization"])
@pytest.mark.essential
def test_root_folder_is_importable_only_inside_the_package(name: str) -> None:
    assert importlib.import_module(f"gpusched.{name}").__name__ == f"gpusched.{name}"
    link = ROOT / "gpusched" / name
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    refused = subprocess.run(
        [sys.executable, "-c", f"import {name}"], capture_output=True, text=True, cwd=ROOT
    )
    assert refused.returncode == 1
    assert f"import this package as gpusched.{name}" in refused.stderr


def test_version_is_the_same_everywhere() -> None:
    assert gpusched.__version__ == importlib.metadata.version(installing.DISTRIBUTION)
    changes = (ROOT / "CHANGELOG.md").read_text()
    citation = (ROOT / "docs" / "CITATION.cff").read_text()
    assert f"## {gpusched.__version__}" in changes
    assert f"version: {gpusched.__version__}\n" in citation


@pytest.mark.processes
def test_changes_can_be_put_into_the_changelog() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "99.0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    folder = ROOT / "docs" / "changes"
    written = [path.read_text().split() for path in folder.glob("*.md") if path.stem != "README"]
    assert all(" ".join(text) in " ".join(done.stdout.split()) for text in written)


IMPORTED_AS = {"tlz": "toolz", "yaml": "pyyaml"}
"""Distributions whose modules have other names."""

OF_EXTRAS = {"cryptography", "cupy"}
"""Imported at the top of files that are only imported where these are installed."""


def test_every_library_that_is_imported_is_declared() -> None:
    found = set()
    for folder in ("gpusched", "workers", "serialization"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add(str(node.module).partition(".")[0])
    found -= {"gpusched", *sys.stdlib_module_names, *OF_EXTRAS}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[\[<>=]", name)[0] for name in project["dependencies"]}
    assert {IMPORTED_AS.get(name, name) for name in found} - declared == set()


def test_every_dependency_has_a_lowest_version() -> None:
    """Without one, `make lowest` takes the first release that there has ever been."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = chain(project["dependencies"], *project["optional-dependencies"].values())
    of_others = [name for name in needed if not name.startswith(("gpusched-dask[", "dask["))]
    assert [name for name in of_others if not re.search("[=>]=", name)] == []


def test_no_gpu_package_is_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    gpu = ("cuda", "cupy", "nvidia", "numba-cuda")
    assert [name for name in project["dependencies"] if name.startswith(gpu)] == []
    for extra in ("cuda12", "cuda13"):
        assert {"cupy", "numba", "nvidia"} <= {
            name.split("-")[0] for name in project["optional-dependencies"][extra]
        }


def test_package_data_is_named() -> None:
    """All that is no module: style sheets, a program of pages, settings, the mark of types."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folder = Path(gpusched.__file__).parent
    named = content["tool"]["setuptools"]["package-data"]["gpusched"]
    found = {path for pattern in named for path in folder.glob(pattern)}
    assert all(any(folder.glob(pattern)) for pattern in named)
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert found == {path for path in files if path.suffix not in (".py", ".pyc", ".md")}
