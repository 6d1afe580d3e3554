"""Messages name a command that installs this project, not the stranger of the same name."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusched import installing

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Have every test read the origin again."""
    installing._source.cache_clear()
    yield
    installing._source.cache_clear()


class Installed:
    """A distribution with what pip has noted of its origin."""

    def __init__(self, noted: dict[str, Any] | None) -> None:
        self.noted = noted

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.noted is None else json.dumps(self.noted)


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        (None, "pip install 'gpusched-dask[tls]'"),
        (
            {"url": "file:///srv/a%20clone", "dir_info": {"editable": True}},
            "pip install -e '/srv/a clone[tls]'",
        ),
        ({"url": "file:///srv/clone", "dir_info": {}}, "pip install '/srv/clone[tls]'"),
        (
            {"url": "file:///tmp/a.whl", "archive_info": {}},
            "pip install 'gpusched-dask[tls] @ file:///tmp/a.whl'",
        ),
        (
            {"url": "https://host/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'gpusched-dask[tls] @ git+https://host/x@abc'",
        ),
    ],
)
def test_command_follows_the_installation(
    noted: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed(noted))
    assert installing.command("tls") == command


def test_clone_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert installing.command("cuda13") == f"pip install '{ROOT}[cuda13]'"


def test_distribution_is_the_project() -> None:
    assert PROJECT["name"] == installing.DISTRIBUTION
    extras = PROJECT["optional-dependencies"].values()
    own = [name for extra in extras for name in extra if name.startswith("gpusched")]
    assert own
    assert all(name.startswith(f"{installing.DISTRIBUTION}[") for name in own)


def test_nothing_says_to_install_another_project() -> None:
    """Neither messages nor pages, by ``gpusched[extra]`` or ``install gpusched``."""
    stranger = re.compile(
        r"\bgpusched\[(?:cuda|tls|metrics|demo|test)|install '?\"?gpusched\b(?!-)"
    )
    folders = ("gpusched", "workers", "serialization", "docs", "deploy", "tests")
    files = [*ROOT.glob("*.md"), ROOT / "pyproject.toml"]
    files += [file for name in folders for file in (ROOT / name).rglob("*")
              if file.suffix in (".py", ".md", ".yml", ".yaml", ".ipynb")]  # fmt: skip
    found = [str(file) for file in files
             if "_build" not in file.parts and stranger.search(file.read_text())]  # fmt: skip
    assert [file for file in found if not file.endswith("test_installing.py")] == []
