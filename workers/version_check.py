"""The versions that all processes of a cluster must share, and how they differ."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpusched.installing import DISTRIBUTION

PACKAGES = ("dask", "distributed", DISTRIBUTION, "cloudpickle", "lz4")
"""Packages whose objects and bytes go from process to process."""


HANDSHAKE_KEY = "gpusched-versions"
"""Where workers report their versions among what they send to the scheduler at the start."""


class VersionSkewError(RuntimeError):
    """Processes of one cluster have different versions."""

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(
            f"{'; '.join(differences)}. Install the same versions on all machines, or set "
            f"gpusched.worker.check-versions to false to go on all the same"
        )


def own_versions() -> dict[str, str]:
    """Return this process's versions, Python's without its last part.

    Examples
    --------
    >>> from gpusched.workers.version_check import own_versions
    >>> sorted(own_versions())
    ['cloudpickle', 'dask', 'distributed', 'gpusched-dask', 'lz4', 'python']
    """
    found = {name: _version(name) for name in PACKAGES}
    return {"python": _python(sys.version_info)} | {k: v for k, v in found.items() if v}


def of_handshake(sent: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, str]:
    """Return a connecting worker's versions."""
    if HANDSHAKE_KEY in extra:
        return dict(extra[HANDSHAKE_KEY])
    packages = sent.get("packages", {})
    found = {name: packages[name] for name in PACKAGES if packages.get(name)}
    if "python" in packages:
        found["python"] = _python(str(packages["python"]).split("."))
    return found


def differences(mine: Mapping[str, str | None], theirs: Mapping[str, str | None],
                there: str = "there") -> list[str]:  # fmt: skip
    """Return a sentence for each package that both sides have, in different versions.

    Examples
    --------
    >>> from gpusched.workers.version_check import differences
    >>> differences({"dask": "1", "lz4": "4"}, {"dask": "2", "lz4": "4", "numpy": "3"})
    ['dask is 1 here and 2 there']
    """
    return [
        f"{name} is {mine[name]} here and {theirs[name]} {there}"
        for name in ("python", *PACKAGES)
        if mine.get(name) and theirs.get(name) and mine[name] != theirs[name]
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python(version: Sequence[Any]) -> str:
    return ".".join(str(part) for part in version[:2])
