"""What a process asks of others, and gives them, whatever the kind of machine code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.backends.cache import KernelCache
from gpusched.backends.cuda import runtime
from gpusched.store import codefiles, sharing
from gpusched.store.statistics import count_compilation, reset_statistics, statistics
from tests.store.test_cache import sample_kernel

CUBIN = b"\x7fELF" + bytes(range(256))


class Others:
    """Stands for the other workers of a cluster."""

    def __init__(self) -> None:
        self.codes: dict[str, bytes | None] = {}
        self.asked: list[str] = []
        self.files: dict[str, Path] = {}
        self.refusal = ""

    def request(self, key: str, patience: float) -> bytes | None:
        self.asked.append(key)
        if self.refusal:
            raise sharing.NotSharedError(self.refusal)
        return self.codes.get(key)

    def publish(self, key: str, sealed: bytes | None) -> None:
        self.codes[key] = sealed

    def keep(self, key: str, path: Path) -> None:
        self.files[key] = path


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    found = Others()
    monkeypatch.setattr(sharing, "exchanges", [found])
    reset_statistics()
    return found


@pytest.fixture(params=["folder", "no folder"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | None]:
    path = tmp_path if request.param == "folder" else None
    with dask.config.set({"gpusched.fusion.cache-directory": path and str(path)}):
        yield path


def use() -> None:
    x, out = np.arange(4.0), np.empty(4)
    KernelCache().get(sample_kernel()).call(x, out, 4)
    np.testing.assert_array_equal(out, x * 3 + 1)


def compile_cubin(cubin: bytes = CUBIN) -> bytes:
    def build() -> tuple[bytes, bytes]:
        count_compilation("add_1", 0.25)
        return cubin, cubin

    return sharing.obtain(runtime.wanted("add_1", "text", (9, 0)), bytes, build)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".code", ".cubin")]


def test_what_is_compiled_is_given_and_what_is_given_is_kept(
    others: Others, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        with dask.config.set({"gpusched.fusion.cache-directory": str(tmp_path / name)}):
            use()
            use()
            compile_cubin()
            compile_cubin(b"other")
    counts = statistics()
    assert (counts.compilations, counts.kernels_received, counts.kernels_loaded) == (2, 2, 4)
    assert len(others.codes) == 2
    assert len(others.asked) == 4, "what is on disk is not asked for"
    first, second = files(tmp_path / "first"), files(tmp_path / "second")
    assert {f.name: f.read_bytes() for f in first} == {f.name: f.read_bytes() for f in second}
    assert set(others.files.values()) == set(second)


def test_no_folder_is_needed_to_receive(others: Others, folder: Path | None) -> None:
    use()
    others.files.clear()
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        use()
        compile_cubin()
        assert compile_cubin(b"other") == CUBIN
    counts = statistics()
    assert (counts.compilations, counts.kernels_received) == (2, 2)
    assert not others.files


def test_cubins_of_other_gpus_are_others(others: Others) -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        for cc in ((8, 0), (9, 0)):
            wanted, own = runtime.wanted("add_1", "text", cc), CUBIN + bytes(cc)
            assert sharing.obtain(wanted, bytes, lambda own=own: (own, own)) == own


def test_damage_on_the_way_is_seen(others: Others, folder: Path | None) -> None:
    compile_cubin()
    (key,) = others.codes
    others.codes[key] = codefiles.seal("another key", CUBIN)
    for path in files(folder) if folder else ():
        path.unlink()
    assert compile_cubin(b"compiled here") == b"compiled here"
    assert statistics().kernels_unshared == {"damaged code from the cluster": 1}
    assert others.codes[key] == codefiles.seal(key, b"compiled here")


def test_a_refusal_is_counted(others: Others, folder: Path | None) -> None:
    others.refusal = "no answer"
    use()
    assert statistics().compilations == 1
    assert statistics().kernels_unshared == {"no answer": 1}
    assert others.codes, "who waits for another is helped all the same"


def test_who_cannot_compile_says_so(others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusched.backends import cpu

    def fail(*args: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(cpu, "compile_code", fail)
    with (
        dask.config.set({"gpusched.fusion.cache-directory": None}),
        pytest.raises(RuntimeError, match="no"),
    ):
        use()
    assert list(others.codes.values()) == [None]


def test_code_that_is_good_here_only_is_not_given(others: Others, folder: Path | None) -> None:
    wanted = sharing.Wanted("kernel", "key", folder and folder / "file")
    found = sharing.obtain(wanted, lambda code: code, lambda: (b"made", None))
    assert found == b"made"
    assert others.codes == {"key": None}
    assert not folder or not list(folder.iterdir())
