"""torch.compile on the whole tensors; it writes C++, so it needs a compiler."""

from __future__ import annotations

import shutil

import numpy as np
import torch

from tests.benchmarks.contenders.base import THREADS, Prepared, Unavailable
from tests.benchmarks.works import Work


def prepare(work: Work, inputs: list[np.ndarray]) -> Prepared:
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise Unavailable("torch.compile needs a C++ compiler, and none is on the path")
    torch.set_num_threads(THREADS)
    tensors = [torch.from_numpy(x) for x in inputs]
    compiled = torch.compile(lambda *values: work.function(torch, *values), dynamic=False)
    return Prepared(lambda: compiled(*tensors), lambda result: result.numpy())
