"""``gpusched cache``: kernels on disk, and packs of them that other machines start warm from."""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched as package
from gpusched.backends import cache
from gpusched.cli import packs
from gpusched.store import emitters, kernelfiles

from .conftest import Runner, call

PROGRAM = """
import sys
import dask.array as da, gpusched, numpy as np
x = da.from_array(np.random.default_rng(0).random((400, 300)), chunks=(100, 300))
total = (np.sqrt(x * 2 + 1) / (x + 3)).sum().compute()
made = gpusched.statistics()
imported = "numba" in sys.modules and "sparse" not in sys.modules  # dask imports it, and it numba
print(round(float(total)), made.compilations, made.kernels_loaded > 0, imported)
"""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """Give a cache directory with a kernel."""
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / "cache"),
                          "gpusched.fusion.minimum-elements": 1}):  # fmt: skip
        cache.kernels.clear()
        with package.enable():
            x = da.ones((40, 30), chunks=20)
            (np.sqrt(x * 2 + 1) - x).compute(scheduler="sync")
        yield tmp_path / "cache"
        cache.kernels.clear()


@pytest.fixture
def pack(kept: Path, tmp_path: Path) -> Path:
    """Give a pack with that kernel."""
    file = tmp_path / "kernels.pack"
    done = call("cache", "export", str(file))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("1 kernel, ")
    return file


def machine_code(folder: Path) -> list[Path]:
    return sorted((folder / "kernels").rglob("*.code"))


def test_a_pack_brings_the_kernels_that_it_was_made_of(pack: Path, tmp_path: Path) -> None:
    (there,) = machine_code(tmp_path / "cache")
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / "other")}):
        assert call("cache", "import", str(pack)).output == "1 kernel imported, 0 were there\n"
        (here,) = machine_code(tmp_path / "other")
        assert here.read_bytes() == there.read_bytes()
        assert here.parent.stat().st_mode & 0o077 == 0
        assert call("cache", "import", str(pack)).output == "0 kernels imported, 1 was there\n"
        told = json.loads(call("cache", "info", "--json").output)
    assert [(each["kernels"], each["usable"]) for each in told["made"]] == [(1, True)]
    assert told["made"][0]["made_with"] == emitters.made_with()


def rewritten(pack: Path, change: Callable[[str, bytes], tuple[str, bytes]]) -> None:
    with zipfile.ZipFile(pack) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(pack, "w") as archive:
        for entry in entries:
            archive.writestr(*change(*entry))


def flipped(name: str, content: bytes) -> tuple[str, bytes]:
    if name == packs.CONTENTS:
        return name, content
    return name, content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def newer(name: str, content: bytes) -> tuple[str, bytes]:
    return name, content.replace(b'"format": 2', b'"format": 9')


def elsewhere(name: str, content: bytes) -> tuple[str, bytes]:
    name = name if name == packs.CONTENTS else f"../../{Path(name).name}"
    return name, content


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a flipped byte": (lambda p: rewritten(p, flipped), "the seal of"),
    "cut": (lambda p: p.write_bytes(p.read_bytes()[:-50]), "is not a pack of kernels, or damaged"),
    "another file": (lambda p: p.write_text("kernels"), "is not a pack of kernels"),
    "another format": (lambda p: rewritten(p, newer), "of format 9, and this gpusched reads"),
    "a path": (lambda p: rewritten(p, elsewhere), "which is not a kernel"),
    "writable by others": (lambda p: p.chmod(0o666), "somebody else owns it or may write it"),
    "missing": (lambda p: p.unlink(), "No such file"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_pack_that_does_not_verify_is_refused_whole(
    pack: Path, tmp_path: Path, damage: str
) -> None:
    harm, said = DAMAGE[damage]
    harm(pack)
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / "other")}):
        done = call("cache", "import", str(pack))
    assert done.exit_code == 1
    assert said in done.output
    assert str(pack) in done.output
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("part", "others"), [(0, "files of gpusched itself"), (1, "features of the processor")]
)
def test_kernels_for_elsewhere_are_left_out(
    part: int, others: str, pack: Path, tmp_path: Path
) -> None:
    ours = emitters.folder_name()
    parts = ours.split("-")
    parts[part] = "0" * 12
    theirs = "-".join(parts)

    def moved(name: str, content: bytes) -> tuple[str, bytes]:
        return name.replace(ours, theirs), content.replace(ours.encode(), theirs.encode())

    rewritten(pack, moved)
    with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / "other")}):
        done = call("cache", "import", str(pack))
        assert done.exit_code == 1
        assert "has no kernel that this machine can use" in done.output
        here = packs.described(emitters.made_with())
        assert f"here is {here}, with other {others}. Make it" in done.output
        assert call("cache", "import", "--all", str(pack)).exit_code == 0
        (told,) = json.loads(call("cache", "info", "--json").output)["made"]
    assert not told["usable"]


def test_more_than_the_cache_may_hold_is_refused(pack: Path) -> None:
    with dask.config.set({"gpusched.fusion.cache-size": 100}):
        done = call("cache", "import", str(pack))
    assert done.exit_code == 1
    assert "gpusched.fusion.cache-size is 100" in done.output


def test_kernels_go_by_age_by_size_and_all(kept: Path) -> None:
    (code,) = machine_code(kept)
    old = code.with_name(f"old_1f-{'0' * 32}.code")
    shutil.copy(code, old)
    os.utime(old, (time.time() - 864000,) * 2)
    assert call("cache", "prune").output.startswith("0 kernels removed")
    assert call("cache", "prune", "--unused-for", "5 days").output.startswith("1 kernel removed")
    assert machine_code(kept) == [code]
    assert call("cache", "prune", "--other-versions").output.startswith("0 kernels removed")
    assert call("cache", "prune", "--size", "0 B").output.startswith("1 kernel removed")
    assert machine_code(kept) == []
    assert call("cache", "info").output.splitlines()[-1] != ""
    assert call("cache", "clear").exit_code == 0
    assert "no kernels" in call("cache", "info").output
    done = call("cache", "export", str(kept / "pack"))
    assert done.exit_code == 1
    assert "gpusched cache warm SCRIPT" in done.output


