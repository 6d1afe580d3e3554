"""Units and their settings."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.commands import PATH, check, expanded, merged, read_environment
from tests.deploy.jobs import DEPLOY

FOLDER = DEPLOY / "systemd"
UNITS = ["gpusched-scheduler.service", "gpusched-worker@gpu.service", "gpusched-worker@cpu.service"]


def text(unit: str) -> str:
    """Return the text of a unit, with the instance's name in it."""
    instance = re.sub(r".*@|\.service", "", unit)
    return (FOLDER / re.sub("@.*", "@.service", unit)).read_text().replace("%i", instance)


def values(unit: str, key: str) -> list[str]:
    """Return what a unit gives for a key, which may come several times."""
    return re.findall(rf"^{key}=(.*)$", text(unit), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS)
def test_unit_runs_a_command_of_gpusched(unit: str) -> None:
    variables: dict[str, str] = {}
    for file in values(unit, "EnvironmentFile"):
        path = FOLDER / Path(file).name
        assert file == f"/etc/gpusched/{path.name}"
        variables |= read_environment(path.read_text())
    [line] = values(unit, "ExecStart")
    program, *words = expanded(line.split(), variables)
    assert program == "/opt/gpusched/bin/gpusched"
    check(words)


def test_suggested_settings_encrypt() -> None:
    import dask.config
    from distributed.security import Security

    lines = (FOLDER / "gpusched.env").read_text().replace("#DASK", "DASK")
    with dask.config.set(merged(read_environment(lines))):
        security = Security()
        assert security.require_encryption
        assert security.tls_ca_file == "/etc/gpusched/tls/ca.pem"
        assert security.tls_scheduler_key == security.tls_worker_key == "/etc/gpusched/tls/key.pem"


def test_workers_have_different_pages() -> None:
    pages = [
        re.findall(r"--dashboard-address \S+", (FOLDER / name).read_text())
        for name in ("gpusched.env", "worker-gpu.env", "worker-cpu.env")
    ]
    assert len({page for [page] in pages}) == 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a machine's folders as systemd's tools read them, with the units installed."""
    for part in ("lib/systemd/system", "usr/lib/systemd/system"):
        if (source := Path("/") / part).is_dir() and not source.parents[1].is_symlink():
            shutil.copytree(source, tmp_path / part, symlinks=True, dirs_exist_ok=True)
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for path in FOLDER.glob("*.service"):
        shutil.copy(path, units)
    program = tmp_path / "opt/gpusched/bin/gpusched"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    return tmp_path


def analyse(*arguments: str, root: Path) -> str:
    """Run systemd-analyze; it has to find no fault."""
    program = shutil.which("systemd-analyze", path=PATH)
    if program is None:
        pytest.skip("needs systemd-analyze (Debian's package systemd)")
    done = subprocess.run(
        [program, arguments[0], f"--root={root}", *arguments[1:]],
        cwd=root / "etc/systemd/system",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # It tells of other units of the machine, too.
    assert "gpusched" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.processes
def test_systemd_finds_nothing(unit: str, root: Path) -> None:
    analyse("verify", "--man=no", unit, root=root)


@pytest.mark.parametrize(("unit", "exposure"), [(UNITS[0], 2.0), (UNITS[1], 4.5)])
@pytest.mark.processes
def test_unit_is_shut_off(unit: str, exposure: float, root: Path) -> None:
    told = analyse("security", "--offline=yes", unit, root=root)
    [found] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert float(found) <= exposure


def test_user_of_the_units_is_made() -> None:
    line = (FOLDER / "gpusched.sysusers").read_text().splitlines()[-1]
    assert {user for unit in UNITS for user in values(unit, "User")} == {line.split()[1]}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.service")), ids=lambda path: path.stem)
def test_unit_has_its_sections(path: Path) -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.read(path)
    assert parser.sections() == ["Unit", "Service", "Install"]
