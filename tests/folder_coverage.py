"""Prints which share of the package's lines and branches a run of the tests reached, by folder.

``python -m tests.folder_coverage`` reads what ``pytest --cov`` left in ``.coverage``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any


def summaries(data: Path) -> dict[str, dict[str, Any]]:
    """Return coverage's summary of each file of the package, by its path below the package."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        command = [sys.executable, "-m", "coverage", "json", "--quiet"]
        subprocess.run([*command, f"--data-file={data}", f"-o{report}"], check=True)
        files = json.loads(report.read_text())["files"]
    return {path.removeprefix("gpusched/"): found["summary"] for path, found in files.items()}


def by_folder(files: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the counts of lines and branches, total and covered, of each folder and of all."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for path, summary in files.items():
        parts = PurePosixPath(path).parts
        for folder in (parts[0] if len(parts) > 1 else "(modules)", "all"):
            for key in ("num_statements", "covered_lines", "num_branches", "covered_branches"):
                found[folder][key] += summary[key]
    return found


def table(folders: dict[str, dict[str, int]]) -> str:
    """Return the counts as text, the total at the end."""
    lines = [f"{'folder':<16}{'lines':>8}{'covered':>9}{'branches':>10}{'covered':>9}"]
    for folder in [*sorted(folders.keys() - {"all"}), "all"]:
        n = folders[folder]
        lines.append(
            f"{folder:<16}{n['num_statements']:>8,}"
            f"{_share(n['covered_lines'], n['num_statements']):>9}"
            f"{n['num_branches']:>10,}{_share(n['covered_branches'], n['num_branches']):>9}"
        )
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


if __name__ == "__main__":
    print(table(by_folder(summaries(Path(sys.argv[1] if sys.argv[1:] else ".coverage")))))
