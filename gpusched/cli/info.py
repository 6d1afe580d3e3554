"""``gpusched info``: what this machine has, what is installed, and which settings are in force."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import dask.config
import yaml
from dask.utils import format_bytes, natural_sort_key

from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.scheduler_connection import ask, describe, scheduler_flags
from gpusched.cluster.allocation import allocate
from gpusched.quantities import count
from gpusched.rendering.text import Section, titled
from gpusched.workers.visible_gpus import NoDeviceError


@click.command("info")
@scheduler_flags
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def info(scheduler: str | None, as_json: bool, **certificates: str | None) -> None:
    """Show this machine's devices, versions and settings.

    With --scheduler, the workers of that cluster are shown, too.
    """
    found = collect()
    if scheduler is not None:
        found["workers"] = _workers(scheduler, certificates)
    click.echo(json.dumps(found, indent=2, default=str) if as_json else text(found))


def collect() -> dict[str, Any]:
    """Return the facts of this machine, as JSON can hold it."""
    from gpusched.setting_origins import effective_settings
    from gpusched.workers.gpu_topology import links

    return {
        "devices": _devices(),
        "links": [asdict(link) for link in links()],
        "memory": _memory(),
        "versions": _versions(),
        "kernel_cache": _kernel_cache(),
        "thread_policies": _thread_policies(),
        "settings": [asdict(setting) for setting in effective_settings()],
    }


def _devices() -> list[dict[str, Any]]:
    from gpusched.workers import affinity, nvml
    from gpusched.workers.visible_gpus import visible_devices

    gpus = []
    for entry in visible_devices():
        facts = nvml.facts(entry)
        if facts is None:
            gpus.append({"kind": "cuda", "entry": entry})
            continue
        sample = nvml.sample(facts.uuid)
        gpus.append({"kind": "cuda", "entry": entry, **(asdict(sample) if sample else {}),
                     **asdict(facts)})  # fmt: skip
    return gpus or [{"kind": "cpu", "cores": list(affinity.allowed_cpus())}]


def _memory() -> dict[str, int]:
    import psutil
    from distributed.system import MEMORY_LIMIT

    found = psutil.virtual_memory()
    return {"total": found.total, "available": found.available, "limit": MEMORY_LIMIT}


def _versions() -> dict[str, str | None]:
    import importlib.metadata

    from gpusched.workers.version_check import own_versions

    others: dict[str, str | None] = {}
    for name in ("numpy", "numba", "llvmlite", "numba-cuda", "cuda-core", "nvidia-ml-py"):
        try:
            others[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            others[name] = None
    others["cupy"] = next(
        (
            f"{found.version} ({found.metadata['Name']})"
            for found in importlib.metadata.distributions()
            if (found.metadata["Name"] or "").startswith("cupy")
        ),
        None,
    )
    return {**own_versions(), **others}


def _kernel_cache() -> dict[str, Any]:
    from gpusched.store.kernelfiles import directory

    folder = directory()
    if folder is None:
        return {"folder": None, "files": 0, "bytes": 0}
    sizes = [size for path in folder.rglob("*") if (size := _size(path)) is not None]
    return {"folder": str(folder), "files": len(sizes), "bytes": sum(sizes)}


def _thread_policies() -> list[dict[str, Any]]:
    from gpusched import config
    from gpusched.threadsafe import protections

    if not config.get("threadsafe.enabled"):
        return []
    return [
        {key: getattr(each, key) for key in ("library", "policy", "origin", "why", "evidence")}
        for each in protections()
    ]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except FileNotFoundError:
        # Other processes write kernels meanwhile, under a passing name first.
        return None


def _workers(address: str, certificates: Mapping[str, str | None]) -> list[dict[str, Any]]:
    from gpusched.cluster.contact import NoSchedulerError

    try:
        found = ask(address, describe, certificates)["workers"]
    except ValueError as error:
        raise Unusable(str(error)) from None
    except NoSchedulerError as error:
        raise Failed(str(error)) from None
    return [
        {
            "address": where,
            "name": str(worker["name"]),
            "status": worker["status"],
            "threads": worker["nthreads"],
            "memory_limit": worker["memory_limit"],
            "resources": worker["resources"],
            "process_bytes": worker["metrics"]["memory"],
            **worker["metrics"].get("gpusched", {}),
        }
        for where, worker in sorted(
            found.items(), key=lambda each: natural_sort_key(str(each[1]["name"]))
        )
    ]


def text(found: dict[str, Any]) -> str:
    """Return for people what `collect` found."""
    policies = [(p["library"], p["policy"], p["origin"], p["why"])
                for p in found["thread_policies"]]  # fmt: skip
    return titled(
        ("Devices", ("device", "what", "memory", "now"), map(_device_row, found["devices"])),
        *_links(found["links"]),
        ("Host", ("what", "how much"), _host(found)),
        ("Versions", ("package", "version"),
         [(package, version or "not installed") for package, version in found["versions"].items()]),
        ("Thread policies of workers", ("library", "policy", "from", "why"), policies),
        ("Settings", ("setting", "value", "from"),
         [(s["name"], str(s["value"]), s["origin"]) for s in found["settings"]]),
        *_worker_table(found.get("workers")),
    )  # fmt: skip


def _links(links: list[dict[str, Any]]) -> Iterator[Section]:
    rows = [
        (f"{link['first']} - {link['second']}", f"{link['nvlinks']} NVLinks", link["path"])
        for link in links
    ]
    if rows:
        yield "Links", ("GPUs", "NVLink", "PCIe"), rows


def _host(found: dict[str, Any]) -> list[tuple[str, str]]:
    memory, cache = found["memory"], found["kernel_cache"]
    return [
        ("host memory", f"{format_bytes(memory['total'])}, available "
                        f"{format_bytes(memory['available'])}, limit "
                        f"{format_bytes(memory['limit'])}"),
        ("kernel cache", f"{cache['folder'] or 'in memory only'}, {count(cache['files'], 'file')}, "
                         f"{format_bytes(cache['bytes'])}"),
    ]  # fmt: skip


def _device_row(device: dict[str, Any]) -> tuple[str, str, str, str]:
    if device["kind"] == "cpu":
        cores = device["cores"]
        return (
            "CPU",
            f"{count(len(cores), 'core')} ({_ranges(cores)}), no GPU visible",
            "the host's",
            "-",
        )
    if "uuid" not in device:
        return device["entry"], "GPU; NVML does not answer", "unknown", "-"
    now = [
        f"{device[key]:.0f} {unit}"
        for key, unit in (("utilization", "%"), ("temperature", "C"), ("power", "W"))
        if device.get(key) is not None
    ]
    used = device.get("memory_used")
    taken = "" if used is None else f", {format_bytes(used)} used"
    return (
        f"GPU {device['entry']}",
        f"{device['name']} {device['uuid']}, cores {_ranges(device['cpus']) or 'unknown'}",
        format_bytes(device["memory_total"]) + taken,
        ", ".join(now) or "-",
    )


def _ranges(cores: list[int]) -> str:
    from gpusched.workers.affinity import ranges

    return ranges(cores)


def _worker_table(workers: list[dict[str, Any]] | None) -> Iterator[Section]:
    if workers is None:
        return
    rows = []
    for worker in workers:
        device, spill = worker.get("device", {}), worker.get("spill", {})
        kernels = worker.get("kernels", {})
        rows.append((
            worker["name"], worker["address"], worker["status"],
            f"{format_bytes(worker['process_bytes'])} of "
            f"{format_bytes(worker['memory_limit'] or 0)}",
            f"{device.get('kind', '-')} {device.get('uuid', '')}".strip(),
            format_bytes(spill.get("disk_bytes", 0)),
            str(kernels.get("launches", 0)),
        ))  # fmt: skip
    headings = ("worker", "address", "status", "memory", "device", "on disk", "kernel launches")
    yield "Workers", headings, rows


def show(processes: bool = True, planned: bool = True) -> str:
    """Return the settings in force as YAML, after a line that says what they would start.

    Examples
    --------
    >>> from gpusched.cli.info import show
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
