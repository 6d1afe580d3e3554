"""Known libraries: protected as they are imported, and named with who says that they need it."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.config
import pytest

from gpusched import threadsafe
from gpusched.threadsafe import unsafe_libraries
from gpusched.threadsafe.unsafe_libraries import CASES, OFF, Case

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "thread-safety.md"
FRAGILE = Path(__file__).with_name("fragile.py")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ModuleType]]:
    """Give a function that imports a library that nobody has imported yet."""
    (tmp_path / "fragile_library.py").write_text(FRAGILE.read_text())
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: importlib.import_module("fragile_library")
    threadsafe.unprotect()
    sys.modules.pop("fragile_library", None)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that makes one case the whole table."""

    def put(policy: str, *targets: str, **others: Any) -> None:
        added = Case("fragile_library", policy, targets, "It is fragile.", (), **others)
        monkeypatch.setattr(unsafe_libraries, "CASES", (added,))

    return put


def test_library_is_protected_as_it_is_imported(library: Any, case: Any) -> None:
    case("lock(fragile)", "fragile_library:*", results=True)
    threadsafe.protect()
    threadsafe.protect()
    fragile = library()
    assert fragile.add(1, 2) == 3
    with fragile.open_file(2) as file:
        assert isinstance(file, fragile.File)
        assert list(file) == [0, 1]
    assert threadsafe.statistics()["lock(fragile)"].calls >= 6
    with pytest.raises(fragile.FragileError):
        fragile.fail()
    assert [p.applied for p in threadsafe.protections()] == [True]


def test_module_looks_as_if_nobody_had_imported_it_otherwise(library: Any, case: Any) -> None:
    case("lock(fragile)", "fragile_library:*", results=True)
    threadsafe.protect()
    fragile = library()
    assert type(fragile.__spec__.loader).__name__ == "SourceFileLoader"
    assert inspect.getsource(fragile) == FRAGILE.read_text()
    assert importlib.reload(fragile).add(1, 1) == 2


def test_library_that_is_imported_already(library: Any, case: Any) -> None:
    case("lock(fragile)", "fragile_library:add", "fragile_library:File.read")
    fragile = library()
    plain, read = fragile.add, fragile.File.read
    threadsafe.protect()
    assert inspect.isfunction(fragile.add)
    assert inspect.unwrap(fragile.add) is plain
    before = threadsafe.statistics()["lock(fragile)"].calls
    assert (fragile.add(1, 2), fragile.File(3).read(2)) == (3, 2)
    assert threadsafe.statistics()["lock(fragile)"].calls == before + 2
    threadsafe.unprotect()
    assert (fragile.add, fragile.File.read) == (plain, read)


def test_all_methods_of_a_class(library: Any, case: Any, together: Any) -> None:
    case("lock(methods)", "fragile_library:File.*")
    threadsafe.protect()
    fragile = library()
    methods = [n for n in vars(fragile.File) if hasattr(vars(fragile.File)[n], "__wrapped__")]
    assert "read" in methods
    assert not any(name.startswith("_") for name in methods)
    files = [fragile.File(i + 1) for i in range(4)]
    fragile.reset()
    together(*[file.read for file in files])
    assert fragile.state.overlaps == 0
    assert threadsafe.statistics()["lock(methods)"].calls == 4
    threadsafe.unprotect()
    assert not hasattr(fragile.File.read, "__wrapped__")


def test_a_class_without_methods_to_guard_is_told(
    library: Any, case: Any, caplog: pytest.LogCaptureFixture
) -> None:
    case("lock(methods)", "fragile_library:Unreferenced.*")
    threadsafe.protect()
    with caplog.at_level(logging.WARNING):
        library()
    assert "has no ['fragile_library:Unreferenced.*']" in caplog.text


def test_derived_methods_call_guarded_ones(library: Any, case: Any) -> None:
    case("lock(bases)", "fragile_library:File.read")
    threadsafe.protect()
    fragile = library()

    class Mine(fragile.File):  # type: ignore[name-defined, misc]
        def read(self, *args: Any) -> Any:
            return super().read(*args) + 1

    before = threadsafe.statistics()["lock(bases)"].calls
    assert Mine(3).read(2) == fragile.File(3).read(2) + 1
    assert threadsafe.statistics()["lock(bases)"].calls == before + 2


def test_deriving_from_a_wrapped_class_is_told(
    library: Any, case: Any, caplog: pytest.LogCaptureFixture
) -> None:
    case("lock(derived)", "fragile_library:*", results=True)
    threadsafe.protect()
    fragile = library()
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING):

        class Mine(fragile.File):  # type: ignore[name-defined, misc]
            pass

    assert f"{__file__}:{line + 3}: a class derives from File, but its" in caplog.text
    assert "not called under lock(derived); wrap the class itself" in caplog.text
    before = threadsafe.statistics()["lock(derived)"].calls
    assert threadsafe.wrap(Mine, "lock(derived)")(3).read(2) == 2
    assert threadsafe.statistics()["lock(derived)"].calls > before


