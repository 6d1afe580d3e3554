"""Where deploy/ is, and a folder for what is started by its commands."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.kernelsettings import KERNELS

DEPLOY = Path(__file__).parents[2] / "deploy"
_MARK = "GPUSCHED_TEST_JOB"


@dataclass
class Site:
    """A folder, and the processes that were started with its environment."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self) -> dict[str, str]:
        """Return the variables of what is started."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "COV_"))}
        kept |= KERNELS
        return kept | {
            _MARK: self.mark,
            "DASK_CONFIG": str(self.folder / "config"),
            "DASK_TEMPORARY_DIRECTORY": str(self.folder / "scratch"),
            # Shared by tests, so that kernels are compiled once.
            "XDG_CACHE_HOME": str(self.folder.parent / "cache"),
            "GPUSCHED": str(Path(sys.executable).with_name("gpusched")),
        }

    def processes(self) -> Iterator[psutil.Process]:
        """Yield the processes that were started."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self.mark:
                    yield process
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
