"""jax.jit on the whole arrays; XLA takes a thread for each core it may use."""

from __future__ import annotations

import jax
import numpy as np
from jax import numpy as jnp

from tests.benchmarks.contenders.base import Prepared
from tests.benchmarks.works import Work

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    arrays = [jax.block_until_ready(jnp.asarray(x)) for x in inputs]
    compiled = jax.jit(lambda *values: work.function(jnp, *values))
    return Prepared(lambda: compiled(*arrays).block_until_ready())
