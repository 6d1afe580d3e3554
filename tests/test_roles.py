"""What a process is on a cluster, while a thread of it imports distributed."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from gpusched import roles


@pytest.fixture
def half_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have distributed as other threads see it while one imports it: with nothing in it yet."""
    for name in ("distributed", "distributed.worker", "distributed.scheduler"):
        module, spec = ModuleType(name), ModuleSpec(name, None)
        spec._initializing = True  # type: ignore[attr-defined]
        module.__spec__ = spec
        monkeypatch.setitem(sys.modules, name, module)


def test_a_process_that_is_importing_distributed_has_no_part_in_a_cluster(
    half_imported: None,
) -> None:
    assert roles.current_client() is None
    assert roles.computing_client() is None
    assert roles.current_worker() is None
    assert roles.current_key() is None
    assert not roles.has_scheduler()
    assert roles.cluster_threads() == 0
