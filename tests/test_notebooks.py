"""The example notebooks run, and are in git without results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs/examples").glob("*.ipynb"))
SECONDS = 240
"""That a cell may take before it counts as hanging."""


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"first-steps", "kernels-and-debugging"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_results(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give what runs a notebook, in a folder of its own, and returns what its cells show."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    # Neither this machine's settings of Jupyter and IPython, nor files for them.
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def run(path: Path) -> list[dict[str, str]]:
        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
        return [
            {"text/plain": output.get("text", ""), **output.get("data", {})}
            for cell in notebook.cells
            for output in cell.get("outputs", ())
        ]

    return run


@pytest.mark.processes
def test_first_steps(shown: Any) -> None:
    outputs = shown(NOTEBOOKS[0])
    pages = "".join(output.get("text/html", "") for output in outputs)
    assert "Dashboard" in pages and "gpusched-explain" in pages and "<iframe" in pages
    assert any(output["text/plain"].startswith("np.float64(") for output in outputs)


@pytest.mark.processes
def test_kernels_and_debugging(shown: Any) -> None:
    outputs = shown(NOTEBOOKS[1])
    pages = "".join(output.get("text/html", "") for output in outputs)
    told = "".join(output["text/plain"] for output in outputs)
    assert "def tidal_range(" in pages  # The kernel as it was written.
    assert "def point(" in pages  # The kernel as it was made.
    assert "tidal_range" in told and "nan" in told
