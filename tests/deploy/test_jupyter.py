"""JupyterLab's settings: a cluster started as dask-labextension starts it."""

from __future__ import annotations

import asyncio
import importlib
import types
from typing import Any

import dask.config
import pytest
import yaml

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
        assert cluster.dashboard_link == f"/proxy/{port}/status"
        cluster.scale(0)
        adaptive = cluster.adapt(minimum=0, maximum=1)
        assert (adaptive.minimum, adaptive.maximum) == (0, 1)
    finally:
        await cluster.close()


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
