"""What is released: a source archive and a wheel, and what one has who installs the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import gpusched
from tests.tiers import starts_processes

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "build", "dist", "docs", "tests", "demo-output"
)


def run(*command: str | Path, **changes: str) -> str:
    """Run a command away from the checkout, and return what it prints."""
    return subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=changes.pop("cwd"),
        env={**os.environ, **changes},
    ).stdout


@pytest.fixture(scope="module")
@starts_processes
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both from a copy of the source, the wheel from the archive, as for an upload."""
    folder = tmp_path_factory.mktemp("release")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT)
    build = [sys.executable, "-m", "build", "--outdir", folder / "dist", folder / "source"]
    run(*build, cwd=str(folder))
    return folder / "dist"


@pytest.fixture(scope="module")
@starts_processes
def installed(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone; what it needs is found where the tests find it."""
    target = tmp_path_factory.mktemp("installed")
    (wheel,) = released.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    run(*pip, target, wheel, cwd=str(target))
    return target


def sources() -> set[str]:
    """Name every file of the package as it should be in the wheel."""
    folder = ROOT / "gpusched"
    return {
        str(Path(where, name).relative_to(ROOT))
        for where, _, names in os.walk(folder, followlinks=True)
        for name in names
        if not name.endswith(".pyc")
    }


def test_wheel_holds_every_file_and_nothing_else(released: Path) -> None:
    (wheel,) = released.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    held = {name for name in names if not name.startswith(f"gpusched_dask-{gpusched.__version__}")}
    assert held == sources()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_archive_is_enough_to_build_from(released: Path) -> None:
    (archive,) = released.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "gpusched/workers/worker.py"} <= names


def test_installed_package_computes(installed: Path, tmp_path: Path) -> None:
    code = (
        "import gpusched, dask.array as da\n"
        "x = da.ones((400, 300), chunks=100)\n"
        "with gpusched.local():\n"
        "    print(float(((x + 1) ** 2).sum().compute()))\n"
        "print(gpusched.__file__)"
    )
    total, where = run(
        sys.executable, "-c", code, cwd=str(tmp_path), PYTHONPATH=str(installed)
    ).split()
    assert float(total) == 480_000
    assert Path(where).is_relative_to(installed)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_public_names_have_types(tmp_path: Path) -> None:
    """By the settings and the cache of `make lint`, which are told to check something else."""
    settings = (ROOT / "pyproject.toml").read_text().replace('packages = ["gpusched"]\n', "")
    (tmp_path / "pyproject.toml").write_text(settings)
    asked = "\n".join(f"reveal_type(gpusched.{name})" for name in gpusched.__all__)
    program = f"import gpusched\n{asked}\ngpusched.no_such_name"
    mypy = [sys.executable, "-m", "mypy", "--config-file", tmp_path / "pyproject.toml"]
    checked = subprocess.run([*mypy, "-c", program], capture_output=True, text=True, cwd=ROOT)
    lines = [line for line in checked.stdout.splitlines() if line.startswith("<string>")]
    told = [line for line in lines if "Revealed type" in line]
    assert len(told) == len(gpusched.__all__), checked.stdout + checked.stderr
    assert [line for line in told if '"Any"' in line] == []
    (error,) = [line for line in lines if "error" in line]
    assert 'has no attribute "no_such_name"' in error


def test_forms_for_issues_ask_for_what_there_is() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form)
