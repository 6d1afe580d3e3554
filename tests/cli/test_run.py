"""``gpusched run`` with scripts that work."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpusched.cli.run_cluster import Session

from .conftest import Runner

COMPUTE = """
import dask.array as da
x = da.arange(400_000, chunks=100_000).astype("f8")
print(float((da.sqrt(x) * 2 + 1).sum().compute()))
"""

RESULT = f"{(np.sqrt(np.arange(400_000.0)) * 2 + 1).sum():.2f}"[:-1]


@pytest.mark.parametrize(
    "flags",
    [
        ["--local"],
        pytest.param(["--cpu", "--workers", "2"], marks=pytest.mark.essential),
        ["--no-fuse"],
    ],
)
def test_unchanged_script_runs(gpusched_run: Runner, flags: list[str]) -> None:
    done = gpusched_run(*flags, gpusched_run.script(COMPUTE))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(RESULT)
    assert len(done.stdout.splitlines()) == 1


def test_summary_counts_what_was_fused(gpusched_run: Runner) -> None:
    err = gpusched_run("--workers", "2", gpusched_run.script(COMPUTE)).stderr
    assert re.search(r"^gpusched: \d+\.\d\d s$", err, re.M)
    tasks = re.search(r"^  tasks +(\d+) with array functions, (\d+) of them fused$", err, re.M)
    assert tasks is not None, err
    assert tasks[1] == tasks[2] == "4"
    assert re.search(r"^  kernels +1, launched 4 times$", err, re.M), err
    assert re.search(r"^  data +\d.* read and .* written by kernels$", err, re.M)


def test_summary_is_the_same_in_one_process(gpusched_run: Runner) -> None:
    err = gpusched_run("--local", gpusched_run.script(COMPUTE)).stderr
    assert "4 with array functions, 4 of them fused" in err


def test_summary_says_that_fusion_was_off(gpusched_run: Runner) -> None:
    err = gpusched_run("--local", "--no-fuse", gpusched_run.script(COMPUTE)).stderr
    assert re.search(r"^  fusion +off$", err, re.M)
    assert "kernels" not in err


def test_nothing_but_the_summary_is_printed_into_a_pipe(gpusched_run: Runner) -> None:
    done = gpusched_run("--workers", "1", gpusched_run.script(COMPUTE))
    assert done.stderr.startswith("gpusched: ")
    assert "\r" not in done.stderr
    assert "\x1b" not in done.stderr


def test_quiet_prints_nothing(gpusched_run: Runner) -> None:
    done = gpusched_run("--local", "--quiet", gpusched_run.script(COMPUTE))
    assert done.stdout.startswith(RESULT)
    assert done.stderr == ""


def test_script_sees_what_python_would_give_it(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import os, sys\n"
        "print(sys.argv, __name__, os.path.basename(__file__))\n"
        "print(os.path.samefile(sys.path[0], os.path.dirname(os.path.abspath(__file__))))\n"
        "print(sys.modules['__main__'].__dict__ is globals())\n"
    )
    done = gpusched_run("--local", script, "--workers", "0", "-m", "--quiet", "file")
    assert done.stdout.splitlines() == [
        "['script.py', '--workers', '0', '-m', '--quiet', 'file'] __main__ script.py",
        "True",
        "True",
    ]


def test_module_runs_as_main(gpusched_run: Runner) -> None:
    package = gpusched_run.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tool.py").write_text(
        "import sys, package\nprint(__name__, __package__, sys.argv[1:])"
    )
    done = gpusched_run("--local", "-m", "package.tool", "--local", "1")
    assert done.stdout == "__main__ package ['--local', '1']\n", done.stderr


def test_workers_import_modules_beside_the_script(gpusched_run: Runner) -> None:
    gpusched_run.script("def double(block):\n    return block * 2\n", "beside.py")
    folder = gpusched_run.folder / "elsewhere"
    folder.mkdir()
    script = gpusched_run.script(
        "import dask.array as da, beside\n"
        "print(int(da.ones(4, chunks=2).map_blocks(beside.double).sum().compute()))\n"
    )
    done = gpusched_run("--workers", "2", str(gpusched_run.folder / script))
    assert done.stdout == "8\n", done.stderr


def test_workers_get_functions_of_the_script_without_running_it(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import os, dask\n"
        "print('body', flush=True)\n"
        "def where():\n    return os.getpid()\n"
        "print(dask.delayed(where)().compute() != os.getpid())\n"
    )
    assert gpusched_run("--workers", "1", script).stdout == "body\nTrue\n"


def test_flags_reach_the_cluster(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import distributed\n"
        "client = distributed.default_client()\n"
        "workers = client.sync(client.scheduler.identity)['workers'].values()\n"
        "print(sorted((w['nthreads'], w['memory_limit']) for w in workers))\n"
    )
    flags = ["--cpu", "--workers", "2", "--threads", "3", "--memory-limit", "512 MiB"]
    assert gpusched_run(*flags, script).stdout == f"[(3, {2**29}), (3, {2**29})]\n"


def test_local_opens_no_socket_and_starts_no_process(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import dask.array as da, psutil\n"
        "print(int(da.ones(10, chunks=5).sum().compute()))\n"
        "print(psutil.Process().net_connections('inet'), psutil.Process().children())\n"
    )
    out = gpusched_run("--local", script).stdout.splitlines()
    assert out[0] == "10"
    assert re.fullmatch(r"\[\] (\[\]|\[psutil.Process\(.*\)\])", out[1])
    # Python's own tracker of semaphores is the one process there may be.
    assert out[1].count("pid=") <= 1


def test_script_may_run_a_cluster_of_its_own(gpusched_run: Runner) -> None:
    script = gpusched_run.script(
        "import dask.array as da\n"
        "from distributed import Client, LocalCluster\n"
        "with LocalCluster(1, processes=False, dashboard_address='127.0.0.1:0') as c:\n"
        "    with Client(c):\n"
        "        print(int(da.ones(10, chunks=5).sum().compute()))\n"
    )
    assert gpusched_run("--local", script).stdout == "10\n"


def test_show_config_prints_what_the_flags_change(gpusched_run: Runner) -> None:
    done = gpusched_run("--show-config", "--cpu", "--workers", "3", "--threads", "2")
    assert done.returncode == 0
    assert "# workers: 3 (process), threads of each: 2" in done.stdout
    assert "    workers: 3\n" in done.stdout
    assert done.stderr == ""


def test_help_names_every_flag(gpusched_run: Runner) -> None:
    done = gpusched_run("--help")
    assert done.returncode == 0
    for flag in (
        *("-m", "--gpus", "--cpu", "--workers", "--threads", "--memory-limit", "--local"),
        *("--scheduler", "--no-fuse", "--show-config", "--quiet"),
    ):
        assert flag in done.stdout


@pytest.mark.parametrize("method", ["close", "shutdown"])
def test_script_may_close_its_client(gpusched_run: Runner, method: str) -> None:
    """Its exit code stands, and the summary says why there are no counts."""
    code = f"from distributed import default_client\ndefault_client().{method}()\nexit(3)"
    done = gpusched_run("--cpu", "--workers", "1", gpusched_run.script(code))
    assert done.returncode == 3, done.stderr
    assert "every count: the script has closed its client" in done.stderr


def test_client_that_its_scheduler_has_left_was_not_closed_by_the_script() -> None:
    """distributed closes it, too, when it has not found the scheduler for a while."""
    closed: Any = SimpleNamespace(status="closed")
    gone = Session(closed, None, True, "tcp://127.0.0.1:1")
    *_, [missing] = gone.end(timeout=0.5)
    assert "the scheduler at tcp://127.0.0.1:1 has ended, or cannot be reached" in missing
    *_, [missing] = Session(closed, None, True).end(timeout=0.5)
    assert "the script has closed its client" in missing
