"""What is remembered of how long earlier processes have done without kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dask
import numpy as np
import pytest

from gpusched.store import unfused
from gpusched.store.background import Background
from gpusched.store.unfused import FILE, KEPT, LARGEST, LEAST, Times, here
from gpusched.store.worthwhile import expected, gain
from tests.store.test_worthwhile import handle_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(unfused, "_times", {})
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        yield tmp_path


def test_the_last_process_to_write_knows_what_all_have_spent(folder: Path) -> None:
    one, other = Times(folder / FILE), Times(folder / FILE)
    one.add("add_1f", 0.5)
    other.add("add_1f", 0.25)
    assert other.total("add_1f") == 0.75
    other.add("exp_2e", 1.0)
    assert one.total("exp_2e") == 0.0, "known with the next note"
    one.add("add_1f", 0.25)
    assert (one.total("add_1f"), one.total("exp_2e")) == (1.0, 1.0)
    found = Times(folder / FILE)
    assert (found.total("add_1f"), found.total("exp_2e")) == (1.0, 1.0)
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600


def test_little_is_written_when_it_has_become_more(folder: Path) -> None:
    times = Times(folder / FILE)
    assert not times.add("add_1f", LEAST / 2)
    assert not (folder / FILE).exists() and times.total("add_1f") == LEAST / 2
    assert times.add("add_1f", LEAST / 2)
    assert times.total("add_1f") == Times(folder / FILE).total("add_1f") == LEAST


def test_a_line_that_is_being_written_is_read_when_it_is_whole(folder: Path) -> None:
    (folder / FILE).write_text("add_1f 1\nadd_1f 2")
    times = Times(folder / FILE)
    assert times.total("add_1f") == 1.0
    with (folder / FILE).open("a") as file:
        file.write("5\n")
    times.add("exp_2e", 1.0)
    assert times.total("add_1f") == 26.0


def test_a_file_that_another_process_has_written_again_is_read_again(folder: Path) -> None:
    times = Times(folder / FILE)
    for _ in range(10):
        times.add("add_1f", 1.0)
    unfused._shorten(folder / FILE, {"add_1f": 12.0})
    times.add("add_1f", 0.5)
    assert times.total("add_1f") == 12.5


def test_what_cannot_be_written_is_known_here(folder: Path) -> None:
    times = Times(folder / FILE)
    (folder / FILE).mkdir()
    with pytest.warns(RuntimeWarning, match="cannot keep"):
        times.add("add_1f", 1.0)
    assert times.total("add_1f") == 1.0


@pytest.mark.parametrize("line", ["", "add_1f", "add_1f x", "add_1f -1", "add_1f inf", "\xff\n a"])
def test_damaged_lines_are_left_out(folder: Path, line: str) -> None:
    (folder / FILE).write_bytes(b"add_1f 1\n" + line.encode("latin-1") + b"\nadd_1f 2\n")
    assert Times(folder / FILE).total("add_1f") == 3.0


def test_a_file_that_has_grown_is_written_again(folder: Path) -> None:
    lines = [f"kernel_{number} 1\n" for number in range(LARGEST // 10)]
    (folder / FILE).write_text("".join(lines))
    Times(folder / FILE)
    kept = (folder / FILE).read_text().splitlines()
    assert len(kept) == KEPT and kept[-1] == lines[-1].replace(" 1\n", " 1.000")


def test_without_a_cache_directory_nothing_is_remembered() -> None:
    times = Times(None)
    times.add("add_1f", 1.0)
    assert (times.total("add_1f"), Times(None).total("add_1f")) == (1.0, 0.0)


def test_many_short_runs_have_a_kernel_compiled_where_nothing_else_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = handle_of(lambda x: np.exp(x) + x)
    seconds = 0.6 * expected(code.kernel)
    here().add(code.name, seconds)
    assert not Background().considered([code], 0.0)
    monkeypatch.setattr(unfused, "_times", {})  # As another process finds it.
    here().add(code.name, seconds)
    assert Background().considered([code], 0.0)
    assert gain([code], seconds, 0) < 0, "it takes no time from this run's tasks"


def test_the_workers_of_one_run_have_its_kernels_compiled_together(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers run four chunks each of three plans; what one of them has run pays for none."""
    kernels = [handle_of(f) for f in (lambda x: np.exp(x) + x, lambda x: x * 2 + 1, np.log1p)]
    starting = 0.65
    shares = [(expected(each.kernel) + starting / 3) / 6 for each in kernels]
    workers = [(Times(folder / FILE), Background()) for _ in range(2)]
    asked: list[set[str]] = [set(), set()]
    for _ in range(4):
        for seconds, kernel in zip(shares, kernels, strict=True):
            for number, (times, background) in enumerate(workers):
                monkeypatch.setattr(unfused, "here", partial(_the_same, times))
                times.add(kernel.name, seconds)
                asked[number] |= {k.name for k in background.considered([kernel], starting, "g")}
    spent = sum(8 * share for share in shares)
    assert (
        sum(4 * share for share in shares)
        < sum(expected(each.kernel) for each in kernels) + starting
        < spent
    )
    assert asked[0] | asked[1] == {kernel.name for kernel in kernels}


def _the_same(times: Times) -> Times:
    return times


def test_no_more_kernels_than_that_are_remembered(tmp_path: Path) -> None:
    for path in (None, tmp_path / FILE):
        times = Times(path)
        for k in range(2 * KEPT):
            times.add(f"k{k}", LEAST)
            times.add(f"short{k}", LEAST / 2)
        assert (times.total("k0"), times.total("short0")) == (0, 0)
        assert times.total(f"k{2 * KEPT - 1}") == LEAST
