"""Black-Scholes with Greeks as one kernel, against JAX and torch.compile on the same chunk.

`python -m tests.benchmarks.one_kernel --help`.  Seconds of the processor rather than of the clock,
so that what else the machine does counts less; `taskset -c 0` in front of it gives one thread.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from gpusched.backends.cache import kernels
from gpusched.emit.kernel import FAST
from gpusched.plan.overrides import applied
from tests.benchmarks import names, report
from tests.benchmarks.contenders.base import THREADS
from tests.benchmarks.works import WORKS
from tests.record import recording

Ways = dict[str, Callable[[], Any]]
FORMS = ("black-scholes-tanh", "black-scholes-erf")


def ours(program: Callable[..., Any], inputs: list[np.ndarray]) -> Ways:
    """Return the kernel's runs in both modes, an equal part of the chunk for each thread."""
    parts = [np.array_split(x, THREADS) for x in inputs]
    plans = [
        recording.record(lambda *a: program(names.numpy(), *a), *part).plan
        for part in zip(*parts, strict=True)
    ]
    pool, ways = ThreadPoolExecutor(THREADS), dict[str, Callable[[], Any]]()
    for mode in ("exact", FAST):
        found = [replace(plan, steps=[_in(mode, step) for step in plan.steps]) for plan in plans]
        work = list(zip(found, zip(*parts, strict=True), strict=True))
        ways[mode] = lambda work=work: list(pool.map(lambda pair: pair[0].run(pair[1]), work))
    return ways


def _in(mode: str, step: Any) -> Any:
    return replace(step, kernel=kernels.get(applied(step.kernel.kernel, mode)))


def with_jax(program: Callable[..., Any], inputs: list[np.ndarray]) -> Callable[[], Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    compiled = jax.jit(lambda *a: program(names.jax(), *a))
    arrays = [jax.numpy.asarray(x) for x in inputs]
    return lambda: jax.block_until_ready(compiled(*arrays))


def with_torch(program: Callable[..., Any], inputs: list[np.ndarray]) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(THREADS)
    compiled = torch.compile(lambda *a: program(names.torch(), *a), dynamic=False)
    tensors = [torch.from_numpy(x) for x in inputs]
    return lambda: compiled(*tensors)


def measure(name: str, dtype: str, count: int, repeat: int) -> dict[str, float]:
    """Return each one's median of seconds, taken in turn in random order."""
    work = WORKS[name]
    inputs = work.inputs(count, dtype)
    ways: Ways = {
        **ours(work.program, inputs),
        "JAX": with_jax(work.program, inputs),
        "torch.compile": with_torch(work.program, inputs),
    }
    for way in [*ways.values()] * 2:
        way()
    taken: dict[str, list[float]] = {way: [] for way in ways}
    order, shuffler = list(ways), random.Random(0)
    for _ in range(repeat):
        shuffler.shuffle(order)
        for way in order:
            start = process_time()
            result = ways[way]()
            taken[way].append(process_time() - start)
            del result
    return {way: median(seconds) for way, seconds in taken.items()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.one_kernel")
    parser.add_argument(
        "--elements", type=int, default=1 << 19, help="of the chunk (default 2**19)"
    )
    parser.add_argument("--repeat", type=int, default=25, help="timings of each (default 25)")
    options = parser.parse_args(arguments)
    print(report.header("tests.benchmarks.one_kernel", arguments))
    print(f"\nNanoseconds of the processor an element, {THREADS} threads, and how many times that")
    print("of the exact mode the others take:\n")
    print("| work | dtype | exact | fast | JAX / exact | torch.compile / exact |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in FORMS:
        for dtype in ("float32", "float64"):
            found = measure(name, dtype, options.elements, options.repeat)
            each = {way: 1e9 * seconds / options.elements for way, seconds in found.items()}
            ratios = [f"{each[way] / each['exact']:.1f}" for way in ("JAX", "torch.compile")]
            print(f"| {name} | {dtype} | {each['exact']:.1f} | {each[FAST]:.1f} | "
                  f"{' | '.join(ratios)} |", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
