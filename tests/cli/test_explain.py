"""``gpusched explain``: scripts are explained, and compute nothing."""

from __future__ import annotations

import json
import os

from gpusched.inspection.fit import OWN
from tests.disks import mounted

from .conftest import Runner

SCRIPT = """
import sys
import dask.array as da

x = da.random.default_rng(0).random((400, 300), chunks=100)
y = (x - 0.25) * 3
total = y.sum()
print("total", float(total.compute()), sys.argv[1:])
print("largest", y.max(axis=0).compute().shape)
"""


def test_each_computation_is_explained(gpusched: Runner) -> None:
    done = gpusched("explain", gpusched.script(SCRIPT), "--json", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("== ")] == [
        '== script.py:8  print("total", float(total.compute()), sys.argv[1:])',
        '== script.py:9  print("largest", y.max(axis=0).compute().shape)',
    ]
    assert any("y = (x - 0.25) * 3" in line for line in lines)
    assert "12 launches" in done.stdout
    assert "total 0.0 ['--json', '1']" in done.stderr
    assert "largest (300,)" in done.stderr


def test_it_says_whether_a_script_fits(gpusched: Runner) -> None:
    options = ("--memory-limit", "1 TiB", "--workers", "2", "--threads", "3")
    done = gpusched("explain", "--json", *options, gpusched.script(SCRIPT))
    for each in json.loads(done.stdout):
        assert each["fit"]["cluster"] == {"memory": 2**40, "workers": 2, "threads": 3, "own": OWN}
        assert each["fit"]["fits"] and each["fit"]["at_once"] == 3


def test_json_is_one_document(gpusched: Runner) -> None:
    done = gpusched("explain", "--json", gpusched.script(SCRIPT))
    first, second = json.loads(done.stdout)
    assert first["place"]["line"] == 8
    assert first["totals"]["launches"] == second["totals"]["launches"] == 12
    assert "def point(" in first["kernels"][0]["source"]


def test_a_page_is_written(gpusched: Runner) -> None:
    done = gpusched("explain", "--html", "page.html", gpusched.script(SCRIPT))
    assert done.returncode == 0, done.stderr
    page = (gpusched.folder / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<h2>") == 2


def test_name_of_a_script_need_not_be_text(gpusched: Runner) -> None:
    name = os.fsdecode(b"\xff.py")
    (gpusched.folder / name).write_text(SCRIPT)
    done = gpusched("explain", "--html", "page.html", name)
    assert done.returncode == 0, done.stderr
    assert "== \\udcff.py:8" in done.stdout
    assert "\\udcff.py:6" in (gpusched.folder / "page.html").read_text()


def test_page_for_which_there_is_no_room(gpusched: Runner) -> None:
    with mounted(gpusched.folder / "small", "4k") as small:
        done = gpusched("explain", "--html", "small/page.html", gpusched.script(SCRIPT))
        assert not list(small.iterdir())
    assert done.returncode == 1
    assert done.stdout.startswith("== script.py:8")
    assert done.stderr.endswith("Error: cannot write small/page.html: No space left on device\n")


def test_nothing_is_computed_even_if_the_script_switches_fusion_on(gpusched: Runner) -> None:
    script = gpusched.script(
        "import dask.array as da, gpusched\n"
        "gpusched.enable()\n"
        "def fails(block):\n"
        "    print(block)\n"
        "    raise AssertionError('a chunk was computed')\n"
        "x = da.ones((400, 300), chunks=100).map_blocks(fails, dtype='f8').persist()\n"
        "print(x.sum().compute())\n"
    )
    done = gpusched("explain", script)
    assert done.returncode == 0, done.stderr
    assert "fails at script.py:3" in done.stdout


def test_exit_code_and_errors_are_the_scripts(gpusched: Runner) -> None:
    script = gpusched.script(SCRIPT + "\nsys.exit(7)\n")
    assert gpusched("explain", script).returncode == 7
    failing = gpusched.script("raise ValueError('of the script')\n", "failing.py")
    done = gpusched("explain", failing)
    assert done.returncode == 1
    assert "ValueError: of the script" in done.stderr
    assert "the script computes no dask array" in done.stdout


def test_an_interrupt_is_told_by_the_command_that_runs_the_script(gpusched: Runner) -> None:
    done = gpusched("explain", gpusched.script("raise KeyboardInterrupt"))
    assert done.returncode == 130
    assert "gpusched explain: interrupted at" in done.stderr


def test_a_missing_script_is_said_to_be_missing(gpusched: Runner) -> None:
    done = gpusched("explain", "nowhere.py")
    assert done.returncode == 2
    assert "there is no script nowhere.py" in done.stderr


def test_details_show_the_sources(gpusched: Runner) -> None:
    done = gpusched("explain", "--details", gpusched.script(SCRIPT))
    assert "def point(x" in done.stdout
    assert "script.py:6" in done.stdout
