"""What is remembered of how long earlier processes have done without kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest

from gpusched.store import unfusedtimes
from gpusched.store.background import Background
from gpusched.store.unfusedtimes import FILE, KEPT, LARGEST, LEAST, Times, here
from gpusched.store.worthwhile import expected, gain
from tests.store.test_worthwhile import handle_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(unfusedtimes, "_times", {})
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path)}):
        yield tmp_path


def test_the_next_process_knows_what_all_before_have_spent(folder: Path) -> None:
    one, other = Times(folder / FILE), Times(folder / FILE)
    one.add("add_1f", 0.5)
    other.add("add_1f", 0.25)
    other.add("exp_2e", 1.0)
    assert one.before("add_1f") == 0.0, "only what was there when it began"
    found = Times(folder / FILE)
    assert (found.before("add_1f"), found.before("exp_2e")) == (0.75, 1.0)
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600


def test_little_is_written_when_it_has_become_more(folder: Path) -> None:
    times = Times(folder / FILE)
    times.add("add_1f", LEAST / 2)
    assert not (folder / FILE).exists()
    times.add("add_1f", LEAST / 2)
    assert Times(folder / FILE).before("add_1f") == LEAST


@pytest.mark.parametrize("line", ["", "add_1f", "add_1f x", "add_1f -1", "add_1f inf", "\xff\n a"])
def test_damaged_lines_are_left_out(folder: Path, line: str) -> None:
    (folder / FILE).write_bytes(b"add_1f 1\n" + line.encode("latin-1") + b"\nadd_1f 2\n")
    assert Times(folder / FILE).before("add_1f") == 3.0


def test_a_file_that_has_grown_is_written_again(folder: Path) -> None:
    lines = [f"kernel_{number} 1\n" for number in range(LARGEST // 10)]
    (folder / FILE).write_text("".join(lines))
    Times(folder / FILE)
    kept = (folder / FILE).read_text().splitlines()
    assert len(kept) == KEPT and kept[-1] == lines[-1].replace(" 1\n", " 1.000")


def test_without_a_cache_directory_nothing_is_remembered() -> None:
    Times(None).add("add_1f", 1.0)
    assert Times(None).before("add_1f") == 0.0


def test_many_short_runs_have_a_kernel_compiled_where_nothing_else_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = handle_of(lambda x: np.exp(x) + x)
    code.spent = expected(code) / 2
    assert not Background().considered([code], 0.0)
    here().add(code.name, expected(code))
    monkeypatch.setattr(unfusedtimes, "_times", {})  # As another process finds it.
    assert Background().considered([code], 0.0)
    assert gain([code], code.spent, 0) < 0, "it takes no time from this run's tasks"
