"""Settings: defaults, their documentation, and how they are overridden."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import dask.config
import pytest

from gpusched import config

ROOT = Path(__file__).parents[1]


def source_files() -> list[Path]:
    folders = ("gpusched", "workers", "serialization")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def keys_in_code() -> set[str]:
    """Return the settings that the source reads or sets, by their dotted names."""
    found: set[str] = set()
    for path in source_files():
        text = path.read_text()
        full = re.findall(r"""["']gpusched\.([a-z-]+(?:\.[a-z-]+)?)["']""", text)
        # As read by gpusched.config; dask's own function gets the full name.
        reader = r"""(?:[^.]config\.get|\bword)\("""
        short = re.findall(reader + r"""["']([a-z-]+(?:\.[a-z-]+)?)["']""", text)
        found |= {f"gpusched.{key}" for key in [*full, *short]}
    found = {key for key in found if key.split(".")[1] in SECTIONS}
    return found - MODULES - WHOLE


MODULES = {f"gpusched.{path.parent.name}.{path.stem}" for path in source_files()} - set(
    config.settings()
)
SECTIONS = set(config.defaults()["gpusched"])
WHOLE = {f"gpusched.{name}" for name in SECTIONS} - set(config.settings())
"""Sections, some of which are read as a whole."""


def test_every_setting_in_the_code_has_a_default() -> None:
    unknown = keys_in_code() - set(config.settings())
    assert not unknown


def test_every_default_is_used() -> None:
    assert set(config.settings()) <= keys_in_code()


def test_every_setting_is_explained() -> None:
    lines = config.DEFAULTS_FILE.read_text().splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r" {2,4}[a-z-]+: ", line)]
    assert len(keys) == len(config.settings())
    for number in keys:
        assert lines[number - 1].strip().startswith("#"), lines[number]


def test_setting_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        config.get("cluster.no-such-setting")


def test_value_set_in_dask_wins_over_the_default() -> None:
    assert config.get("run.connect-timeout") == "10s"
    with dask.config.set({"gpusched.run.connect-timeout": "1s"}):
        assert config.get("run.connect-timeout") == "1s"
        assert config.settings()["gpusched.run.connect-timeout"] == "1s"


def test_registering_again_keeps_what_is_set() -> None:
    with dask.config.set({"gpusched.cluster.workers": 3}):
        config.register()
        assert config.get("cluster.workers") == 3


@pytest.mark.parametrize("first", ["import dask", "import gpusched"])
@pytest.mark.processes
def test_environment_and_file_win_over_the_defaults(first: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("gpusched: {cluster: {threads: 5, workers: 4}}")
    environment = {"DASK_GPUSCHED__CLUSTER__WORKERS": "7", "DASK_CONFIG": str(tmp_path)}
    code = (
        f"{first}; import gpusched; from gpusched import config; "
        "print(config.get('cluster.workers'), config.get('cluster.threads'), "
        "config.get('cluster.memory-limit'))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    ).stdout
    assert printed.split() == ["7", "5", "auto"]
