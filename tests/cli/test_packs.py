"""Packs of kernels: used where they fit, and refused where they are not what they should be."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.backends.cache import KernelCache
from gpusched.cli import packs
from gpusched.cli.packs import PackError
from gpusched.emit.kernel import Options
from gpusched.store import codefiles, emitters, processors, tuned
from gpusched.store.statistics import reset_statistics, statistics
from tests.store.test_cache import run_kernel, sample_kernel


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cache"
    with dask.config.set({"gpusched.fusion.cache-directory": str(folder)}):
        yield folder


@pytest.fixture
def pack(root: Path, tmp_path: Path) -> Path:
    """Give a pack of two kernels, whose cache directory is empty by now."""
    for constant in ("float64(3)", "float64(4)"):
        KernelCache().get(sample_kernel(constant))
    path = tmp_path / "kernels.pack"
    packs.write(packs.collect(root)[0], path)
    root.rename(tmp_path / "before")
    reset_statistics()
    return path


def rewritten(pack: Path, change: Callable[[str, bytes], tuple[str, bytes]]) -> Path:
    """Write a pack anew, with other names or contents."""
    made = io.BytesIO()
    with zipfile.ZipFile(pack) as before, zipfile.ZipFile(made, "w") as after:
        for entry in before.infolist():
            after.writestr(*change(entry.filename, before.read(entry)))
    pack.write_bytes(made.getvalue())
    return pack


def test_kernels_of_a_pack_are_loaded_and_not_compiled(pack: Path, root: Path) -> None:
    assert packs.install(packs.read(pack).usable, root) == 2
    run_kernel(KernelCache())
    assert (statistics().compilations, statistics().kernels_loaded) == (0, 1)


def test_equal_packs_are_equal_files(pack: Path, root: Path, tmp_path: Path) -> None:
    packs.install(packs.read(pack), root)
    packs.write(packs.collect(root)[0], tmp_path / "again.pack")
    assert pack.read_bytes() == (tmp_path / "again.pack").read_bytes()


@pytest.mark.parametrize("what", ["processor", "toolchain"])
def test_kernels_for_elsewhere_are_never_loaded(
    what: str, pack: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = (processors, "key") if what == "processor" else (emitters, "toolchain")
    monkeypatch.setattr(module, name, lambda *packages: "0123456789abcdef")
    found = packs.read(pack)
    assert len(found.files) == 2
    assert not found.usable.files
    packs.install(found, root)
    run_kernel(KernelCache())
    assert (statistics().compilations, statistics().kernels_loaded) == (1, 0)


def test_another_processor_s_kernels_in_this_one_s_folder_are_never_loaded(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folder says what kernels are for; the key in their names decides.
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(processors, "key", lambda: "0123456789abcdef")
        KernelCache().get(sample_kernel())
        packs.write(packs.collect(root)[0], tmp_path / "kernels.pack")
        theirs = emitters.folder_name()
    found = packs.read(tmp_path / "kernels.pack")
    moved = {n.replace(theirs, emitters.folder_name()): c for n, c in found.files.items()}
    packs.install(packs.Pack(moved, {}), root)
    reset_statistics()
    run_kernel(KernelCache())
    assert (statistics().compilations, statistics().kernels_loaded) == (1, 0)


def other_key(name: str, content: bytes) -> tuple[str, bytes]:
    if name == packs.CONTENTS:
        return name, content
    return f"{name.removesuffix('.code')[:-32]}{'0' * 32}.code", content


def pickled(name: str, content: bytes) -> tuple[str, bytes]:
    return name.replace(".code", ".pickle"), content


def unreadable(name: str, content: bytes) -> tuple[str, bytes]:
    return name, b"[1" if name == packs.CONTENTS else content


@pytest.mark.parametrize(
    ("change", "message"),
    [(pickled, "is not a kernel"), (unreadable, "pack.json"), (other_key, "the seal of")],
)
def test_what_does_not_verify_is_refused(change: Any, message: str, pack: Path) -> None:
    with pytest.raises(PackError, match=f"{pack.name}.*{message}"):
        packs.read(rewritten(pack, change))


def test_a_pack_that_was_cut_short_or_changed_is_refused(pack: Path) -> None:
    whole = pack.read_bytes()
    for content in (b"", b"no pack", *(whole[:n] for n in range(0, len(whole), 97))):
        pack.write_bytes(content)
        with pytest.raises(PackError, match="export"):
            packs.read(pack)


def test_damaged_kernels_are_left_out_of_a_pack(pack: Path, root: Path) -> None:
    packs.install(packs.read(pack), root)
    damaged, _ = sorted(root.rglob("*.code"))
    damaged.write_bytes(damaged.read_bytes()[:-5])
    found, left_out = packs.collect(root)
    assert len(found.files) == 1
    assert left_out == [damaged]


def full(*arguments: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_an_earlier_pack_as_it_was(
    pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pack.read_bytes()
    found = packs.read(pack)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(PackError, match=r"cannot write .*kernels\.pack: No space left"):
        packs.write(found, pack)
    assert pack.read_bytes() == before
    assert not list(pack.parent.glob(".writing-*"))


def test_a_full_disk_keeps_what_was_imported_before(
    pack: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = codefiles.write

    def second_is_full(path: Path, content: bytes, *levels: int) -> None:
        if list(root.rglob("*.code")) and path.suffix == ".code":
            full()
        whole(path, content, *levels)

    monkeypatch.setattr(codefiles, "write", second_is_full)
    with pytest.raises(PackError, match=r"No space left.*1 kernels were imported"):
        packs.install(packs.read(pack), root)
    monkeypatch.undo()
    assert packs.install(packs.read(pack), root) == 1


def test_what_was_imported_computes_the_same(pack: Path, root: Path) -> None:
    packs.install(packs.read(pack), root)
    x, found = np.arange(5.0), np.zeros(5)
    KernelCache().get(sample_kernel("float64(4)")).call(x, found, 5)
    np.testing.assert_array_equal(found, x * 4 + 1)


BEST = tuned.Choice("multiply_add", Options(vector=128), 0.9, "2026-11-25T11:00:00")


@pytest.fixture
def tuned_pack(root: Path, tmp_path: Path) -> Path:
    """Give a pack of a kernel that was tuned, whose cache directory is empty by now."""
    assert tuned.remember(sample_kernel(), tuned.here(), BEST)
    KernelCache().get(sample_kernel())
    path = tmp_path / "tuned.pack"
    packs.write(packs.collect(root)[0], path)
    root.rename(tmp_path / "before")
    reset_statistics()
    return path


def test_what_was_tuned_comes_with_a_pack(tuned_pack: Path, root: Path) -> None:
    found = packs.read(tuned_pack).usable
    assert packs.install_tunings(found, root) == 1
    packs.install(found, root)
    assert tuned.find(sample_kernel(), tuned.here()) == BEST
    run_kernel(KernelCache())
    assert (statistics().compilations, statistics().kernels_loaded) == (0, 1)


def test_what_was_measured_here_stays(tuned_pack: Path, root: Path) -> None:
    own = replace(BEST, options=Options(vector=256), ratio=0.8)
    tuned.remember(sample_kernel(), tuned.here(), own)
    assert packs.install_tunings(packs.read(tuned_pack), root) == 0
    assert tuned.find(sample_kernel(), tuned.here()) == own


def test_what_was_tuned_for_elsewhere_is_left_out(
    tuned_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "here", lambda: tuned.Place("cpu", "another", "toolchain"))
    found = packs.read(tuned_pack)
    assert len(found.tunings) == 1 and not found.usable.tunings


def resealed(change: Callable[[bytes], bytes]) -> Callable[[str, bytes], tuple[str, bytes]]:
    def changed(name: str, content: bytes) -> tuple[str, bytes]:
        if name != tuned.FILE:
            return name, content
        return name, codefiles.seal(name, change(codefiles.unseal(name, content)))

    return changed


def unsealed(name: str, content: bytes) -> tuple[str, bytes]:
    return name, content[:-1] + b" " if name == tuned.FILE else content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unsealed, "checksum"),
        (resealed(lambda text: text[:-1]), "delimiter"),
        (resealed(lambda text: b"[]"), "AttributeError"),
        (resealed(lambda text: text.replace(b"|cpu|", b"|gpu|")), "a kernel named"),
        (resealed(lambda text: text.replace(b"128", b"129")), "vector=129"),
        (resealed(lambda text: text.replace(b'"vector"', b'"width"')), "TypeError"),
        (resealed(lambda text: text.replace(b'"ratio"', b'"times"')), "KeyError"),
    ],
)
def test_choices_that_do_not_verify_are_refused(
    change: Any, message: str, tuned_pack: Path
) -> None:
    with pytest.raises(PackError, match=f"{tuned_pack.name}.*tuning.json.*{message}"):
        packs.read(rewritten(tuned_pack, change))


def test_damaged_choices_are_left_out_of_a_pack(tuned_pack: Path, root: Path) -> None:
    found = packs.read(tuned_pack)
    packs.install(found, root)
    (root / tuned.FILE).write_text("{")
    pack, left_out = packs.collect(root)
    assert (len(pack.files), pack.tunings, left_out) == (1, {}, [root / tuned.FILE])
