"""JupyterLab's settings: a cluster started as dask-labextension starts it."""

from __future__ import annotations

import asyncio
import importlib
import json
import types
import urllib.request
from typing import Any

import dask.config
import pytest
import yaml

import gpusched
from tests.deploy.jobs import DEPLOY

FOLDER = DEPLOY / "jupyter"
SETTINGS: dict[str, Any] = yaml.safe_load((FOLDER / "labextension.yaml").read_text())


async def make_cluster() -> Any:
    """Start a cluster as dask_labextension.manager does."""
    factory = dask.config.get("labextension.factory")
    kind = getattr(importlib.import_module(factory["module"]), factory["class"])
    return await kind(*factory["args"], **factory["kwargs"], asynchronous=True)


def test_factory_gives_what_the_extension_asks_for() -> None:
    small = {"gpusched": {"cluster": {"gpus": 0, "workers": 1, "threads": 1}}}
    with dask.config.set(dask.config.merge(dask.config.config, SETTINGS, small)):
        asyncio.run(_use())


async def _use() -> None:
    cluster = await make_cluster()
    try:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        assert cluster.scheduler_info["type"] == "Scheduler"
        port = cluster.scheduler.services["dashboard"].port
        assert cluster.dashboard_link == f"/proxy/{port}/gpusched"
        cluster.scale(0)
        adaptive = cluster.adapt(minimum=0, maximum=1)
        assert (adaptive.minimum, adaptive.maximum) == (0, 1)
    finally:
        await cluster.close()


def test_links_behind_a_hub_go_through_its_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the comment on ``link`` in the settings has it, which is what distributed formats."""
    told = (FOLDER / "labextension.yaml").read_text()
    link = "{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status"
    assert f'"{link}"' in told
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    with (
        dask.config.set({"distributed.dashboard.link": link}),
        gpusched.Cluster(0, gpus=0, dashboard_address="127.0.0.1:0") as cluster,
    ):
        port = cluster.scheduler.services["dashboard"].port
        assert cluster.dashboard_link == f"/user/ada/proxy/{port}/gpusched"
        assert cluster.dashboard_link in cluster._repr_html_()


def test_panel_finds_the_plots() -> None:
    """As the extension reads them, by way of a proxy: relative to the dashboard's address."""
    with gpusched.Cluster(0, gpus=0, dashboard_address="127.0.0.1:0") as cluster:
        # The extension knows distributed's own page, and takes any other for a folder.
        link = cluster.dashboard_link
        with urllib.request.urlopen(f"{link}/individual-plots.json") as answer:
            root = answer.url.rpartition("/")[0]
            plots = json.load(answer)
        assert root == link.rpartition("/")[0]
        ours = {name: address for name, address in plots.items() if "Gpusched" in name}
        assert len(ours) == 11
        for address in ours.values():
            with urllib.request.urlopen(link + address) as answer:
                assert answer.url == root + address
                page = answer.read().decode()
            # The scripts of a page that a proxy has moved must be found there, too.
            assert 'src="static/' in page and 'src="/static/' not in page


def test_only_known_settings_are_made() -> None:
    """Those that dask_labextension and distributed read."""
    assert set(SETTINGS) == {"labextension", "distributed"}
    assert set(SETTINGS["labextension"]) == {"factory", "default", "initial"}
    assert set(SETTINGS["labextension"]["factory"]) == {"module", "class", "args", "kwargs"}


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("", ["localhost", "127.0.0.1"]),
        ("tcp://scheduler:8786", ["localhost", "127.0.0.1", "scheduler"]),
    ],
)
def test_proxy_shows_known_hosts_only(
    monkeypatch: pytest.MonkeyPatch, address: str, hosts: list[str]
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    settings = types.SimpleNamespace(ServerProxy=types.SimpleNamespace())
    source = (FOLDER / "jupyter_server_config.py").read_text()
    exec(compile(source, "jupyter_server_config.py", "exec"), {"get_config": lambda: settings})
    assert settings.ServerProxy.host_allowlist == hosts
