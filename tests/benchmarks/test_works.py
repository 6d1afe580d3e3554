"""That the benchmarks run, on inputs too small to measure anything."""

from __future__ import annotations

import re
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import first_calls, page, readme, report, results
from tests.benchmarks.__main__ import in_time, parser, wanted
from tests.benchmarks.contenders import CONTENDERS, LIMITS, load, loops
from tests.benchmarks.contenders.base import Case
from tests.benchmarks.first_calls import FirstCalls
from tests.benchmarks.measure import Timing, check, measure
from tests.benchmarks.works import WORKS
from tests.benchmarks.works.base import Work, largest_error


def small(work: Work) -> Case:
    return Case.of(work, "float64", 20_000)


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_dask_agrees_with_numpy(work: Work) -> None:
    if work.name == "inference":
        pytest.importorskip("torch")
    case, timing = small(work), Timing()
    check(case, load("dask")(case), timing)
    assert timing.error is not None and not timing.absent


@pytest.mark.parametrize("name", ["clip", "square-sum"])
def test_gpusched_launches_kernels_and_agrees_with_numpy(name: str) -> None:
    case, timing = Case.of(WORKS[name], "float32", 60_000), Timing()
    check(case, load("gpusched")(case), timing)
    assert timing.error is not None and not timing.absent


def test_no_call_is_made_while_the_result_of_another_is_held() -> None:
    case, held = small(WORKS["clip"]), list[int]()
    prepared = load("numpy")(case)

    def run() -> Any:
        assert not held, "a cluster would return what it has"
        found = prepared.run()
        held.append(id(found))
        weakref.finalize(found, held.clear)
        return found

    timing = Timing()
    check(case, replace(prepared, run=run, settle=run), timing)
    assert timing.error is not None and not timing.absent


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_whoever_has_no_program_of_a_work_has_a_reason(work: Work) -> None:
    assert set(work.absent) <= set(CONTENDERS)
    assert work.name in loops.LOOPS or "numba" in work.absent
    for library in ("numexpr", "dask-numexpr"):
        assert library in work.programs or "numexpr" in work.programs or library in work.absent


@pytest.mark.parametrize("name", ["clip", "axis-statistics", "pairwise"])
@pytest.mark.slow
def test_the_limit_is_measured_for_works_of_any_inputs(name: str) -> None:
    timing = measure(small(WORKS[name]), ["dask", "triad"], rounds=1, budget=60)["triad"]
    assert timing.seconds and not timing.absent


def test_a_wrong_result_is_not_timed() -> None:
    wrong = replace(WORKS["clip"], programs={"dask": lambda xp, a, b, c: xp.clip(a, 0, 1)})
    timings = measure(small(wrong), ["dask", "numpy"], rounds=2, budget=60)
    assert timings["dask"].absent.startswith("wrong result")
    assert not timings["dask"].seconds
    assert len(timings["numpy"].seconds) == 2


def test_a_contender_that_fails_says_so_and_stops_no_other() -> None:
    def broken(xp: Any, *inputs: Any) -> Any:
        raise RuntimeError("no such thing\nand more")

    work = replace(WORKS["clip"], programs={"dask": broken})
    timings = measure(small(work), ["dask", "numpy"], rounds=1, budget=60)
    assert timings["dask"].absent == "failed: RuntimeError: no such thing"
    assert timings["numpy"].seconds


def test_a_slow_contender_is_timed_once() -> None:
    timings = measure(small(WORKS["clip"]), ["numpy"], rounds=5, budget=0)
    assert len(timings["numpy"].seconds) == 1


def test_errors_are_of_the_largest_value_and_see_every_nan() -> None:
    true = np.array([1.0, -8.0, np.nan])
    assert largest_error(true, true) == 0
    assert largest_error(np.array([1 + 2**-49, -8.0, np.nan]), true) == 1
    assert largest_error(np.array([1.0, -8.0, 0.0]), true) == np.inf
    assert largest_error(np.array([np.nan, -8.0, np.nan]), true) == np.inf


