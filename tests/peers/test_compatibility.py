"""The page of other packages' tests has what was measured of the packages in the table."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.page import replace
from tests.peers import environments
from tests.peers.compatibility import MARK, PAGE, breaks, fewer, kept, measured, share
from tests.peers.packages import PACKAGES, Package
from tests.peers.runs import FUSED, ROOT, run_tests


def test_the_page_is_made_of_what_was_measured(tmp_path: Path) -> None:
    results = kept()
    assert results.keys() <= PACKAGES.keys()
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text())
    replace(page, measured(results), MARK)
    assert page.read_text() == PAGE.read_text(), "run python -m tests.peers.compatibility --page"


def test_what_was_measured_is_of_the_table_and_nothing_was_lost() -> None:
    for name, one in kept().items():
        package = PACKAGES[name]
        assert one["release"] == package.release
        assert not one["lost"]
        assert one["passed"]["plain"]


def test_the_most_frequent_breaks_come_first() -> None:
    counts = {"breaks": [[["a", "why"], 1], [["b", "why"], 3], [["a", "other"], 2]]}
    assert breaks(counts) == [("b", "why", 3), ("a", "other", 2), ("a", "why", 1)]


def test_counts_of_an_earlier_gpusched_stand_beside_todays() -> None:
    (name, one), *_ = kept().items()
    left = one["tasks"] - one["fused"]
    for tests, shown in ((one["tests"], "50% of 8"), (3, "50% of 8 in 3 tests")):
        counts = {"tests": tests, "tasks": 8, "fused": 4}
        row = next(line for line in measured({name: one | {"before": counts}}).splitlines()
                   if line.startswith(f"| {name} "))  # fmt: skip
        assert f"| {one['plain_tasks']:,} | {shown} | {share(one)} | 4 / {left:,} |" in row


def test_fewer_launches_are_reported_where_the_same_tests_ran() -> None:
    kept = {"release": "1", "every": 2, "tests": 3, "fused": 50, "launches": 7541}
    found = kept | {"fused": 46, "launches": 3203}
    assert fewer("it", kept, found) == ["it: 3,203 launches, 7,541 before"]
    assert not fewer("it", kept, found | {"tests": 4})
    assert not fewer("it", {}, found)


def test_an_earlier_checkout_shows_its_gpusched_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    for checkout in (ROOT, tmp_path):
        folder = environments.earlier(checkout)
        assert [path.name for path in folder.iterdir()] == ["gpusched"]
        assert (folder / "gpusched").readlink() == checkout / "gpusched"


@pytest.mark.processes
def test_cloned_tests_import_each_other_by_the_name_that_they_have_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "ecosystem")
    (tmp_path / "ecosystem" / "its-name").mkdir(parents=True)
    repository = tmp_path / "its" / "repository"
    test = repository / "tests" / "test_it.py"
    test.parent.mkdir(parents=True)
    test.write_text("import dask, testsuite\nfrom tests import data\nfrom tests.data import it\n")
    git = ["git", "-C", str(repository), "-c", "user.name=it", "-c", "user.email=it@it"]
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "it"], ["tag", "v1"]):
        subprocess.run([*git, *args], check=True)
    package = Package(("it==1",), "tests", repository="its/repository", revision="v1")
    _, (found,) = environments.tests("its-name", package, str(tmp_path))
    first, *others = Path(found).read_text().splitlines()
    assert first == "import dask, testsuite"
    assert others == ["from its_name_tests import data", "from its_name_tests.data import it"]


SAMPLED = """
import pytest

@pytest.fixture
def chunked():
    return 1

def helper():
    import dask

@pytest.mark.parametrize("k", range(4))
def test_with(k, chunked):
    pass

@pytest.mark.parametrize("k", range(2))
def test_with_dask(k):
    pass

@pytest.mark.parametrize("k", range(11))
def test_without(k):
    pass
"""


@pytest.mark.peers
def test_more_of_the_tests_that_mention_dask_are_run(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(SAMPLED)
    done = run_tests([str(test)], "ecosystem.ini", tmp_path, "sampled", every=2)
    names = sorted(name.rpartition("::")[2] for name in done.passed)
    assert names == ["test_with[0]", "test_with[2]", "test_with_dask[0]", "test_without[0]",
                     "test_without[10]"]  # fmt: skip


CONFTEST = "import distributed.utils_test\n"
TEST = """
import dask
from distributed.utils_test import reset_config

from tests.peers.fused import EVERYTHING


def test_fusion_is_on():
    reset_config()  # As each of distributed's clusters for tests does.
    assert dask.config.get("array_optimize") is not None
    assert all(dask.config.get(name) == value for name, value in EVERYTHING.items())
"""


@pytest.mark.peers
def test_fusion_is_on_whatever_a_conftest_imports(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    test = tmp_path / "test_it.py"
    test.write_text(TEST)
    done = run_tests([str(test)], "ecosystem.ini", tmp_path, "fused", plugins=[FUSED])
    assert len(done.passed) == 1, done.output
