"""Releases outside of the tested bounds are found and named with a remedy."""

from __future__ import annotations

import importlib.metadata
import tomllib

import pytest

from gpusched.adapters import tested_releases
from gpusched.cli.checks import dependencies
from tests.test_private_names import ROOT

INSTALLED = {"dask": "2030.1.0", "numba": "0.60.0", "lz4": "4.4.0"}


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name not in INSTALLED:
            raise importlib.metadata.PackageNotFoundError(name)
        return INSTALLED[name]

    needed = ["dask[array]<2026.9,>=2026.7", "numba<0.69,>=0.66", "lz4>=4.3", "absent>=1"]
    extra = 'dask<2000; extra == "test"'
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [*needed, extra])


@pytest.mark.usefixtures("_installed")
def test_releases_outside_of_the_bounds_are_found() -> None:
    newer, older = tested_releases.outside()
    assert str(newer) == "dask 2030.1.0 is newer than the tested releases (<2026.9,>=2026.7)"
    assert newer.remedy == "pip install 'dask<2026.9,>=2026.7'"
    assert str(older) == "numba 0.60.0 is older than the tested releases (<0.69,>=0.66)"


@pytest.mark.usefixtures("_installed")
def test_older_release_is_a_failure() -> None:
    found = dependencies.tested()
    assert found.status == "failure"
    assert "numba 0.60.0 is older" in found.text


@pytest.mark.usefixtures("_installed")
def test_newer_release_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INSTALLED, "numba", "0.68.1")
    found = dependencies.tested()
    assert found.status == "warning"
    assert found.text == "dask 2030.1.0 is newer than the tested releases (<2026.9,>=2026.7)"
    assert found.remedy.startswith("pip install 'dask<2026.9,>=2026.7'; or report")


def test_tested_releases_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["numpy>=1"])
    assert dependencies.tested().status == "ok"


def test_a_clone_that_is_not_installed_has_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert list(tested_releases.outside()) == []


@pytest.mark.usefixtures("_installed")
def test_a_name_that_has_moved_is_an_error_with_the_releases_that_have_it() -> None:
    with pytest.raises(ImportError) as caught:
        from dask.array.core import _no_such_name  # noqa: F401
    made = tested_releases.moved(caught.value)
    assert made.name == "dask.array.core"
    assert "cannot import name '_no_such_name' from 'dask.array.core'" in str(made)
    assert "pip install 'dask<2026.9,>=2026.7'" in str(made)


def test_libraries_with_private_names_have_upper_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounded = {each.split(">")[0].split("[")[0] for each in project["dependencies"] if "<" in each}
    assert {"dask", "distributed", "numba", "llvmlite"} <= bounded