def run(command: str) -> str:
    return f"- date: today\n- machine: one\n- versions: 1, 2\n- command: `python {command}`"


FIRST = FirstCalls(run("first"), [1.0, 2.0, 3.0], [2.2, 9.0, 2.0], [2.0], [1.0], [1.0], [0.5])


def test_first_calls_are_shown_in_times_of_dask_s() -> None:
    rows = {
        ("clip", "float32"): results.Measured(
            "clip",
            "float32",
            10,
            "",
            {},
            {"threads": FIRST, "cluster": FirstCalls("", absent="no")},
        )
    }
    text = report.tables(rows)
    assert re.search(
        r"^\| clipped.* \| 1.10 +\| 2.00 +\| 0.50 +\| - .* \| 0.5 +\|$", text, re.MULTILINE
    )
    assert "- first calls, cluster: no" in text
    assert "in 0 of 1; the longest takes 1.10 times as long (clipped" in report.summary(rows)


def test_what_is_measured_later_is_put_beside_what_was_measured_before(tmp_path: Path) -> None:
    timings = {"dask": Timing([1.0])}
    before = {("clip", "float32"): results.Measured("clip", "float32", 10, run("a"), timings)}
    after = {
        ("clip", "float32"): results.Measured(
            "clip", "float32", 10, run("b"), {}, {"threads": FIRST}
        )
    }
    results.save(tmp_path / "both.json", results.merged(before, after))
    (found,) = results.load(tmp_path / "both.json").values()
    assert (found.timings, found.first_calls) == (timings, {"threads": FIRST})
    assert page.runs(results.load(tmp_path / "both.json")).count("today") == 2


def test_rows_are_begun_in_the_order_named_until_the_time_is_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--only", "heat", "tiny-10k", "clip", "--dtype", "float64", "float32"]
    rows = wanted(parser().parse_args(arguments))
    assert rows == [
        ("heat", "float64"), ("tiny-10k", "float64"), ("clip", "float64"), ("heat", "float32"),
        ("clip", "float32"),
    ]  # fmt: skip
    assert list(in_time(rows, 1.0)) == rows
    assert not capsys.readouterr().err
    assert not list(in_time(rows[:2], 0.0))
    assert capsys.readouterr().err.count("not begun") == 2


def test_commands_name_no_files_of_whoever_measured() -> None:
    arguments = ["--json", "/tmp/a.json", "--only", "clip", "heat", "--merge", "b", "c", "--quick"]
    command = report.header("tests.benchmarks", arguments).splitlines()[-1]
    assert command == "- command: `python -m tests.benchmarks --only clip heat --quick`"


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("place", first_calls.PLACES)
def test_first_calls_are_measured_in_processes_of_their_own(place: str) -> None:
    found = first_calls.measure("clip", "float32", 400_000, place, 1, "")
    assert not found.absent
    for each in (found.dask, found.first, found.second, found.steady, found.warm):
        assert len(each) == 1 and each[0] > 0
    assert found.unused == [0.0]


@pytest.mark.processes
def test_first_calls_that_fail_say_so() -> None:
    found = first_calls.measure("clip", "float99", 400_000, "threads", 1, "")
    assert "float99" in found.absent


