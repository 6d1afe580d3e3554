"""How many tasks, kernels and bytes: fusion is counted, then its values are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from gpusched.backends.cache import kernels
from gpusched.breaks import GraphBreak
from gpusched.graph import enable
from gpusched.graph.running.traced import ALONE
from gpusched.store.statistics import Statistics, reset_statistics, statistics


@pytest.fixture(autouse=True)
def everything_fuses() -> Iterator[None]:
    with dask.config.set({"gpusched.fusion.strict": True, "gpusched.fusion.minimum-elements": 0}):
        yield


def run(build: Callable[[], Any], **tolerance: float) -> Statistics:
    """Compute with and without fusion, compare, and return the counts of the fused run."""
    expected = build().compute(scheduler="sync")
    reset_statistics()
    with enable():
        found = build().compute(scheduler="sync")
    counts = statistics()
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, **({"rtol": 0, "atol": 0} | tolerance))
    return counts


def persisted(
    shape: tuple[int, ...], chunks: Any, dtype: str = "float32", seed: int = 0
) -> da.Array:
    values = np.random.default_rng(seed).random(shape).astype(dtype)
    return da.from_array(values, chunks=chunks).persist(scheduler="sync")


def test_a_chain_is_one_kernel_a_chunk() -> None:
    x, y = persisted((60, 40), (20, 20)), persisted((60, 40), (20, 20), seed=1)
    counts = run(lambda: da.clip(((x + y) * x - y) / 2, 0.1, 0.7))
    assert (counts.tasks, counts.fused_tasks, counts.launches) == (6, 6, 6)
    assert len(counts.kernels) == 1
    assert counts.bytes_read == 2 * 60 * 40 * 4
    assert counts.bytes_written == 60 * 40 * 4
    assert not counts.breaks


def test_map_and_reduction_are_one_pass() -> None:
    x, y = persisted((64, 32), 16), persisted((64, 32), 16, seed=1)
    counts = run(lambda: (((x - y) * 2) ** 2).sum(), rtol=1e-6)
    chunk_kernels = [n for n in counts.kernels if "add_reduce" in n]
    assert len(chunk_kernels) == 1
    assert counts.kernels[chunk_kernels[0]] == 8
    assert counts.bytes_written == 8 * 4


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex128"])
def test_products_of_matrices_are_added_up_by_one_kernel(dtype: str) -> None:
    x, y = persisted((40, 60), (20, 20), dtype), persisted((60, 30), (20, 30), dtype, seed=1)
    counts = run(lambda: x @ y)
    assert (counts.fused_tasks, counts.launches) == (2, 2)
    assert counts.breaks == {("_matmul", ALONE): 6}


def test_equal_chunks_share_one_kernel_and_one_recording() -> None:
    x = persisted((10_000,), 10)
    before = len(kernels)
    counts = run(lambda: (x * 2 + 1.25) / 3.5)
    assert counts.launches == 1000
    assert counts.recordings == 1
    assert len(kernels) - before <= 1


def test_a_constant_that_changes_does_not_make_a_new_kernel() -> None:
    x = persisted((100,), 50)
    counts = Statistics()
    for step in range(20):
        counts = counts.merge(run(lambda step=step: (x + (7 + step * 0.1)) * 1.5))
    assert len(counts.kernels) == 1


def test_chunks_of_other_shapes_share_the_kernel() -> None:
    x = persisted((95, 30), (20, 30))
    counts = run(lambda: (x + 1) * x)
    assert len(counts.kernels) == 1
    assert counts.recordings == 2


def test_mean_and_std_per_axis() -> None:
    x = persisted((64, 32), (16, 32), "float64")
    counts = run(lambda: (x - x.mean(axis=0)) / x.std(axis=0), rtol=1e-12, atol=1e-14)
    assert counts.fused_tasks >= 8


def test_scalars_of_the_whole_array_fuse() -> None:
    x = persisted((64, 32), (16, 32), "float64")
    counts = run(lambda: (x - x.mean()) / x.std() * 2, rtol=1e-12, atol=1e-14)
    assert [n for n in counts.kernels if n.startswith(("subtract_", "sqrt_subtract"))]
    # dask asks for the dtype that NumPy gives; another one is converted to.
    y = persisted((64, 32), (16, 32), "float32")
    found = run(lambda: (y + y.sum(dtype="f8").astype("f4")) * 2)
    assert {n for n in found.kernels if n.startswith("add_multiply")}


def test_broadcast_of_a_row_and_a_column() -> None:
    x, row, column = persisted((40, 30), 20), persisted((30,), 20), persisted((40, 1), (20, 1))
    counts = run(lambda: (x - row) / column * 2)
    assert len(counts.kernels) <= 2  # chunks of 20 x 10 and 20 x 20 alike
    assert counts.launches == 4


def test_stencil_of_the_users_own_function_fuses() -> None:
    def slope(z: Any) -> Any:
        dx = (z[1:-1, 2:] - z[1:-1, :-2]) / 2
        dy = (z[2:, 1:-1] - z[:-2, 1:-1]) / 2
        return np.sqrt(dx * dx + dy * dy)

    z = persisted((80, 60), 20)
    counts = run(
        lambda: z.map_overlap(slope, depth=1, boundary="reflect", trim=False, dtype="float32")
    )
    assert len(counts.kernels) == 1
    assert counts.launches == 12
    assert counts.bytes_read == 12 * 22 * 22 * 4  # each element once, though four views show it


@pytest.mark.parametrize(
    ("call", "kernels"),
    [
        (lambda x: np.sin(x), 1),
        (lambda x: x > 0.5, 1),
        (lambda x: x[:, :1] + x[:1], 1),
        (lambda x: np.cbrt(x), 0),
        (lambda x: x.astype("int16"), 0),
        (lambda x: x.sum(axis=1, split_every=8), 1),
        (lambda x: x.prod(), 1),
        (lambda x: x.max(axis=0), 1),
        (lambda x: x.max(axis=1), 0),
        (lambda x: x[:, :8] + 1, 0),
        (lambda x: x.T, 0),
    ],
)
def test_an_operation_alone_has_a_kernel_where_it_gains(
    call: Callable[[Any], Any], kernels: int
) -> None:
    x = persisted((800, 700), 800)
    for least, expected in (("500 kiB", kernels), ("4 MiB", 0), (None, 0)):
        with dask.config.set({"gpusched.fusion.single-operation-bytes": least}):
            counts = run(lambda: call(x), rtol=3e-7)
        assert len(counts.kernels) == expected


def test_an_operation_alone_raises_as_numpy_does() -> None:
    negative = (persisted((80, 70), 80) - 2).persist(scheduler="sync")
    setting = {"gpusched.fusion.single-operation-bytes": 1}
    told = pytest.raises(FloatingPointError, match="log")
    with np.errstate(all="raise"), dask.config.set(setting), enable(), told:
        np.log(negative).compute(scheduler="sync")


def test_an_unusable_size_is_named() -> None:
    x = persisted((80, 70), 80)
    setting = {"gpusched.fusion.single-operation-bytes": "many"}
    told = pytest.raises(ValueError, match="single-operation-bytes cannot be 'many'")
    with enable(), dask.config.set(setting), told:
        np.sin(x).compute(scheduler="sync")


def test_unfused_when_there_is_nothing_to_gain() -> None:
    x = persisted((100,), 50)
    counts = run(lambda: x + 1)
    assert counts.launches == 0
    assert counts.breaks["add", "nothing to fuse it with"] == 2
    with dask.config.set({"gpusched.fusion.minimum-elements": 1000}):
        counts = run(lambda: (x + 1) * 2)
    assert counts.launches == 0
    assert counts.breaks["add", "small chunks"] == 2


def test_fields_of_records_are_left_to_numpy() -> None:
    records = np.zeros(60, [("a", "i4"), ("b", "f8")])
    records["b"] = np.arange(60)
    x = da.from_array(records, chunks=30).persist(scheduler="sync")
    fields = x.map_blocks(lambda block: block["b"], dtype="f8").persist(scheduler="sync")
    counts = run(lambda: fields * 2 + 1)
    assert counts.launches == 0
    assert counts.breaks["mul", "chunks whose strides are no whole number of elements"] == 2


def test_nothing_can_be_done_about_strings() -> None:
    texts = da.from_array(np.array(["a", "b", "c"] * 20), chunks=30)
    counts = run(lambda: (texts == "a") | (texts != "b"))
    kinds = {reason.kind for _, reason in counts.breaks}
    assert GraphBreak.STRINGS in kinds
    assert not any(kind.advises for kind in kinds), counts.breaks


def sorted_rows(block: Any) -> Any:
    return np.apply_over_axes(np.sort, block * 3 - 1, 1) * 2 + block


def sorted_between(block: Any) -> Any:
    return np.sort(block * 3 - 1, axis=1) * 2 + block


def test_what_stops_fusion_is_counted() -> None:
    x = persisted((40, 30), (20, 30))
    counts = run(lambda: (x * 2 + 1).map_blocks(sorted_rows))
    assert counts.launches == 2
    assert (
        sum(
            n
            for (name, reason), n in counts.breaks.items()
            if name == "sorted_rows" and "calls apply_over_axes, which is not recorded" in reason
        )
        == 2
    )


def test_a_call_no_kernel_can_do_is_made_between_two_kernels() -> None:
    x = persisted((40, 30), (20, 30))
    counts = run(lambda: (x * 2 + 1).map_blocks(sorted_between))
    assert counts.launches == 4
    assert counts.breaks["sort", "no kernel for this function"] == 1, "all chunks have one plan"


def test_a_join_before_what_is_called_as_it_is_is_said_to_move_elements() -> None:
    x = persisted((40, 30), (20, 30))

    def ranked(block: Any) -> Any:
        return np.apply_over_axes(np.sort, block, 0)

    counts = run(lambda: (x * 2 + 1).map_overlap(ranked, depth=(1, 0), boundary="none") + 1)
    found = {str(reason): n for (_, reason), n in counts.breaks.items()}
    assert found["only moves elements"] == 2
