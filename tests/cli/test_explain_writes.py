"""``gpusched explain`` never writes: a script is ended before its first change to a file."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Runner

HEAD = """
import os, shutil, sqlite3, subprocess, sys, tempfile, threading
from pathlib import Path
import dask, dask.array as da, numpy as np
x = da.ones((40, 30), chunks=20) * 3 + 1
total = x.sum().compute()
"""

WRITERS = {
    "np.save": 'np.save("kept", total)',
    "np.savez": 'np.savez("kept", total)',
    "np.memmap": 'np.memmap("kept", "f8", "w+", shape=(3,))',
    "memmap of a file that there is": 'np.memmap("kept", "u1", "r+")',
    "text": 'open("kept", "w").write(str(total))',
    "appended": 'open("kept", "a").write(str(total))',
    "os.open": 'os.open("kept", os.O_RDWR)',
    "pathlib": 'Path("kept").write_text("x")',
    "to_zarr": 'da.to_zarr(x, "kept.zarr", overwrite=True)',
    "to_zarr into a new folder": 'da.to_zarr(x, "new.zarr")',
    "da.store": 'da.store(x, np.memmap("kept", "f8", "r+", shape=(1,)))',
    "xarray, netCDF": "import xarray; xarray.DataArray(x).to_netcdf('kept')",
    "xarray, zarr": "import xarray; xarray.Dataset({'x': (('a', 'b'), x)}).to_zarr('new.zarr')",
    "delayed": 'dask.delayed(np.save)("kept", x).compute()',
    "map_blocks": (
        'x.map_blocks(lambda b: np.save("kept", b), dtype="f8").compute();'
        'dask.compute(x.to_delayed().ravel()[0].shape, dask.delayed(np.save)("kept", 1))'
    ),
    "database": 'sqlite3.connect("kept")',
    "remove": 'os.remove("kept")',
    "rmtree": 'shutil.rmtree("kept.zarr")',
    "rename": 'os.replace("script.py", "kept")',
    "away": 'os.rename("kept", "elsewhere")',
    "copy": 'shutil.copy("script.py", "kept")',
    "mkdir": 'os.makedirs("made/deep")',
    "symlink": 'os.symlink("kept", "link")',
    "link": 'os.link("kept", "link")',
    "truncate": 'os.truncate("kept", 1)',
    "chmod": 'os.chmod("kept", 0o777)',
    "chmod of what is open": 'os.fchmod(os.open("kept", os.O_RDONLY), 0o777)',
    "times": 'os.utime("kept")',
    "times of what is open": 'os.utime(os.open("kept", os.O_RDONLY))',
    "through a link": 'open(os.symlink("kept", tempfile.mkdtemp() + "/l") or "kept", "w")',
    "temporary folder elsewhere": 'tempfile.mkdtemp(dir=".")',
    "in a thread": ('t = threading.Thread(target=np.save, args=("kept", 1)); t.start(); t.join()'),
    "although errors are caught": (
        "try:\n    open('kept', 'w')\nexcept Exception:\n    raise SystemExit from None"
    ),
}


def contents(folder: Path) -> dict[str, Any]:
    """Return what is in a folder, but for scratch files and the script."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith("scratch"):
            state = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[name] = (content, stat.S_IMODE(state.st_mode), state.st_mtime_ns)
    return found


CHILD = f"""
import json, sys
from pathlib import Path
from gpusched.cli.write_guard import Stopped, stopping
{HEAD}
writers = json.load(sys.stdin)
with stopping([Path("cache")]) as watch:
    for name, code in writers.items():
        watch.first, ended = None, "went on"
        try:
            exec(compile(code, "script.py", "exec"))
        except Stopped:
            ended = "stopped"
        except BaseException as error:
            ended = repr(error)
        print(json.dumps([name, ended, watch.first is not None, watch.enforced]))
"""