@pytest.mark.processes
def test_parts_measured_at_different_times_come_together_on_the_page(tmp_path: Path) -> None:
    parts = []
    for name, seconds in (("clip", 2.0), ("heat", 0.5)):
        timings = {
            "gpusched": Timing([seconds], first=3.0, error=1.0),
            "dask": Timing([1.0, 1.0, 4.0], first=1.0, error=0.5),
            "cupy": Timing(absent="no GPU here"),
        }
        part = results.Measured(name, "float32", 25_000_000, run(f"on {name}"), timings)
        parts.append(tmp_path / f"{name}.json")
        results.save(parts[-1], {(name, "float32"): part})
    found = results.load(parts[0]) | results.load(parts[1])
    written = tmp_path / "figures.md"
    written.write_text(f"# Figures\n\n{page.BEGIN}\nold\n{page.END}\n\n## What they mean\n")
    page.write(written, found)
    text = written.read_text()
    assert "old" not in text
    assert text.endswith("## What they mean\n")
    assert text.count("- machine: one") == 1, "what both runs have in common is said once"
    assert "- today: `python on clip`\n- today: `python on heat`" in text
    assert "gpusched is faster than plain dask in 1 of 2 workloads" in text
    assert text.index("1 of 2 workloads") < text.index("figures.svg") < text.index("machine")
    assert "gpusched takes 2.00 times dask's time" in text
    assert "- cupy: no GPU here" in text
    assert re.search(r"^\| clipped arithmetic, float32 +\| 0.50 +\| 1.00 +\|$", text, re.MULTILINE)
    assert "</svg>" in (tmp_path / "figures.svg").read_text()


def test_a_page_without_its_marks_is_left_alone(tmp_path: Path) -> None:
    written = tmp_path / "figures.md"
    written.write_text("# Mine\n")
    with pytest.raises(ValueError, match="lacks '<!-- measured"):
        page.write(written, {})
    assert written.read_text() == "# Mine\n"


def test_table_of_the_readme_is_written_between_its_marks(tmp_path: Path) -> None:
    timings = {"dask": Timing([1.0, 1.5, 4.0]), "gpusched": Timing([0.25])}
    found = {
        row: results.Measured(*row, 10, run("readme"), timings, {"threads": FIRST})
        for row in readme.ROWS
    }
    written = tmp_path / "README.md"
    written.write_text(f"# gpusched\n\n{page.BEGIN}\nold\n{page.END}\n\n## Install\n")
    readme.write(written, found)
    text = written.read_text()
    assert "old" not in text and text.endswith(f"{page.END}\n\n## Install\n")
    assert "| neural network inference, float32 | 2,000 | 1,500 | 2,200 | 250 |" in text
    assert "in milliseconds (one; today; " in text
    del found[readme.ROWS[0]]
    with pytest.raises(ValueError, match="lacks black-scholes-tanh float64"):
        readme.write(written, found)


def test_readme_has_the_marks_and_columns_of_its_table() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    table = text.partition(page.BEGIN)[2].partition(page.END)[0]
    assert f"| {' | '.join(readme.HEADS)} |" in table.replace("workload, float64", "workload")


def test_limits_compute_nothing_but_touch_what_the_work_does() -> None:
    case = small(WORKS["clip"])
    for name in LIMITS:
        prepared = load(name)(case)
        prepared.run()
        assert prepared.to_numpy is None


def test_the_base_of_all_ratios_takes_part() -> None:
    assert report.BASE in CONTENDERS
    assert not any(report.BASE in work.absent for work in WORKS.values())


def test_first_calls_measured_alone_leave_all_else_on_the_page(tmp_path: Path) -> None:
    written = tmp_path / "figures.md"
    others = f"# Figures\n\n{page.BEGIN}\nold\n{page.END}\n\n"
    written.write_text(f"{others}## Calls\n\n{page.FIRST_CALLS}\n{page.END}\n")
    row = results.Measured("clip", "float32", 10, run("a"), {}, {"threads": FIRST})
    page.write(written, {("clip", "float32"): row})
    before, _, after = written.read_text().partition("## Calls")
    assert before == others
    assert "takes at most 1.05 times as long" in after and "`python first`" in after


def test_a_figure_of_another_command_has_marks_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "figures.md"
    mark = page.OF.format("tests.benchmarks.demo")
    written.write_text(f"{page.BEGIN}\nold\n{page.END}\n{mark}\nold\n{page.END}\n")
    page.show("new", written, "tests.benchmarks.demo")
    assert written.read_text() == (f"{page.BEGIN}\nold\n{page.END}\n{mark}\n\nnew\n\n{page.END}\n")
    assert capsys.readouterr().out == "new\n"