def test_each_object_has_a_lock_of_its_own(library: Any, case: Any, together: Any) -> None:
    case("lock(fragile, each=True)", "fragile_library:File.read")
    threadsafe.protect()
    fragile = library()
    together(*[fragile.File(i + 1).read for i in range(4)])
    assert fragile.File(3).read(1, scale=2) == 2
    file = fragile.File()
    fragile.reset()
    together(*[lambda: [file.read() for _ in range(20)]] * 4)
    assert fragile.state.overlaps == 0


def test_policy_that_holds_only_at_times(library: Any, case: Any) -> None:
    case("lock(at times)", "fragile_library:File.read", only_while="closed")
    threadsafe.protect()
    file = library().File()
    counts = threadsafe.statistics()["lock(at times)"].calls
    file.read()
    assert threadsafe.statistics()["lock(at times)"].calls == counts
    file.closed = True
    file.read()
    assert threadsafe.statistics()["lock(at times)"].calls == counts + 1


def test_lock_of_the_library_is_taken_too(library: Any, case: Any) -> None:
    case("lock(joined)", joins="fragile_library:phil")
    fragile = library()
    fragile.phil = Recorder()
    threadsafe.protect()
    assert threadsafe.wrap(fragile.add, "lock(joined)")(1, 2) == 3
    with threadsafe.lock("joined"):
        assert fragile.phil.held == 1
    assert (fragile.phil.held, fragile.phil.taken) == (0, 2)


class Recorder:
    """A lock that counts."""

    held = taken = 0

    def acquire(self) -> None:
        self.held += 1
        self.taken += 1

    def release(self) -> None:
        self.held -= 1


def test_settings_change_the_table(library: Any, case: Any) -> None:
    case("lock(fragile)", "fragile_library:add")
    with dask.config.set({"gpusched.threadsafe.policies": {"fragile_library": "one_thread(one)"}}):
        threadsafe.protect()
        assert library().add(1, 2) == 3
        assert threadsafe.statistics()["one_thread(one)"].calls == 1
        assert [p.origin for p in threadsafe.protections()] == ["settings"]


@pytest.mark.parametrize("off", [False, "off"])
def test_settings_switch_a_case_off(library: Any, case: Any, off: Any) -> None:
    case("lock(fragile)", "fragile_library:add")
    with dask.config.set({"gpusched.threadsafe.policies": {"fragile_library": off}}):
        threadsafe.protect()
        assert not hasattr(library().add, "__wrapped__")
        assert [p.policy for p in threadsafe.protections()] == [OFF]


def test_settings_add_a_library(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsafe_libraries, "CASES", ())
    with dask.config.set({"gpusched.threadsafe.policies": {"fragile_library": "limit(n=2)"}}):
        threadsafe.protect()
        assert library().add(1, 2) == 3
    assert threadsafe.statistics()["limit(2, fragile_library)"].calls == 1


def test_setting_that_is_no_policy_is_refused() -> None:
    with (
        dask.config.set({"gpusched.threadsafe.policies": {"netCDF4": "locked"}}),
        pytest.raises(ValueError, match="is not a policy"),
    ):
        threadsafe.protect()


def test_missing_target_is_told(library: Any, case: Any, caplog: pytest.LogCaptureFixture) -> None:
    case("lock(fragile)", "fragile_library:gone", "fragile_library:File.unreferenced")
    threadsafe.protect()
    with caplog.at_level(logging.WARNING):
        library()
    assert "'fragile_library:gone', 'fragile_library:File.unreferenced'" in caplog.text


def test_what_cannot_be_guarded_is_told_and_the_rest_is(
    library: Any, case: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (tmp_path / "fragile_library.py").open("a") as file:
        file.write("\nasync def wait() -> int:\n    return 1\n")
    case("lock(fragile)", "fragile_library:*", results=True)
    threadsafe.protect()
    with caplog.at_level(logging.WARNING):
        fragile = library()
    assert "['fragile_library:wait']" in caplog.text
    assert inspect.iscoroutinefunction(fragile.wait)
    assert threadsafe.unwrap(fragile.add) is not fragile.add


@pytest.mark.parametrize("known_case", CASES, ids=lambda case: case.library)
def test_case_has_evidence(known_case: Case) -> None:
    assert known_case.evidence
    assert all(address.startswith("https://") for address in known_case.evidence)
    assert known_case.why.endswith(".")
    assert known_case.policy == OFF or known_case.targets or known_case.joins


def table() -> str:
    lines = ["| library | policy | why | who says so |", "| --- | --- | --- | --- |"]
    for case in CASES:
        links = ", ".join(f"[{_short(address)}]({address})" for address in case.evidence)
        lines.append(f"| {case.library} | `{case.policy}` | {case.why} | {links} |")
    return "\n".join(lines)


def _short(address: str) -> str:
    parts = address.removeprefix("https://").split("/")
    if parts[0] == "github.com" and parts[3] in ("issues", "pull"):
        return f"{parts[2]}#{parts[4]}"
    return (
        parts[0].removeprefix("www.").removeprefix("docs.")
        if parts[0] != "github.com"
        else parts[2]
    )


def test_page_has_the_present_table() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end of table -->\n")
    made = f"{before}<!-- table -->\n{table()}\n<!-- end of table -->\n{after}"
    if os.environ.get("GPUSCHED_REGENERATE") == "1":
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "run GPUSCHED_REGENERATE=1 pytest tests/threadsafe"
