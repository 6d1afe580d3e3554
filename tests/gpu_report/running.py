"""One step in a process of its own, which it may crash, hang or poison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_LINES = 4000
"""Of what a step prints, the last that are kept."""


def run(name: str, limit: float, rehearsal: bool) -> dict[str, Any]:
    """Return what came of a step: status, seconds, tables, and the end of what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        command = [sys.executable, "-m", "tests.gpu_report.step", name, str(answer)]
        command += ["--rehearsal"] * rehearsal
        started = time.perf_counter()
        status, printed = _outcome(command, limit)
        seconds = time.perf_counter() - started
        found = json.loads(answer.read_text()) if answer.exists() else {}
    tail = printed.splitlines()[-_LINES:]
    return {"step": name, "status": status, "seconds": round(seconds, 1), "tables": found,
            "printed": tail}  # fmt: skip


def _outcome(command: list[str], limit: float) -> tuple[str, str]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        # Its session, so that no worker of its is left behind.
        os.killpg(process.pid, 9)
        printed, _ = process.communicate()
        return f"not done within {limit:g} s", printed
    return ("ok" if process.returncode == 0 else f"exit {process.returncode}"), printed
