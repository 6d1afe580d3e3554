"""The digest of the code that makes kernels changes with every part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusched.kernels import narrowing
from gpusched.store import emitters

PACKAGE = Path(emitters.__file__).parents[1]
NUMBA = "adapters/numba.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small copy of the package's shape."""
    for name in ("emit/generate.py", "vectormath/power.py", "kernels/host/lowering.py", NUMBA):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a = 1\n")
    return tmp_path


def test_every_module_counts(tree: Path) -> None:
    seen = {emitters.digest_of(tree)}
    modules = sorted(tree.rglob("*.py"))
    for path in modules:
        path.write_text("a = 2\n")
        seen.add(emitters.digest_of(tree))
    other = tree / "emit" / "generate.py"
    other.rename(other.with_name("other.py"))
    seen.add(emitters.digest_of(tree))
    assert len(seen) == len(modules) + 2


def test_other_libraries_adapters_do_not(tree: Path) -> None:
    before = emitters.digest_of(tree)
    (tree / NUMBA).with_name("flox.py").write_text("a = 1\n")
    assert emitters.digest_of(tree) == before


def test_writers_of_users_kernels_are_among_them() -> None:
    folder = Path(narrowing.__file__).relative_to(PACKAGE).parts[0]
    assert folder in emitters.PACKAGES
    assert emitters.digest() == emitters.digest_of(PACKAGE)


def test_it_is_part_of_each_backends_key(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = emitters.toolchain.__wrapped__
    before = {toolchain(emitters.HOST), toolchain(emitters.CUDA)}
    monkeypatch.setattr(emitters, "digest", lambda: "other code")
    assert len(before | {toolchain(emitters.HOST), toolchain(emitters.CUDA)}) == 4
