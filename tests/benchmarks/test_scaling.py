"""The page on growth: programs are counted in their graphs, and tables and picture follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import page, scaling
from tests.benchmarks.growth import Growth
from tests.benchmarks.simulation import Costs

COSTS = Costs(scheduler=5e-4, worker=5e-4, launch=2e-5, latency=1e-4, bandwidth=3e12)


@pytest.mark.slow
def test_programs_are_counted_in_their_graphs() -> None:
    found = scaling.programs("W3", scaling.squares, chunks=16)
    fused, plain = found["fused"], found["plain"]
    assert (fused.kernels, plain.kernels) == (1, 4)
    assert fused.moved == pytest.approx(3, rel=1e-3)  # what is read; results are small
    assert plain.moved == 3 + 3 + 2 + 2
    assert fused.tasks == plain.tasks == pytest.approx(1 + 5 / 16)


def test_growth_is_told_by_size() -> None:
    found = [
        Growth("W1", scale, workers, fused, scale * (1.0 if fused else 2.5) / workers)
        for scale in (1, 4)
        for workers in (1, 2)
        for fused in (True, False)
    ]
    lines = scaling.growth_table(found).splitlines()
    assert lines[2] == "| W1 | 1x | 1.00 s | 0.50 s | 2.50 s | 1.25 s |"
    assert lines[3].startswith("| W1 | 4x | 4.00 s (x 4.0) |")


@pytest.mark.slow
def test_the_page_has_tables_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(scaling, "GPUS", (8, 64))
    monkeypatch.setattr(scaling, "CHUNKS", (64 << 20, 4 << 30))
    pair = scaling.programs("W3", scaling.squares, chunks=16)
    rows = scaling.simulated(COSTS, [pair])
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        assert 0 < row["computing"] <= 1 and 0 < row["scheduling"] <= 1
    table = scaling.simulated_table(rows)
    assert table.count("\n| W3 fused |") == table.count("\n| W3 plain |") == 2
    scaling.draw(tmp_path / "scaling.svg", rows)
    assert "TB of input a second" in (tmp_path / "scaling.svg").read_text()
    written = tmp_path / "scaling.md"
    written.write_text(f"# How\n\n{page.BEGIN}\nold\n{page.END}\n\nWhy.\n")
    page.replace(written, table)
    text = written.read_text()
    assert "old" not in text and table in text and text.endswith("Why.\n")


def test_costs_have_their_units() -> None:
    table = scaling.costs_table(COSTS)
    assert "500 us" in table and "3 TB/s" in table


@pytest.mark.parametrize(
    ("rate", "told"), [(2e9, "2 GB/s"), (2.5e12, "2.5 TB/s"), (3e15, "3 PB/s"), (1e6, "0.001 GB/s")]
)
def test_rates(rate: float, told: str) -> None:
    assert scaling._rate(rate) == told
