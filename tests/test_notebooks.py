"""The example notebooks run, and are in git with what their cells show.

``GPUSCHED_REGENERATE=1 pytest -m "" tests/test_notebooks.py`` writes the results again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pytest

import gpusched
from gpusched.store.handles import Handle
from gpusched.store.service import client as service
from tests.kernelsettings import KERNELS

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs/examples").glob("*.ipynb"))
LARGEST = 400_000
"""Bytes of a notebook with its results."""
SECONDS = 240
"""That a cell may take before it counts as hanging."""
REGENERATE = os.environ.get("GPUSCHED_REGENERATE") == "1"
"""Whether the notebooks are written again with what their cells show now."""


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"first-steps", "kernels-and-debugging"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_with_its_results(path: Path) -> None:
    text = path.read_text()
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert kinds <= {"stream", "execute_result", "display_data"}
    assert len([cell for cell in code if cell["outputs"]]) > len(code) / 2
    assert len(text) < LARGEST
    assert not re.search(r"/(?:home|root|work)/|site-packages", text), "a path of one machine"


def test_progress_in_a_notebook_is_one_line() -> None:
    cells = json.loads(NOTEBOOKS[0].read_text())["cells"]
    (cell,) = [each for each in cells if "progress(" in "".join(each["source"])]
    (output,) = cell["outputs"]
    assert "".join(output["text"]).count("\n") == 0
    assert "100% Completed" in "".join(output["text"])


def test_what_a_notebook_says_of_compilation_is_what_is_said_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Handle, "is_kept", lambda handle: False)
    x = da.ones((1000, 1000), chunks=500)
    with gpusched.enable(), dask.config.set({"gpusched.fusion.compile": "background"}):
        said = _of_compilation(str(gpusched.explain((da.cbrt(x) * 2 - da.sinh(x)).sum())))
    shown = {
        each
        for path in NOTEBOOKS
        for cell in json.loads(path.read_text())["cells"]
        for output in cell.get("outputs", ())
        for each in _of_compilation("".join(output.get("data", {}).get("text/plain", ())))
    }
    assert len(said) == 1 and shown <= said


def _of_compilation(text: str) -> set[str]:
    """Return what an explanation says of kernels that are not compiled, without its numbers."""
    words = " ".join(text.split())
    found = re.findall(r"not compiled on this machine.*?(?= \d+ launch)", words)
    return {re.sub(r"\d[\d.]* m?s", "some time", each) for each in found}


def last_drawn(line: str) -> str:
    """Return what a line shows before it is erased, of all that was drawn over it.

    Examples
    --------
    >>> last_drawn("\\r 10%\\r100%\\x1b[2K\\r")
    '100%'
    """
    drawings = line.replace("\x1b[2K", "").split("\r")
    return next(filter(None, reversed(drawings)), "")


def settled(outputs: list[Any]) -> list[Any]:
    """Return a cell's outputs with lines that were drawn again and again as they were last."""
    found: list[Any] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    for output in found:
        if output.output_type == "stream":
            output.text = "\n".join(map(last_drawn, output.text.split("\n")))
    return found


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give what runs a notebook, in a folder of its own, and returns what its cells show."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    # Neither this machine's settings of Jupyter and IPython, nor files for them.
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    if REGENERATE:
        # What is in git is what a reader sees, on a machine that knows no kernel.
        for name in KERNELS:
            monkeypatch.delenv(name, raising=False)
        folder = str(tmp_path / "kernels")
        monkeypatch.setenv("DASK_GPUSCHED__FUSION__CACHE_DIRECTORY", folder)

    def run(path: Path) -> list[dict[str, str]]:
        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
        if REGENERATE:
            service.stop()
            for cell in notebook.cells:
                cell.metadata.pop("execution", None)
                if cell.cell_type == "code":
                    cell.outputs = settled(cell.outputs)
            nbformat.write(notebook, path)
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
    assert "Dashboard" in pages and 'class="gpusched"' in pages and "<iframe" in pages
    assert any(output["text/plain"].startswith("np.float64(") for output in outputs)


@pytest.mark.processes
def test_kernels_and_debugging(shown: Any) -> None:
    outputs = shown(NOTEBOOKS[1])
    pages = "".join(output.get("text/html", "") for output in outputs)
    told = "".join(output["text/plain"] for output in outputs)
    assert "def tidal_range(" in pages  # The kernel as it was written.
    assert "def point(" in pages  # The kernel as it was made.
    assert "tidal_range" in told and "nan" in told
