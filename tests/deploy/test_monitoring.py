"""Every name in dashboards and rules is one that a real scheduler or worker exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.commands import PATH
from tests.deploy.conftest import Pages
from tests.deploy.jobs import DEPLOY

FOLDER = DEPLOY / "monitoring"
DASHBOARDS = sorted((FOLDER / "grafana/dashboards").glob("*.json"))
RULES = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"][0]["rules"]
CONFIGURATION = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
_NAME = re.compile(r"\b(?:gpusched|dask)_\w+")
_TYPE = re.compile(r"^# TYPE (\S+)", re.MULTILINE)
_BUILT_IN = {"datasource", "__rate_interval"}


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """Yield the queries of a dashboard's panels and variables."""
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.fixture(scope="module")
def exported(pages: Pages) -> set[str]:
    """Give the names on the pages of a real scheduler and a real worker."""
    text = pages.get("scheduler", "/metrics") + pages.get("worker", "/metrics")
    return set(_TYPE.findall(text))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_asks_for_metrics_that_exist(path: Path, exported: set[str]) -> None:
    for expression in expressions(json.loads(path.read_text())):
        names = set(_NAME.findall(expression))
        assert names, expression
        assert names <= exported, expression


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_rule_asks_for_metrics_that_exist(rule: dict[str, Any], exported: set[str]) -> None:
    names = set(_NAME.findall(rule["expr"]))
    assert names or rule["expr"].startswith("up{")
    assert names <= exported


def test_each_metric_of_a_scheduler_is_shown(exported: set[str]) -> None:
    """What has no panel would be looked for in vain; the rest is for debugging gpusched itself."""
    asked = {
        name
        for path in DASHBOARDS
        for expression in expressions(json.loads(path.read_text()))
        for name in _NAME.findall(expression)
    } | {name for rule in RULES for name in _NAME.findall(rule["expr"])}
    ours = {name for name in exported if name.startswith("gpusched_scheduler_")}
    assert {name.removeprefix("gpusched_scheduler_") for name in ours - asked} == {
        "chunk_buffers_made_total",
        "chunk_buffers_reused_total",
        "kernels_unshared_total",
        "memory_own_bytes",
        "policy_waits_total",
        "policy_abandoned_total",
    }


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_is_whole(path: Path) -> None:
    """As Grafana needs it: own numbers, panels beside each other, variables that exist."""
    dashboard = json.loads(path.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [cell for panel in panels for cell in _cells(panel["gridPos"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    known = {variable["name"] for variable in dashboard["templating"]["list"]} | _BUILT_IN
    assert set(re.findall(r"\$\{?(\w+)", path.read_text())) <= known
    assert dashboard["schemaVersion"] >= 36


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        yield from ((x, y) for y in range(place["y"], place["y"] + place["h"]))


def test_dashboards_have_different_names() -> None:
    assert len({json.loads(path.read_text())["uid"] for path in DASHBOARDS}) == len(DASHBOARDS)


def test_prometheus_asks_the_services_of_compose() -> None:
    services = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())["services"]
    scheduler, worker = CONFIGURATION["scrape_configs"]
    assert scheduler["static_configs"][0]["targets"] == ["scheduler:8787"]
    assert "scheduler" in services
    [lookup] = worker["dns_sd_configs"]
    assert set(lookup["names"]) <= set(services)
    for name in lookup["names"]:
        assert str(lookup["port"]) == services[name]["environment"]["GPUSCHED_HEALTH_PORT"]


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    services = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())["services"]
    provisioning = FOLDER / "grafana/provisioning"
    source = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((provisioning / "dashboards/gpusched.yaml").read_text())
    mounts = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert provider["providers"][0]["options"]["path"] in mounts


@pytest.mark.parametrize(
    "command",
    [["check", "config", "prometheus.yml"], ["check", "rules", "rules.yml"],
     ["test", "rules", "rules_test.yml"]],
    ids=" ".join,
)  # fmt: skip
def test_promtool_finds_nothing(tmp_path: Path, command: list[str]) -> None:
    promtool = shutil.which("promtool", path=PATH)
    if promtool is None:
        pytest.skip("needs promtool (Debian's package prometheus)")
    for path in (*FOLDER.glob("*.yml"), Path(__file__).with_name("rules_test.yml")):
        shutil.copy(path, tmp_path)
    done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load(Path(__file__).with_name("rules_test.yml").read_text())["tests"]
    tested = {one["alertname"] for one in tests[0]["alert_rule_test"] if one["exp_alerts"]}
    assert tested == {rule["alert"] for rule in RULES}
