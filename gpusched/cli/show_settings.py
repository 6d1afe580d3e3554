"""The settings in force, and what they would start."""

from __future__ import annotations

from typing import Any

import dask.config
import yaml
from dask.utils import format_bytes

from gpusched.cluster.allocation import allocate
from gpusched.workers.visible_gpus import NoDeviceError


def show(processes: bool = True, planned: bool = True) -> str:
    """Return the settings in force as YAML, after a line that says what they would start.

    Examples
    --------
    >>> from gpusched.cli.show_settings import show
    >>> print(show(processes=False).splitlines()[1])
    gpusched:
    """
    settings: dict[str, Any] = {"gpusched": dask.config.get("gpusched")}
    lines = [_planned(processes)] if planned else []
    return "\n".join([*lines, yaml.safe_dump(settings, sort_keys=False).rstrip()])


def _planned(processes: bool) -> str:
    try:
        workers = allocate(processes=processes)
    except NoDeviceError as error:
        return f"# {error}"
    kind = "process" if processes else "in this process"
    devices = f"GPUs {', '.join(workers.devices)}" if workers.devices else "no GPU"
    memory = format_bytes(workers.memory_limit) if workers.memory_limit else "no limit"
    return (
        f"# workers: {workers.workers} ({kind}), threads of each: {workers.threads}, "
        f"memory of each: {memory}, {devices}"
    )
