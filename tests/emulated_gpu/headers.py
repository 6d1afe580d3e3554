"""CUDA's headers, which CuPy demands and which are not used here, need not be installed.

Nor are they looked for in a process of their own, which cuda-pathfinder gives ten seconds: a busy
machine may not have them.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from . import build


def install(finding: ModuleType) -> None:
    """Exchange the step of `cuda.pathfinder` that starts a process."""

    def find(desc: Any) -> Any:
        for toolkit in sorted(Path("/usr/local").glob("cuda*"), reverse=True):
            folder = finding._locate_in_anchor_layout(desc, str(toolkit))
            if folder is not None:
                return finding.LocatedHeaderDir(abs_path=folder, found_via="usual folder")
        if desc.name != "cudart":
            return None
        return finding.LocatedHeaderDir(abs_path=str(build.SOURCE), found_via="emulated GPU")

    canary = finding.find_via_ctk_root_canary
    finding.FIND_STEPS = tuple(find if step is canary else step for step in finding.FIND_STEPS)
