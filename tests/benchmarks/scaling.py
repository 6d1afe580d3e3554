"""Growth, and thousands of GPUs by simulation: `python -m tests.benchmarks.scaling --help`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dask.array as da
from dask._task_spec import Task
from dask.array.optimization import optimize as dask_optimize
from dask.blockwise import Blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

from gpusched import disable, explain
from tests.benchmarks import page, report
from tests.benchmarks.growth import Growth, costs, measure
from tests.benchmarks.simulation import Costs, Program, most, simulate
from tests.benchmarks.works import black_scholes

GPUS = (8, 64, 512, 4096)
CHUNKS = (64 << 20, 256 << 20, 1 << 30, 4 << 30)
"""Bytes of the chunks that are simulated."""
A_GPU = 24
"""Chunks that each GPU gets in a simulation: enough for the start and the end not to count."""
MIB = 1 << 20


def options(x: da.Array, y: da.Array, z: da.Array) -> Any:
    """Return W1: six results of three inputs."""
    return list(black_scholes.greeks(black_scholes.tanh_form, da, x, y, z))


def squares(x: da.Array, y: da.Array, z: da.Array) -> Any:
    """Return W3: a sum."""
    return (((x - y) * z) ** 2).sum()


def programs(name: str, build: Callable[..., Any], chunks: int = 64) -> dict[str, Program]:
    """Return what gpusched and plain dask do with each chunk, counted in their graphs."""
    length = 1 << 17
    inputs = [da.zeros(chunks * length, chunks=length, dtype="f8", name=f"in-{k}") for k in "abc"]
    built = build(*[_held(x) for x in inputs])
    told = explain(built).totals
    moved = told.bytes_moved / chunks / (8 * length)
    fused = Program(f"{name} fused", told.launches / chunks, moved, told.tasks_after / chunks)
    arrays = built if isinstance(built, list) else [built]
    graph = HighLevelGraph.merge(*(array.dask for array in arrays))
    keys = list(flatten([array.__dask_keys__() for array in arrays]))
    with disable():
        optimised = dask_optimize(graph, keys)
    tasks = sum(isinstance(node, Task) for node in dict(optimised).values())
    calls = [layer for layer in graph.layers.values() if isinstance(layer, Blockwise)]
    moved = sum(1 + sum(index is not None for _, index in layer.indices) for layer in calls)
    return {
        "fused": fused,
        "plain": Program(f"{name} plain", len(calls), float(moved), tasks / chunks),
    }


def _held(x: da.Array) -> da.Array:
    """Return an array whose chunks are data, rather than tasks that make them."""
    graph = {key: x.blocks[0].compute() for key in flatten(x.__dask_keys__())}
    return da.Array(graph, x.name, x.chunks, dtype=x.dtype)


def growth_table(found: list[Growth]) -> str:
    """Return seconds, and how much more of them four times the size takes."""
    lines = ["| work | size | " + " | ".join(_column(*each) for each in _COLUMNS) + " |"]
    lines.append("| --- | --- |" + " --- |" * len(_COLUMNS))
    by = {(g.work, g.scale, g.workers, g.fused): g.seconds for g in found}
    for work, scale in dict.fromkeys((g.work, g.scale) for g in found):
        cells = []
        for workers, fused in _COLUMNS:
            now, before = (by.get((work, s, workers, fused)) for s in (scale, scale // 4))
            more = f" (x {now / before:.1f})" if now and before else ""
            cells.append(f"{now:.2f} s{more}" if now else "")
        lines.append(f"| {work} | {scale}x | " + " | ".join(cells) + " |")
    return "\n".join(lines)


_COLUMNS = [(workers, fused) for fused in (True, False) for workers in (1, 2)]


def _column(workers: int, fused: bool) -> str:
    return f"{'gpusched' if fused else 'plain dask'}, {workers} worker{'s' * (workers > 1)}"


def costs_table(known: Costs) -> str:
    """Return what the simulation is calibrated with."""
    return "\n".join(
        [
            "| cost | | |",
            "| --- | --- | --- |",
            f"| scheduler, a task | {known.scheduler * 1e6:.0f} us | measured here: its CPU time |",
            f"| worker, a task | {known.worker * 1e6:.0f} us | measured here: its CPU time |",
            f"| a kernel | {known.launch * 1e6:.0f} us | measured here: look-up and launch |",
            f"| a message | {known.latency * 1e6:.0f} us | measured here, 100 us at least |",
            f"| GPU memory | {known.bandwidth / 1e12:g} TB/s | assumed |",
        ]
    )


def simulated(known: Costs, all_programs: list[dict[str, Program]]) -> list[dict[str, Any]]:
    """Return a row for each program, chunk and number of GPUs."""
    rows = []
    for pair in all_programs:
        for chunk in CHUNKS:
            for gpus in GPUS:
                for how, program in pair.items():
                    found = simulate(program, known, gpus, A_GPU * gpus, chunk)
                    rate = A_GPU * gpus * chunk / found.seconds
                    most_gpus = most(program, known, chunk)
                    rows.append({"program": program.name, "how": how, "chunk": chunk, "gpus": gpus,
                                 "computing": found.computing, "rate": rate,
                                 "scheduling": found.scheduling, "most": most_gpus})  # fmt: skip
    return rows


def simulated_table(rows: list[dict[str, Any]]) -> str:
    """Return the part of the time that GPUs compute, and how many one scheduler keeps busy."""
    head = " | ".join(f"{gpus:,} GPUs" for gpus in GPUS)
    lines = [f"| program | chunk | {head} | kept busy |", "| --- | --- |" + " --- |" * 5]
    for program, chunk in dict.fromkeys((row["program"], row["chunk"]) for row in rows):
        chosen = [r for r in rows if (r["program"], r["chunk"]) == (program, chunk)]
        cells = [f"{r['computing']:.0%}, {_rate(r['rate'])}" for r in chosen]
        kept = f"{chosen[0]['most']:,.0f}"
        lines.append(f"| {program} | {chunk / MIB:,.0f} MiB | {' | '.join(cells)} | {kept} |")
    return "\n".join(lines)


def _rate(rate: float) -> str:
    power = min(2, max(0, int(math.log10(rate / 1e9) // 3)))
    return f"{rate / 1e9 / 1000**power:.3g} {('GB', 'TB', 'PB')[power]}/s"


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Draw input bytes a second over the number of GPUs, a panel for each program."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["program"].split()[0] for row in rows))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpusched", "font.size": 9}):
        figure = Figure((9, 3.6), layout="constrained")
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            for how, style in (("fused", "-"), ("plain", ":")):
                for number, chunk in enumerate(CHUNKS):
                    line = [
                        r for r in rows if (r["program"], r["chunk"]) == (f"{name} {how}", chunk)
                    ]
                    axes.plot([r["gpus"] for r in line], [r["rate"] / 1e12 for r in line], style,
                              color=f"C{number}", marker=".",
                              label=f"{chunk / MIB:,.0f} MiB, {how}")  # fmt: skip
            axes.set(xscale="log", yscale="log", title=name, xlabel="GPUs")
            axes.set_xticks(GPUS, [f"{n:,}" for n in GPUS])
            axes.grid(linewidth=0.3)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", fontsize=8)
        figure.axes[0].set_ylabel("TB of input a second")
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scaling", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write tables and plot there")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--rounds", type=int, default=3, help="of the two smallest sizes")
    parser.add_argument("--largest", type=int, default=64, help="size; 1, 4, 16 and 64 are known")
    options_ = parser.parse_args()
    known = costs()
    rows = simulated(known, [programs("W1", options), programs("W3", squares)])
    grown = measure(options_.rounds, options_.largest)
    parts = [
        report.header("tests.benchmarks.scaling", sys.argv[1:]),
        growth_table(grown),
        costs_table(known),
        simulated_table(rows),
    ]
    if options_.json:
        found = {"growth": [asdict(g) for g in grown], "costs": asdict(known), "simulated": rows}
        options_.json.write_text(json.dumps(found, indent=1))
    if options_.write:
        picture = options_.write.with_suffix(".svg")
        draw(picture, rows)
        parts.append(f"![Bytes of input a second, by GPUs and chunks]({picture.name})")
        page.replace(options_.write, "\n\n".join(parts))
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
