"""Commands whose output has no room, or that are started in a folder that was removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Runner, call

SCRIPT = "with its whole path"


@pytest.mark.parametrize("command", ["info", "--help"])
def test_output_without_room_is_one_message(gpusched: Runner, command: str) -> None:
    with open("/dev/full", "w") as full:
        process = gpusched.start(command, stdout=full)
        said = process.communicate()[1]
    assert said == "Error: cannot write: No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("run", "--local", "../script.py"), id="script"),
        pytest.param(("run", "--local", "-m", "script"), id="module"),
        pytest.param(("run", "--profile", "out.html", "../script.py"), id="profile"),
        pytest.param(("explain", "../script.py"), id="explain"),
        pytest.param(("run", "--workers", "1", SCRIPT), id="workers"),
        pytest.param(("cluster", "start", "gone", "--workers", "1"), id="cluster"),
    ],
)
def test_folder_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "script.py").write_text("raise AssertionError\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = call(*(str(tmp_path / "script.py") if each is SCRIPT else each for each in arguments))
    assert done.exit_code == 1
    assert done.stderr == "Error: the current folder was removed: go to another one\n"
