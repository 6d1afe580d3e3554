"""Kinds of tasks -> stages: one for each array whose chunks are made."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dask.blockwise import Blockwise
from dask.core import istask

from gpusched.adapters.tasks import Alias, GraphNode, Task
from gpusched.graph.passes.fitting import needed
from gpusched.graph.passes.sizes import Sizes
from gpusched.inspection.cost import Work, stage_seconds, task_seconds, total, work_of
from gpusched.inspection.gather import Wanted
from gpusched.inspection.model import (
    Boundary,
    ChunkArray,
    Stage,
    StageDevice,
    StageKernel,
    StageTiles,
    StageUnjoined,
)
from gpusched.inspection.places import Place, place_of_function, place_of_layer, variable_of_layer
from gpusched.inspection.source import places_of
from gpusched.inspection.standins import arrays_in
from gpusched.inspection.variant import DeviceUse, Variant
from gpusched.inspection.walk import Walked
from gpusched.machine import Machine


def title(layer: str) -> str:
    """Return a layer's name without its digest.

    Examples
    --------
    >>> from gpusched.inspection.stages import title
    >>> title("sum-aggregate-2e97a143fb6f4d672c1d1c83373410b7")
    'sum-aggregate'
    """
    layer = layer.replace("-finalize-hlgfinalizecompute", "")
    head, _, tail = layer.rpartition("-")
    digest = len(tail) >= 16 and all(c in "0123456789abcdef" for c in tail)
    return head if head and digest else layer


def count_tasks(layer: Any) -> int:
    """Return the tasks of a layer: what it only holds, or gives another name, is not one."""
    if isinstance(layer, Blockwise) and not layer.is_materialized():
        return 0 if isinstance(layer.task, Alias) else len(layer)
    return sum(
        isinstance(node, Task) if isinstance(node, GraphNode) else istask(node)
        for node in layer.values()
    )


def stages(wanted: Wanted, walked: Walked, machine: Machine, sizes: Sizes) -> list[Stage]:
    """Return the stages in an order in which they can run."""
    groups: defaultdict[str, list[Variant]] = defaultdict(list)
    for variant in walked.variants:
        groups[variant.name].append(variant)
    numbers = {name: k for k, name in enumerate(groups, 1)}
    owners: dict[str, str] = {}
    for name, variants in groups.items():
        for layer in dict.fromkeys(each for v in variants for each in v.layers):
            owners.setdefault(layer, name)
    before: Counter[str] = Counter()
    for layer, name in owners.items():
        if layer in wanted.built.layers:
            before[name] += count_tasks(wanted.built.layers[layer])
    return [
        _stage(name, variants, numbers, before[name], walked, machine, wanted, sizes)
        for name, variants in groups.items()
    ]


def _stage(name: str, variants: list[Variant], numbers: dict[str, int], before: int,
           walked: Walked, machine: Machine, wanted: Wanted, sizes: Sizes) -> Stage:  # fmt: skip
    main = max(variants, key=lambda v: v.tasks)
    tasks = sum(v.tasks for v in variants)
    work = _work(main)
    read, written = _moved(main)
    moved = sum(v.tasks * sum(_moved(v)) for v in variants)
    cached = sum(v.tasks * _cached(v) for v in variants)
    launches = Counter[str]()
    for variant in variants:
        for use in variant.kernels:
            launches[use.kernel.name] += variant.tasks
    in_kernels = sum(u.launch.bytes_read + u.launch.bytes_written for u in main.kernels)
    in_kernel_work = total(work_of(u.kernel) * u.elements for u in main.kernels)
    called = Counter[str]()
    for variant in variants:
        for call in variant.calls:
            called[call.name] += variant.tasks
    return Stage(
        number=numbers[name],
        name=title(name),
        layer=name,
        variable=variable_of_layer(name),
        places=tuple(_places(main)),
        layers=tuple(dict.fromkeys(layer for v in variants for layer in v.layers)),
        tasks_before=before,
        tasks_after=tasks,
        kinds=len(variants),
        inputs=tuple(_chunk(layer, array) for layer, array in main.inputs),
        results=tuple(_chunk(name, array) for array in arrays_in(main.result)),
        kernels=tuple(_kernels(main, launches)),
        tiles=tuple(_tiles(main)),
        unjoined=tuple(_unjoined(main)),
        calls=tuple(called.items()),
        bytes_read=read,
        bytes_written=written,
        bytes_least_read=main.least_read,
        bytes_least_written=main.least_written,
        bytes_total=moved,
        bytes_exact=all(call.known for call in main.calls) and not main.unknown,
        operations=work.operations,
        heavy=work.heavy,
        intensity=in_kernel_work.operations / in_kernels if in_kernels else None,
        seconds=task_seconds(machine, read + written - _cached(main), work, len(main.kernels)),
        seconds_total=stage_seconds(
            machine, tasks, moved - cached, total(_work(v) * v.tasks for v in variants),
            launches.total(),
        ),
        peak=max(v.peak for v in variants),
        peak_exact=all(v.peak_known for v in variants),
        peak_lent=max(sum(v.joined) if v.joined else v.peak for v in variants),
        need=max(_need(wanted, sizes, v) for v in variants),
        peak_unfused=max(v.unfused_peak for v in variants),
        peak_unfused_exact=all(v.unfused_peak_known for v in variants),
        boundaries=tuple(_boundaries(name, numbers, tasks, walked)),
        devices=tuple(_devices(variants)),
        unknown=main.unknown,
    )  # fmt: skip


def _need(wanted: Wanted, sizes: Sizes, variant: Variant) -> int:
    found = needed(wanted.tasks, wanted.tasks[variant.key], sizes)
    lent = sum(variant.joined) if variant.joined else variant.peak
    return found.total if found.whole else max(found.total, lent)


def _moved(variant: Variant) -> tuple[int, int]:
    read = sum(u.launch.bytes_read for u in variant.kernels)
    written = sum(u.launch.bytes_written for u in variant.kernels)
    return (
        read + sum(call.bytes_read for call in variant.calls),
        written + sum(call.bytes_written for call in variant.calls),
    )


def _work(variant: Variant) -> Work:
    """Return the operations of a task; of what NumPy is called for, one a result's element."""
    kernels = total(work_of(use.kernel) * use.elements for use in variant.kernels)
    return kernels + Work(sum(call.bytes_written / 8 for call in variant.calls))


