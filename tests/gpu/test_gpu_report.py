"""The report on a GPU: rehearsed whole, and never ended by a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import emulated_gpu
from tests.gpu_report import page, running, steps

pytest.importorskip("cupy", reason="CuPy comes with the extra gpu-test")
pytestmark = [pytest.mark.gpu, pytest.mark.processes]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_step_is_rehearsed(tmp_path: Path) -> None:
    results, written = tmp_path / "new" / "results.jsonl", tmp_path / "page.md"
    command = [sys.executable, "-m", "tests.gpu_report", "--rehearsal"]
    command += ["--results", str(results), "--write", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(record["step"] for record in records) == sorted(steps.STEPS)
    assert [r["step"] for r in records if r["status"] != "ok"] == [], written.read_text()
    tables = {title: rows for record in records for title, rows in record["tables"].items()}
    assert tables["Programs that differ"] == tables["Kernels that differ"] == []
    assert tables["Operations that are farther than allowed"] == []
    assert {row["outcome"] for row in tables["A cluster on all GPUs"]} >= {"right"}
    (unchanged,) = (rows for title, rows in tables.items() if title.startswith("Unchanged"))
    assert all(float(row["apart"]) < 1e-5 and row["result"] == "numpy" for row in unchanged)
    assert any(not row["tasks on GPUs"].startswith("0 ") for row in unchanged)
    assert tables["Values restored by another thread"][0]["wrong"] == 0
    if emulated_gpu.active:
        assert f"**State: {steps.machine.EMULATED}.**" in written.read_text()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import os; os.abort()", "exit -6"),
        ("raise ZeroDivisionError('told by the test')", "exit 1"),
        ("import threading; threading.Event().wait()", "not done within 2 s"),
    ],
)
def test_a_step_that_crashes_or_hangs_leaves_a_line(
    code: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = running._outcome
    monkeypatch.setattr(
        running, "_outcome", lambda command, limit: real([sys.executable, "-c", code], limit)
    )
    found = running.run("inventory", 2, rehearsal=True)
    assert (found["status"], found["tables"]) == (status, {})
    assert status in page.page([found], rehearsal=False)


def test_what_ended_a_process_is_told_without_the_notes_that_follow() -> None:
    code = """
error = RuntimeError("no card")
error.add_note("gpusched: told by the test")
raise error
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert steps.whole._why(done) == "RuntimeError: no card"


def test_the_page_says_in_one_place_whether_a_card_was_there() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *root.glob("docs/**/*.md")]
    said = [p.name for p in pages if steps.machine.EMULATED in p.read_text()]
    report = (root / "docs/reference/gpu-report.md").read_text()
    assert said == (["gpu-report.md"] if "State: a card" not in report else [])
