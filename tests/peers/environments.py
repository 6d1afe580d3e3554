"""An environment for each package whose tests are run, since their requirements may conflict."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.peers.packages import Package
from tests.peers.runs import ROOT

FOLDER = ROOT / "build" / "ecosystem"

_ALWAYS = ("pytest", "pytest-timeout", "pytest-asyncio", "pytest-mock")

_USES_DASK = re.compile(r"\bdask\b|\bda\.\w|\.chunk\(")


def interpreter(name: str, package: Package) -> str:
    """Return the Python of the package's environment, which is made if it is not there."""
    folder = FOLDER / name / "venv"
    python = str(folder / "bin" / "python")
    wanted = "\n".join((*package.requirements, *_ALWAYS))
    stamp = folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable,
                        str(folder)], check=True)  # fmt: skip
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, "--editable",
                        str(ROOT), *package.requirements, *_ALWAYS], check=True)  # fmt: skip
        stamp.write_text(wanted)
    return python


def earlier(checkout: Path) -> Path:
    """Return a folder that has nothing but the gpusched of another checkout."""
    folder = FOLDER / "earlier"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "gpusched"
    link.unlink(missing_ok=True)
    link.symlink_to(checkout.resolve() / "gpusched")
    return folder


def tests(name: str, package: Package, sources: str) -> tuple[Path, list[str]]:
    """Return a folder, and the files of tests below it that use dask's arrays.

    Parameters
    ----------
    sources
        Where repositories are: an address, or a folder that has clones.
    """
    folder = _cloned(name, package, sources) if package.repository else _installed(name, package)
    found = sorted(
        path
        for path in folder.rglob("test_*.py")
        if path.name not in package.skipped and _USES_DASK.search(path.read_text())
    )
    return folder, [str(path) for path in found]


def _installed(name: str, package: Package) -> Path:
    (site,) = (FOLDER / name / "venv" / "lib").glob("python*/site-packages")
    return site.joinpath(*package.tests.split("."))


def _cloned(name: str, package: Package, sources: str) -> Path:
    # Under a name of its own: many packages' tests are called as gpusched's are, "tests".
    folder = FOLDER / name / f"{name.replace('-', '_')}_tests"
    stamp = FOLDER / name / "revision.txt"
    if folder.exists() and stamp.exists() and stamp.read_text() == package.revision:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    clone = FOLDER / name / "repository"
    shutil.rmtree(clone, ignore_errors=True)
    git = ["git", "-C", str(clone), "-c", "advice.detachedHead=false"]
    subprocess.run(["git", "init", "--quiet", str(clone)], check=True)
    address = f"{sources}/{package.repository}"
    subprocess.run([*git, "fetch", "--quiet", "--depth=1", address, package.revision], check=True)
    subprocess.run([*git, "checkout", "--quiet", "FETCH_HEAD"], check=True)
    shutil.copytree(clone / package.tests, folder)
    shutil.rmtree(clone)
    if "/" not in package.tests:
        _rename(folder, package.tests)
    stamp.write_text(package.revision)
    return folder


def _rename(folder: Path, name: str) -> None:
    """Have the modules of a folder import each other by the name that it has here."""
    imports = re.compile(rf"^(\s*(?:from|import) ){name}\b", re.MULTILINE)
    for path in folder.rglob("*.py"):
        path.write_text(imports.sub(rf"\1{folder.name}", path.read_text()))