@pytest.fixture(autouse=True)
def unmeasured(request: pytest.FixtureRequest) -> None:
    """What measures coverage writes a file, as the script may not."""
    if "gpusched" in request.fixturenames:
        request.getfixturevalue("gpusched").environment.pop("COVERAGE_PROCESS_CONFIG", None)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Try all writers, in one process, and return what came of each; the files are unchanged."""
    folder = tmp_path_factory.mktemp("writers")
    (folder / "kept").write_bytes(b"precious")
    (folder / "script.py").write_text("")
    (folder / "kept.zarr").mkdir()
    (folder / "kept.zarr" / "c").write_text("precious")
    before = contents(folder)
    command = [sys.executable, "-W", "ignore", "-c", CHILD]
    done = subprocess.run(
        command, cwd=folder, input=json.dumps(WRITERS), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "cache")
    assert contents(folder) == before
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: told for name, *told in found}


@pytest.mark.parametrize("name", list(WRITERS))
def test_script_is_ended_before_its_first_write(tried: dict[str, Any], name: str) -> None:
    ended, noticed, enforced = tried[name]
    if "netCDF" in name and not noticed:
        # The C library opens files without Python's knowing: Linux refuses it.
        assert enforced and ended.startswith("PermissionError"), ended
        return
    assert noticed
    # A thread of the program's own ends alone; its error is shown, as that of any thread.
    assert ended == {"in a thread": "went on"}.get(name, "stopped")


def test_message_says_what_and_where(gpusched: Runner) -> None:
    script = gpusched.script(f'{HEAD}\nnp.save("result", total)\n')
    done = gpusched("explain", script)
    last = done.stderr.strip().splitlines()[-1]
    path = os.path.realpath(gpusched.folder / "result.npy")
    assert last == (
        f"gpusched explain: the script was ended before it would open for writing {path}, at "
        'script.py:8  np.save("result", total). Explained is what came before. With '
        "--allow-writes the script goes on, and writes what it computes from zeros"
    )
    assert "Traceback" not in done.stderr
    assert "== script.py:6" in done.stdout
    nothing = gpusched.script('open("result", "w")', "nothing.py")
    assert "computes no dask array before it was ended" in gpusched("explain", nothing).stdout


def test_writes_are_allowed_with_the_flag(gpusched: Runner) -> None:
    script = gpusched.script(f'{HEAD}\nnp.save("result", total)\nsys.exit(4)\n')
    done = gpusched("explain", "--allow-writes", script)
    assert done.returncode == 4
    assert (gpusched.folder / "result.npy").exists()
    assert done.stderr == ""


def test_reading_and_scratch_files_are_allowed(gpusched: Runner) -> None:
    (gpusched.folder / "kept").write_bytes(b"precious")
    (gpusched.folder / "helper.py").write_text("VALUE = 7\n")
    script = gpusched.script(
        HEAD
        + "import helper, matplotlib.pyplot\n"
        + "assert open('kept').read() == 'precious'\n"
        + "with tempfile.TemporaryDirectory() as d: np.save(d + '/x', total)\n"
        + "Path('.').mkdir(parents=True, exist_ok=True)\n"
        + "open(os.devnull, 'w').write('x')\n"
        + "Path('missing').unlink(missing_ok=True)\n"
        + "sqlite3.connect(':memory:')\n"
        + "print('went on')\n"
    )
    done = gpusched("explain", script)
    assert done.returncode == 0, done.stderr
    assert "went on" in done.stderr
    assert sorted(os.listdir(gpusched.folder)) == ["helper.py", "kept", "scratch", "script.py"]


def test_other_processes_cannot_write_either(gpusched: Runner) -> None:
    (gpusched.folder / "kept").write_bytes(b"precious")
    script = gpusched.script(f"{HEAD}\nsubprocess.run('echo x > kept', shell=True, check=True)\n")
    done = gpusched("explain", script)
    assert (gpusched.folder / "kept").read_bytes() == b"precious"
    assert done.returncode in (1, 3)


def test_a_page_is_written_although_the_script_is_ended(gpusched: Runner) -> None:
    (gpusched.folder / "page.html").write_text("old" * 100_000)
    script = gpusched.script(f'{HEAD}\nnp.save("result", total)\n')
    done = gpusched("explain", "--html", "page.html", script)
    assert done.returncode == 3
    page = (gpusched.folder / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<h2>") == 1
    assert not (gpusched.folder / "result.npy").exists()


@pytest.mark.slow
def test_the_demo_is_explained_up_to_its_output(gpusched: Runner) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "terrain.py"
    arguments = ["--scale", "1", "--no-zarr", "--output", str(gpusched.folder / "out")]
    (gpusched.folder / "out").mkdir()
    (gpusched.folder / "out" / "terrain.png").write_bytes(b"precious")
    done = gpusched("explain", str(example), *arguments)
    assert done.returncode == 3, done.stderr
    assert "figure.savefig(path)" in done.stderr
    assert (gpusched.folder / "out" / "terrain.png").read_bytes() == b"precious"
    assert "dask.compute(table, overview, stored)" in done.stdout
