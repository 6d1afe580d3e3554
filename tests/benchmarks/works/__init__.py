"""What is measured: one file a work, or a family of them."""

from __future__ import annotations

from tests.benchmarks.works import (
    black_scholes,
    climate,
    clip,
    dense,
    heat,
    inference,
    mandelbrot,
    pairwise,
    softmax,
    standardise,
    sums,
    terrain,
    tiny,
)
from tests.benchmarks.works.base import Work

WORKS: dict[str, Work] = {
    work.name: work
    for work in (
        black_scholes.TANH,
        black_scholes.ERF,
        clip.WORK,
        sums.SQUARE_SUM,
        sums.STATISTICS,
        standardise.WORK,
        heat.WORK,
        softmax.WORK,
        terrain.WORK,
        pairwise.WORK,
        dense.WORK,
        mandelbrot.WORK,
        tiny.TEN,
        tiny.HUNDRED,
        climate.WORK,
        inference.WORK,
    )
}
"""The works by name, in the order of their numbers."""
