"""What settings can be: each kind, the origin in the message, and every default."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest

from gpusched import Cluster, config, enable, settings
from gpusched.graph.hook import is_enabled
from tests.cli.conftest import call


def test_every_setting_has_a_kind() -> None:
    with dask.config.set(config.defaults()):
        names = config.settings()
    assert set(settings.KINDS) == {name.removeprefix("gpusched.") for name in names}


def test_defaults_are_allowed() -> None:
    with dask.config.set(config.defaults()):
        settings.check()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cluster.workers", "abc", "write a whole number, 0 or more"),
        ("cluster.workers", -1, "write a whole number, 0 or more"),
        ("cluster.workers", True, "write a whole number, 0 or more"),
        ("cluster.threads", 1.5, "write a whole number, 1 or more"),
        ("fusion.enabled", "maybe", "write true or false"),
        ("fusion.mathematics", "quick", "write 'exact' or 'fast'"),
        ("fusion.merge-bytes", "MiB", "write a size such as '4 GiB'"),
        ("memory.pool-limit", "zz", "write a size such as '4 GiB'"),
        ("memory.pool-limit", -0.5, "a fraction such as 0.25"),
        ("run.connect-timeout", "xyz", "write seconds, or a time such as '5 minutes'"),
        ("cluster.handshake-timeout", "-3s", "write seconds, or a time such as '5 minutes'"),
        ("serialization.without-gpu", "maybe", "write error or host"),
        ("worker.pin", "x", "write true or false or null"),
        ("threadsafe.policies", 3, "write a mapping, or null"),
    ],
)
def test_value_that_a_setting_cannot_have(name: str, value: Any, message: str) -> None:
    with (
        dask.config.set({f"gpusched.{name}": value}),
        pytest.raises(settings.SettingError) as found,
    ):
        settings.check()
    assert f"gpusched.{name} cannot be {value!r}: " in str(found.value)
    assert message in str(found.value)
    assert str(found.value).endswith("(set in Python)")


def test_setting_that_does_not_exist_gets_a_suggestion() -> None:
    message = r"no setting gpusched\.cluster\.worker; did you mean gpusched\.cluster\.workers\?"
    with (
        dask.config.set({"gpusched.cluster.worker": 2}),
        pytest.raises(settings.SettingError, match=message),
    ):
        settings.check()


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("gpusched.fusion", False, "gpusched.fusion.enabled"),
        ("gpusched.cluster", "4 GiB", "gpusched.cluster.gpus"),
        ("gpusched", 3, "gpusched.device"),
    ],
)
def test_value_instead_of_a_section_is_named(name: str, value: Any, setting: str) -> None:
    told = (
        f"{name} cannot be {value!r}: it is a section, of settings such as {setting} "
        r"(set in Python)"
    )
    for use in (settings.check, enable):
        with (
            dask.config.set({name: value}),
            pytest.raises(settings.SettingError, match=re.escape(told)),
        ):
            use()


@pytest.mark.processes
@pytest.mark.essential
def test_value_that_a_file_has_instead_of_a_section_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("gpusched: {inspection: false, memory: }")
    done = subprocess.run(
        [sys.executable, "-c", "import gpusched; print('imported'); gpusched.enable()"],
        capture_output=True,
        text=True,
        env={**os.environ, "DASK_CONFIG": str(tmp_path)},
        check=False,
    )
    assert done.stdout == "imported\n"
    assert (
        "gpusched.inspection cannot be False: it is a section, of settings such as "
        f"gpusched.inspection.call-sites (set by {file})"
    ) in done.stderr


def test_enabling_fusion_checks_settings() -> None:
    told = r"gpusched\.fusion\.compile cannot be 'never': write 'background', .* \(set in Python\)"
    for value in ("never", "never"):  # A value that is wrong stays so.
        with (
            dask.config.set({"gpusched.fusion.compile": value}),
            pytest.raises(settings.SettingError, match=told),
        ):
            enable()
    with enable():
        pass


def test_enabling_fusion_warns_where_it_is_called_of_settings_that_do_not_exist() -> None:
    told = r"no setting gpusched\.fusion\.compiles; did you mean gpusched\.fusion\.compile\?"
    with (
        dask.config.set({"gpusched.fusion.compiles": "wait"}),
        pytest.warns(UserWarning, match=told) as found,
        enable(),
    ):
        assert is_enabled()
    assert found[0].filename == __file__
    with (
        dask.config.set({"gpusched.of-mine": {"any": np.ones(3)}}),
        pytest.warns(UserWarning, match=r"no setting gpusched\.of-mine\.any \("),
    ):
        enable().__exit__()


def test_settings_that_have_not_changed_are_not_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Any] = []
    monkeypatch.setattr(settings, "_checked", [])
    monkeypatch.setitem(settings.KINDS, "fusion.strict", lambda *each: read.append(each))
    for strict in (True, True, False, True):
        with dask.config.set({"gpusched.fusion.strict": strict}):
            for _ in range(3):
                settings.check_changes()
    assert [value for _, value in read] == [True, False, True]


def test_configuration_without_settings_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask.config, "config", {})
    settings.check_changes()


def test_cluster_checks_settings_before_it_starts() -> None:
    with (
        dask.config.set({"gpusched.run.connect-timeout": "soon"}),
        pytest.raises(ValueError, match=r"gpusched\.run\.connect-timeout cannot be 'soon'"),
    ):
        Cluster(processes=False)


@pytest.mark.parametrize(
    "command",
    ["run script.py", "explain script.py", "cluster start x", "worker tcp://127.0.0.1:1", "jobs"],
)
def test_commands_name_the_variable_that_has_the_value(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    variable = "DASK_GPUSCHED__CLUSTER__WORKERS"
    monkeypatch.setenv(variable, "abc")
    with dask.config.set({"gpusched.cluster.workers": "abc"}):
        done = call(*command.split())
    assert done.exit_code == 2
    assert (
        f"gpusched.cluster.workers cannot be 'abc': write a whole number, 0 or more (set by \
{variable})"
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_info_shows_settings_that_cannot_be_used() -> None:
    with dask.config.set({"gpusched.run.connect-timeout": "soon"}):
        done = call("info")
    assert done.exit_code == 0
    assert "soon" in done.stdout
