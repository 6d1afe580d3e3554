"""jax.jit on the whole arrays; XLA takes a thread for each core it may use."""

from __future__ import annotations

import jax
from jax import numpy as jnp

from tests.benchmarks import names
from tests.benchmarks.contenders.base import Case, Prepared

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def prepare(case: Case) -> Prepared:
    program, xp = case.work.program_of("jax"), names.jax()
    arrays = [jax.block_until_ready(jnp.asarray(x)) for x in case.inputs]
    compiled = jax.jit(lambda *values: program(xp, *values))
    return Prepared(lambda: jax.block_until_ready(compiled(*arrays)))