def test_what_was_written_and_not_compiled_is_no_kernel(kept: Path) -> None:
    """As it is where tasks run unfused, and a compilation does not pay."""
    (code,) = machine_code(kept)
    for name in ("first_1f.py", "second_2f.py"):
        code.with_name(name).write_text("# not compiled")
    told = json.loads(call("cache", "info", "--json").output)
    assert [each["kernels"] for each in told["made"]] == [1]
    assert call("cache", "clear").output.startswith("1 kernel removed")
    assert list(kept.rglob("*.py")) == []


def test_whoever_writes_removes_what_was_not_used_for_longest(kept: Path) -> None:
    (code,) = machine_code(kept)
    day = time.time() - 864000
    for k in range(5):
        other = code.with_name(f"old_{k}f-{str(k) * 32}.code")
        shutil.copy(code, other)
        os.utime(other, (day + k,) * 2)
    size = sum(p.stat().st_size for p in code.parent.iterdir()) - 4 * code.stat().st_size
    with dask.config.set({"gpusched.fusion.cache-size": size}):
        kernelfiles.keep(code.with_name(f"new_1f-{'9' * 32}.code"), code.read_bytes())
    left = {path.name.partition("_")[0] for path in machine_code(kept)}
    assert "new" in left
    assert len(machine_code(kept)) <= 3


def test_a_folder_that_others_may_write_is_left_alone(kept: Path) -> None:
    (kept / "kernels").chmod(0o777)
    done = call("cache", "info")
    assert done.exit_code == 1
    assert "is not this user's alone" in done.output


def test_a_fresh_process_compiles_nothing_with_a_pack(gpusched: Runner, tmp_path: Path) -> None:
    gpusched.environment["XDG_CACHE_HOME"] = str(tmp_path / "first")
    gpusched.script(PROGRAM)
    mode = "DASK_GPUSCHED__FUSION__COMPILE"
    gpusched.environment[mode] = "off"
    assert gpusched("run", "--local", "--quiet", "script.py").returncode == 0
    assert not list(tmp_path.rglob("first/**/*.py")), "a source of what nobody has compiled"
    gpusched.environment[mode] = "wait"
    warm = gpusched("cache", "warm", "script.py")
    assert warm.returncode == 0, warm.stderr
    total, compiled, _, _ = warm.stdout.split()
    assert warm.stderr.startswith(f"{compiled} kernel")
    assert gpusched("cache", "export", "kernels.pack").returncode == 0
    gpusched.environment["XDG_CACHE_HOME"] = str(tmp_path / "second")
    assert gpusched("cache", "import", "kernels.pack").returncode == 0
    done = gpusched("run", "--local", "--quiet", "script.py")
    assert done.stdout.split() == [total, "0", "True", "False"], done.stderr


def test_two_processes_import_at_once(pack: Path, gpusched: Runner, tmp_path: Path) -> None:
    gpusched.environment["XDG_CACHE_HOME"] = str(tmp_path / "other")
    both = [gpusched.start("cache", "import", str(pack)) for _ in range(2)]
    for process in both:
        _, told = process.communicate()
        assert process.returncode == 0, told
    assert gpusched("cache", "import", str(pack)).stdout == "0 kernels imported, 1 was there\n"


@pytest.mark.exhaustive
def test_the_nodes_of_a_job_import_a_pack(gpusched: Runner, tmp_path: Path) -> None:
    gpusched.environment["XDG_CACHE_HOME"] = str(tmp_path / "first")
    gpusched.script(PROGRAM)
    assert gpusched("cache", "warm", "script.py").returncode == 0
    assert gpusched("cache", "export", "kernels.pack").returncode == 0
    gpusched.environment["XDG_CACHE_HOME"] = str(tmp_path / "second")
    flags = ("--backend=local", "--gpus-per-node=0", "--kernels=kernels.pack", "--wait")
    done = gpusched("submit", *flags, "--", "--quiet", "script.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "imported, 0 were there" in done.stdout
    told = json.loads(gpusched("cache", "info", "--json").stdout)
    assert [each["usable"] for each in told["made"]] == [True]
    missing = gpusched("submit", *flags[:2], "--kernels=none.pack", "--", "script.py")
    assert missing.returncode == 2
    assert "--kernels none.pack is not a file of this machine" in missing.stderr
    gpusched.may_leave_files = True


@pytest.mark.exhaustive
def test_a_worker_that_starts_warm_imports_no_numba(gpusched: Runner, tmp_path: Path) -> None:
    gpusched.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    gpusched.script(
        "import sys\n"
        "import dask.array as da, gpusched, numpy as np\n"
        "from dask.distributed import default_client\n"
        "if __name__ == '__main__':\n"
        "    client = default_client()\n"
        "    x = da.from_array(np.random.default_rng(0).random((400, 300)), chunks=(100, 300))\n"
        "    print(round(float((np.sqrt(x * 2 + 1) / (x + 3)).sum().compute())))\n"
        "    has = client.run(lambda: 'numba' in sys.modules and not 'sparse' in sys.modules)\n"
        "    fused = client.run(lambda: gpusched.statistics().launches)\n"
        "    print(sorted(has.values()), sum(fused.values()) > 0)\n"
    )
    options = ("run", "--workers", "1", "--quiet", "script.py")
    first, second = gpusched(*options), gpusched(*options)
    assert first.returncode == second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[1] == "[False] True"
