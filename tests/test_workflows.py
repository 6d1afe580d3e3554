"""Workflows run targets of the Makefile and nothing else; pre-commit runs what `make lint` does."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import demo

ROOT = Path(__file__).parents[1]
WORKFLOWS = {p.stem: yaml.safe_load(p.read_text()) for p in ROOT.glob(".github/workflows/*.yml")}
JOBS = {
    f"{name}/{job}": content
    for name, workflow in WORKFLOWS.items()
    for job, content in workflow["jobs"].items()
}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

_MAKE = re.compile(r"make ([\w-]+)( [A-Z]+=(\S+|\$\{\{ matrix\.\w+ \}\}))*")
_VERSION = re.compile(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+")
_NAME = re.compile(r"^[\w-]+")


def names(requirements: list[str]) -> set[str]:
    """Return the packages that requirements name, without versions and extras."""
    return {_NAME.match(each)[0].replace("-", "_") for each in requirements}  # type: ignore[index]


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", JOBS)
def test_each_step_is_an_action_or_one_target(name: str) -> None:
    assert commands(JOBS[name])
    for step in JOBS[name]["steps"]:
        if "run" not in step:
            assert _VERSION.fullmatch(step["uses"]), step
            continue
        assert set(step) == {"run"}
        found = _MAKE.fullmatch(step["run"])
        assert found, step
        assert found[1] in TARGETS


@pytest.mark.parametrize("name", JOBS)
def test_each_job_ends_by_itself_and_keeps_no_credentials(name: str) -> None:
    assert JOBS[name]["timeout-minutes"] <= 360
    checkout = JOBS[name]["steps"][0]
    assert checkout["uses"].startswith("actions/checkout@")
    assert checkout["with"] == {"persist-credentials": False}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_only_read_and_replace_their_older_runs(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in WORKFLOWS[name]["jobs"].values())
    assert WORKFLOWS[name]["concurrency"]["cancel-in-progress"] is True


def test_every_supported_python_is_tested() -> None:
    prefix = "Programming Language :: Python :: 3."
    stated = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if each.startswith(prefix)}
    assert set(JOBS["tests/test"]["strategy"]["matrix"]["python"]) == stated
    lowest, highest = re.findall(r"\d+\.(\d+)", PROJECT["requires-python"])
    assert stated == {f"3.{minor}" for minor in range(int(lowest), int(highest))}


def test_lowest_dependencies_are_tested_with_the_lowest_python() -> None:
    job = JOBS["tests/lowest"]
    assert commands(job) == ["make lowest", "make test"]
    lowest = re.findall(r">=(\d+\.\d+)", PROJECT["requires-python"])
    assert [
        s["with"]["python-version"] for s in job["steps"] if "python-version" in s.get("with", {})
    ] == lowest


def test_shards_are_all_of_one_division() -> None:
    shards = [each.split("/") for each in JOBS["tests/test-all"]["strategy"]["matrix"]["shard"]]
    assert shards == [[str(k + 1), str(len(shards))] for k in range(len(shards))]


def test_pre_commit_runs_the_same_tools_as_lint() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    pins: set[str] = set()
    for hook in local["hooks"]:
        assert hook["language"] == "python"
        assert not any("/" in word for word in hook["entry"].split()[:1])
        pins |= {each for each in hook["additional_dependencies"] if "==" in each}
    assert pins == set(EXTRAS["lint"])


def test_pre_commit_types_the_package_beside_what_it_needs() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (types,) = [hook for hook in local["hooks"] if hook["id"] == "mypy"]
    optional = {"cryptography", "prometheus_client", "xarray"}
    needed = names(PROJECT["dependencies"]) | optional | {"mypy"}
    assert names(types["additional_dependencies"]) == needed


@pytest.mark.processes
def test_demo_passes_arguments_to_the_example_and_flags_to_run() -> None:
    make = ["make", "-n", "-o", ".venv/.demo", "demo", "ARGS=--scale 4", "FLAGS=--workers 2"]
    make += ["COMPARE=no"]
    told = subprocess.run(make, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    assert "tests.demo --once --workers 2 docs/examples/terrain.py --scale 4\n" in told


def test_demo_compares_with_plain_dask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[list[str]] = []
    took = iter([2.0, 3.0, 2.0])
    monkeypatch.setattr(demo, "_run", lambda given: runs.append(given) or next(took))
    monkeypatch.setattr(demo.client, "queued_names", list)
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    demo.main(["script.py", "--scale", "4"])
    assert runs == [["script.py", "--scale", "4"], ["--no-fuse", "script.py", "--scale", "4"]]
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        last == "computing took 2.0 s with gpusched and 3.0 s with plain dask: 1.50 times as fast"
    )
    demo.main(["--once", "script.py"])
    assert runs[2:] == [["script.py"]]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["CODE_OF_CONDUCT", "pull_request_template"])
def test_what_contributors_look_for_is_there(name: str) -> None:
    assert (ROOT / ".github" / f"{name}.md").stat().st_size > 300
