"""How `gpusched.apply` divides torch's work on the CPU: pieces of chunks, and shares of cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster

import gpusched
from gpusched.models.call import FEW
from gpusched.models.torch import PIECE
from gpusched.models.torch_threads import _side_by_side, shared
from tests.models.given import FEATURES
from tests.waiting import PATIENCE

torch = pytest.importorskip("torch", reason="torch comes with the extra models-test")

ROWS = 5 * PIECE // (FEATURES * 4) // 2
CALLS: list[int] = []


class Noted(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Doubles its rows, and notes how many it was given."""

    def __init__(self, weights: int = 1) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.full((weights,), 2.0))

    def forward(self, x: Any, scale: Any = 1.0) -> Any:
        CALLS.append(len(x))
        return x * self.weights[0] * torch.as_tensor(scale)


def doubled(x: Any) -> Any:
    CALLS.append(len(x))
    return x * 2


def given(rows: int = ROWS, chunks: int = 1, features: int = FEATURES) -> da.Array:
    x = np.random.default_rng(0).random((rows, features), dtype="f4")
    return da.from_array(x, chunks=(rows // chunks, features))


def calls(model: Any, x: da.Array, **more: Any) -> list[int]:
    """Return how many rows the calls had, after a check of what they gave."""
    meta = np.empty((0, x.shape[1]), x.dtype)
    CALLS.clear()
    y = gpusched.apply(model, x, meta=meta, device="cpu", **more).compute(scheduler="synchronous")
    np.testing.assert_array_equal(y, 2 * x.compute())
    return CALLS.copy()


class TestPieces:
    """A module's chunk goes through it in pieces, so that what comes in between stays cached."""

    def test_large_chunks_are_given_in_equal_pieces(self) -> None:
        found = calls(Noted().eval(), given())
        assert len(found) == 3
        assert sum(found) == ROWS
        assert max(found) - min(found) <= 1

    def test_small_chunks_are_given_whole(self) -> None:
        assert calls(Noted().eval(), given(1000)) == [1000]

    def test_a_batch_is_heeded(self) -> None:
        assert calls(Noted().eval(), given(), batch=ROWS) == [ROWS]

    def test_pieces_are_no_smaller_than_weights(self) -> None:
        assert calls(Noted(10 * PIECE).eval(), given()) == [ROWS]

    def test_pieces_have_some_rows(self) -> None:
        rows = 3 * FEW + FEW // 2
        found = calls(Noted().eval(), given(rows, features=PIECE // 4))
        assert len(found) == 3
        assert min(found) >= FEW

    def test_no_rows(self) -> None:
        assert calls(Noted().eval(), given(1)[:0]) == []

    @pytest.mark.parametrize("scale", [torch.ones(ROWS, 1), [1.0]])
    def test_arguments_that_may_go_by_rows_keep_chunks_whole(self, scale: Any) -> None:
        assert calls(Noted().eval(), given(), scale=scale) == [ROWS]

    def test_a_number_is_the_same_for_all_rows(self) -> None:
        assert len(calls(Noted().eval(), given(), scale=1.0)) == 3

    @pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
    @pytest.mark.filterwarnings("ignore::FutureWarning")
    @pytest.mark.filterwarnings("ignore:Converting a tensor to a Python integer")
    def test_what_was_traced_gets_whole_chunks(self) -> None:
        class Shaped(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return (2 * x).reshape(int(x.shape[0]), FEATURES)

        traced = torch.jit.trace(Shaped().eval(), torch.ones(ROWS, FEATURES))
        calls(traced, given())

    def test_parts_in_training_get_whole_chunks(self) -> None:
        training = torch.nn.Sequential(Noted(), torch.nn.Dropout(0)).eval()
        training[1].train()
        assert calls(training, given()) == [ROWS]

    def test_functions_get_whole_chunks(self) -> None:
        assert calls(doubled, given(), library="torch") == [ROWS]


def threads(x: Any) -> Any:
    """Return for each row how many threads torch computes it with."""
    return torch.full((len(x),), torch.get_num_threads())


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Give new threads, in which torch would use three each."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with ThreadPoolExecutor(2) as pool, dask.config.set(pool=pool):
        yield pool
    torch.set_num_threads(before)


def used(chunks: int, **how: Any) -> set[int]:
    y = gpusched.apply(threads, given(1000, chunks), library="torch", dtype="i8", shape=())
    return set(y.compute(**how))


@pytest.mark.usefixtures("pool")
class TestThreads:
    """Tasks side by side do not each take all cores."""

    def test_many_tasks_have_one_each(self) -> None:
        assert used(4 * CPU_COUNT) == {1}

    def test_a_single_task_has_all_cores(self) -> None:
        assert used(1) == {min(3, CPU_COUNT)}

    def test_fewer_workers_have_more(self) -> None:
        with dask.config.set(num_workers=1):
            assert used(4 * CPU_COUNT) == {min(3, CPU_COUNT)}

    def test_the_main_thread_is_left_alone(self) -> None:
        assert used(4, scheduler="synchronous") == {3}

    def test_all_is_as_it_was(self, pool: ThreadPoolExecutor) -> None:
        used(4 * CPU_COUNT)
        assert torch.get_num_threads() == 3
        both = threading.Barrier(2)

        def own(_: int) -> int:
            both.wait(PATIENCE)
            return int(torch.get_num_threads())

        assert list(pool.map(own, range(2))) == [3, 3]
        with ThreadPoolExecutor(1) as new:
            assert new.submit(torch.get_num_threads).result() == 3

    def test_what_a_thread_has_set_is_its_own(self, pool: ThreadPoolExecutor) -> None:
        def with_own() -> set[int]:
            torch.get_num_threads()  # Until it is asked, a thread takes what is set last anywhere.
            torch.set_num_threads(2)
            with ThreadPoolExecutor(1) as new:
                new.submit(torch.set_num_threads, 3).result()
            found = used(4 * CPU_COUNT, scheduler="synchronous")
            assert torch.get_num_threads() == 2
            return found

        assert pool.submit(with_own).result() == {1}
        with ThreadPoolExecutor(1) as new:
            assert new.submit(torch.get_num_threads).result() == 3

    def test_no_thread_to_be_had(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuses(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        def fails() -> int:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuses)
                with pytest.raises(RuntimeError, match="can't start"), shared(2 * CPU_COUNT):
                    pass
            return int(torch.get_num_threads())

        with ThreadPoolExecutor(1) as new:
            assert new.submit(fails).result() == 3

    def test_a_failure_leaves_them_as_they_were(self, pool: ThreadPoolExecutor) -> None:
        def fails(x: Any) -> Any:
            raise ArithmeticError("none of our business")

        y = gpusched.apply(fails, given(1000, 10), library="torch", dtype="i8", shape=())
        with pytest.raises(ArithmeticError):
            y.compute()
        assert pool.submit(torch.get_num_threads).result() == 3


def test_a_worker_s_threads_are_those_at_its_side() -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=3, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        assert client.submit(_side_by_side).result() == 3
