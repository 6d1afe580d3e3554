"""A disk of a few bytes, for what happens when it is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: str, *options: str) -> Iterator[Path]:
    """Mount a file system of so many bytes, as mount writes them; skip where that is not allowed.

    Parameters
    ----------
    folder
        Made for it.
    size
        Such as ``256k``.
    options
        Of ``umount``.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", *options, str(folder)], check=True)