def _kernels(main: Variant, launches: Counter[str]) -> list[StageKernel]:
    found = {use.kernel.name: use for use in main.kernels}
    return [
        StageKernel(name, count, found[name].launch.bytes_read, found[name].launch.bytes_written)
        if name in found
        else StageKernel(name, count, 0, 0)
        for name, count in launches.items()
    ]


def _tiles(main: Variant) -> list[StageTiles]:
    return [
        StageTiles(
            tuple(launch.kernel.kernel.name for launch in tiles.launches),
            tiles.rows,
            tiles.all_rows,
            tiles.bytes_cached,
        )
        for tiles in main.tiles
    ]


def _devices(variants: list[Variant]) -> Iterator[StageDevice]:
    tasks, up, down = Counter[DeviceUse](), Counter[DeviceUse](), Counter[DeviceUse]()
    for variant in variants:
        for use in variant.devices:
            where = replace(use, to_device=0, to_host=0)
            tasks[where] += variant.tasks
            up[where] += variant.tasks * use.to_device
            down[where] += variant.tasks * use.to_host
    for where, count in tasks.items():
        yield StageDevice(where.name, where.on_device, where.reason, count, up[where], down[where])


def _unjoined(main: Variant) -> list[StageUnjoined]:
    return [
        StageUnjoined(launch.name, launch.parts, len(launch.regions), launch.bytes_copied)
        for launch in main.unjoined
    ]


def _cached(variant: Variant) -> int:
    return sum(tiles.bytes_cached for tiles in variant.tiles)


def _places(variant: Variant) -> list[Place]:
    found: list[Place | None] = [place_of_layer(layer) for layer in variant.layers]
    for use in variant.kernels:
        found += places_of(use)
    found += [place_of_function(halt.function) for halt in variant.halts if halt.function]
    return list(dict.fromkeys(place for place in found if place is not None))


def _chunk(layer: str, array: Any) -> ChunkArray:
    name = variable_of_layer(layer) or title(layer) or "data"
    return ChunkArray(name, str(array.dtype), tuple(array.shape))


def _boundaries(name: str, numbers: dict[str, int], tasks: int, walked: Walked) -> list[Boundary]:
    readers: defaultdict[str, set[str]] = defaultdict(set)
    for source, reader in walked.edges:
        readers[source].add(reader)
    made = Counter[str]()
    for variant in walked.variants:
        made[variant.name] += variant.tasks
    found = []
    for (source, reader), count in walked.edges.items():
        if reader != name or source == name:
            continue
        others = len(readers[source] - {source})
        if count > tasks:
            reason = "each task needs several of its chunks"
        elif others > 1:
            reason = f"{others} stages use it"
        elif source in walked.results:
            reason = "it is a result itself"
        elif count > made[source]:
            reason = "several tasks need each of its chunks"
        else:
            reason = "dask keeps these tasks apart"
        found.append(Boundary(numbers[source], count / tasks, reason))
    return found
