"""How optional packages are installed beside this installation of gpusched."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "gpusched-dask"
"""The name for pip. ``gpusched`` on PyPI is another project."""


def command(extra: str) -> str:
    """Return the command that installs an extra where this installation came from.

    Parameters
    ----------
    extra : str
        One of ``project.optional-dependencies`` in pyproject.toml.

    Examples
    --------
    >>> from gpusched import installing
    >>> installing.command("tls").startswith("pip install ")
    True
    """
    return f"pip install {_requirement(extra)}"


def _requirement(extra: str) -> str:
    source = _source()
    if source is None:
        return shlex.quote(f"{DISTRIBUTION}[{extra}]")
    url = source["url"]
    if "dir_info" not in source:
        return shlex.quote(f"{DISTRIBUTION}[{extra}] @ {_with_revision(source)}")
    folder = shlex.quote(f"{unquote(urlsplit(url).path)}[{extra}]")
    return f"-e {folder}" if source["dir_info"].get("editable") else folder


def _with_revision(source: dict[str, Any]) -> str:
    vcs = source.get("vcs_info")
    return f"{vcs['vcs']}+{source['url']}@{vcs['commit_id']}" if vcs else source["url"]


@cache
def _source() -> dict[str, Any] | None:
    """Return what pip noted of the origin (PEP 610), None if it was an index of packages."""
    try:
        noted = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        # Imported from a clone that is not installed.
        return {"url": Path(__file__).resolve().parents[1].as_uri(), "dir_info": {}}
    found: dict[str, Any] | None = json.loads(noted) if noted else None
    return found
