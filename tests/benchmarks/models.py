"""`gpusched.apply` against `map_blocks` with a closure: `python -m tests.benchmarks.models --help`.

A small torch network, so that what counts is what surrounds it; and a large one, whose weights a
closure carries in each task. Both ways by turns, in random order.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import dask.array as da
import numpy as np
import psutil
import torch
from distributed import Client

import gpusched
from tests.benchmarks import report

FEATURES, CLASSES = 8, 3


def network(hidden: int) -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Linear(FEATURES, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, CLASSES)
    return torch.nn.Sequential(*layers).eval()


def with_apply(model: Any, x: da.Array) -> da.Array:
    found: da.Array = gpusched.apply(model, x)
    return found


def with_map_blocks(model: Any, x: da.Array) -> da.Array:
    def call(block: Any) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(block)).numpy()

    meta = np.empty((0, 0), "float32")
    found: da.Array = x.map_blocks(call, chunks=(x.chunks[0], (CLASSES,)), meta=meta)
    return found


Times = dict[str, tuple[float, float]]
"""Seconds by the clock and of CPUs, by way."""

WAYS: dict[str, Callable[[Any, da.Array], da.Array]] = {
    "apply": with_apply,
    "map_blocks": with_map_blocks,
}


def cpu_seconds() -> float:
    """Return the seconds of this process and those below it, which a busy machine changes least."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def measure(chunks: int, hidden: int, repeat: int, fused: bool) -> Times:
    """Return the median seconds of each way, from the call to the sum."""
    x = da.random.default_rng(0).random((chunks * 1000, FEATURES), chunks=(1000, FEATURES))
    x, model = x.astype("float32"), network(hidden)
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    sums, order, shuffler = [], list(WAYS), random.Random(0)
    for turn in range(repeat + 1):
        shuffler.shuffle(order)
        for way in order:
            start, spent = perf_counter(), cpu_seconds()
            with gpusched.enable() if fused else gpusched.disable():
                sums.append(float(WAYS[way](model, x * 2 - 1).sum().compute()))
            if turn:
                # The first turn compiles, and starts threads.
                taken[way].append((perf_counter() - start, cpu_seconds() - spent))
    np.testing.assert_allclose(sums, sums[0], rtol=1e-4)
    return {
        way: (median(clock for clock, _ in found), median(cpu for _, cpu in found))
        for way, found in taken.items()
    }


def row(where: str, hidden: int, chunks: int, times: Times) -> str:
    kept = (hidden * (FEATURES + CLASSES + 1) + CLASSES) * 4
    (ours, our_cpu), (theirs, their_cpu) = times["apply"], times["map_blocks"]
    return (
        f"| {where} | {kept / 1024:,.1f} kiB | {chunks} | {ours:.2f} s | {theirs / ours:.2f} | "
        f"{our_cpu:.2f} s | {their_cpu / our_cpu:.2f} |"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.models")
    parser.add_argument("--repeat", type=int, default=9, help="timings of each (default 9)")
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--large", type=int, default=20_000, help="hidden units of the large one")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.models", arguments))
    print("\n| where | weights | chunks | apply | map_blocks / it | CPU | map_blocks / it |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, fused in (("threads", False), ("threads, fused", True)):
        times = measure(options.chunks, 16, options.repeat, fused)
        print(row(name, 16, options.chunks, times), flush=True)
    with gpusched.Cluster(2, 1, gpus=0) as cluster, Client(cluster):
        for name, hidden, chunks in (
            ("2 workers, fused", 16, options.chunks),
            ("2 workers, fused", options.large, options.chunks // 10),
        ):
            times = measure(chunks, hidden, options.repeat, True)
            print(row(name, hidden, chunks, times), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
