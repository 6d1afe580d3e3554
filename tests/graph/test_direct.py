"""The tasks of layers made in one step are dask's."""

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import convert_legacy_graph
from dask.array.utils import assert_eq
from dask.base import tokenize
from dask.blockwise import Blockwise, optimize_blockwise
from dask.core import flatten

from gpusched.graph import optimize
from gpusched.graph.direct import DirectBlockwise, direct
from gpusched.graph.hook import enable

LOADED = np.arange(24.0).reshape(4, 6)


def loaded():
    return da.from_array(LOADED, chunks=(2, 3))


def with_block_info(x, block_info=None):
    return x + block_info[None]["chunk-location"][0]


def options(x, power=1, *, times=2):
    return times * x**power


PROGRAMS = {
    "one-operand": lambda: da.ones((4, 6), chunks=2) + 1,
    "chain": lambda: da.exp(loaded() * 2) - da.full((4, 6), 3.0, chunks=(2, 3)),
    "twice-the-same": lambda: loaded() * loaded(),
    "broadcast": lambda: loaded() + da.arange(6, chunks=3) + da.ones((4, 1), chunks=(2, 1)),
    "transposed": lambda: loaded().T + da.ones((6, 4), chunks=(3, 2)),
    "0-d": lambda: loaded() * da.asarray(2.0),
    "contracted": lambda: da.tensordot(loaded(), loaded(), axes=((1,), (1,))),
    "joined": lambda: da.blockwise(
        lambda x: x.sum(1), "i", loaded(), "ij", concatenate=True, dtype=float
    ),
    "new-axis": lambda: da.blockwise(
        lambda x: x[..., None] * np.ones(5), "ijk", loaded(), "ij", new_axes={"k": 5}, dtype=float
    ),
    "keywords": lambda: loaded().map_blocks(options, power=3, times=da.asarray(4), dtype=float),
    "nested-keywords": lambda: loaded().map_blocks(
        lambda x, several: x + several[0], several=[da.asarray(4)], dtype=float
    ),
    "places": lambda: loaded().map_blocks(with_block_info, dtype=float),
    "array-given-whole": lambda: loaded().map_blocks(np.add, np.ones((2, 3)), dtype=float),
    "delayed-given-whole": lambda: loaded().map_blocks(np.add, dask.delayed(5.0), dtype=float),
    "random": lambda: da.random.default_rng(3).normal(size=(4, 6), chunks=2) * 2,
    "reduced": lambda: (loaded() ** 2).mean(axis=0),
    "part": lambda: ((loaded() + 1) * 2)[:2],
    "overlap": lambda: da.map_overlap(np.negative, loaded(), depth=1, boundary="periodic"),
}


@pytest.fixture(params=list(PROGRAMS))
def program(request):
    return PROGRAMS[request.param]()


def test_tasks_are_dask_s(program):
    keys = list(flatten(program.__dask_keys__()))
    theirs = optimize_blockwise(program.dask, keys=keys).cull(keys)
    ours = direct(program.dask, keys).cull(keys)
    assert list(ours.layers) == list(theirs.layers)
    assert any(type(layer) is DirectBlockwise for layer in ours.layers.values())
    assert not any(type(layer) is Blockwise for layer in ours.layers.values())
    assert ours.dependencies == theirs.dependencies
    expected = convert_legacy_graph(theirs.to_dict())
    found = convert_legacy_graph(ours.to_dict())
    assert list(found) == list(expected)
    for key, task in found.items():
        assert task.key == key
        assert task.dependencies == expected[key].dependencies
        assert task.data_producer == expected[key].data_producer
        assert tokenize(task) == tokenize(expected[key]), key


def test_values_are_numpy_s(program):
    expected = program.compute(scheduler="sync")
    with enable():
        assert_eq(program, expected, scheduler="sync", check_graph=False)


def test_layers_that_have_been_made_are_kept():
    program = loaded() + 1
    layer = program.dask.layers[program.name]
    made = dict(layer)
    assert direct(program.dask, flatten(program.__dask_keys__())).layers[program.name] is layer
    assert dict(layer) == made


def test_annotations_are_kept():
    with dask.annotate(priority=3):
        program = loaded() + 1
    keys = list(flatten(program.__dask_keys__()))
    layer = direct(program.dask, keys).layers[program.name]
    assert layer.annotations == {"priority": 3}
    assert layer.cull(set(keys[:1]), ())[0].annotations == {"priority": 3}


def test_keys_may_be_a_set_as_in_dask():
    x = da.ones((4, 4), chunks=2) + 1
    keys = set(flatten(x.__dask_keys__()))
    assert optimize(x.dask, keys).keys() == optimize(x.dask, list(keys)).keys()


@pytest.mark.parametrize("fuse", [True, False])
def test_dask_may_be_told_to_fuse_nothing(fuse):
    program = da.exp(loaded()) + 1
    with enable(), dask.config.set({"optimization.fuse.active": fuse}):
        assert_eq(program, np.exp(LOADED) + 1, scheduler="sync")
