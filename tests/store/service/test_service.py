"""The compile service as a process: shared, survived, and gone afterwards."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pytest

from gpusched.backends import cache
from gpusched.backends.cache import KernelCache
from gpusched.store import background, unfused
from gpusched.store.service import client, compilers
from gpusched.store.service import start as starting
from gpusched.store.service.connection import SilentServiceError
from gpusched.store.statistics import reset_statistics, statistics
from tests.store.test_cache import sample_kernel
from tests.store.test_compile_once import ASKING, check, counts, process, start
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.processes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a service and kernels a folder, for the processes that a test starts as well."""
    with tempfile.TemporaryDirectory(prefix="gpusched-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("DASK_GPUSCHED__FUSION__COMPILER", "service")
        settings = {"fusion.compiler": "service", "fusion.cache-directory": str(tmp_path)}
        with dask.config.set({f"gpusched.{key}": value for key, value in settings.items()}):
            reset_statistics()
            client._client.close()
            yield tmp_path
            client.stop()
            assert client.status() is None
            client._client.close()


def pid() -> int:
    found = client.status()
    assert found is not None
    return int(found["pid"])


def kill() -> None:
    """Kill the service, and wait until the connection knows it."""
    connection = client._client._connection
    os.kill(pid(), signal.SIGKILL)
    assert connection is not None
    connection.wait_until_lost()


def test_a_kernel_comes_from_the_service_and_is_kept(folder: Path) -> None:
    check(KernelCache().get(sample_kernel()))
    assert statistics().compilations == 1
    found = client.status()
    assert found is not None and (found["compiled"], found["compilations"]) == (1, [])
    (name,), (seconds,) = client.made().keys(), client.made().values()
    assert name == sample_kernel().name and seconds > 0
    assert statistics().unused_compilations == pytest.approx({name: seconds}, abs=1e-6)
    served = psutil.Process(pid())
    client.stop()
    served.wait(PATIENCE)
    assert client.place().log.read_text() == ""
    assert client.made() == {}
    check(KernelCache().get(sample_kernel()))
    assert (statistics().compilations, statistics().kernels_loaded) == (1, 1)
    assert client.status() is None, "what is in a file starts no service"


def test_the_start_of_a_service_is_expected_where_there_is_none(folder: Path) -> None:
    assert client.starting() > 0
    KernelCache().get(sample_kernel())
    assert client.starting() == 0
    client._client.close()
    assert client.starting() == 0, "another process finds it"
    client.stop()
    assert client.starting() > 0


def test_processes_that_start_together_share_one_service(folder: Path) -> None:
    with (
        process(ASKING, str(folder), "3", "5") as a,
        process(ASKING, str(folder), "3", "5") as b,
        process(ASKING, str(folder), "3", "5") as c,
    ):
        for running in (a, b, c):
            start(running)
        found = [counts(running) for running in (a, b, c)]
    assert sum(f["compilations"] for f in found) == 2
    assert sum(f["kernels_loaded"] + f["kernels_waited"] for f in found) == 4
    known = client.status()
    assert known is not None and known["compiled"] == 2 and known["clients"] == 1
    assert len(list(folder.rglob("*.code"))) == 2


def test_who_asks_after_a_kernel_was_made_is_given_that_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process does that has looked for the file before it was there."""
    asked: list[dict[str, Any]] = []
    plain = client._client.ask

    def ask(message: dict[str, Any]) -> Any:
        asked.append(dict(message))
        return plain(message)

    monkeypatch.setattr(client._client, "ask", ask)
    KernelCache().get(sample_kernel())
    (message,) = asked
    (file,) = folder.rglob("*.code")
    answer, sealed = plain(dict(message))
    assert (answer["first"], sealed) == (False, file.read_bytes())
    file.write_bytes(b"damaged")
    answer, again = plain(dict(message))
    assert (answer["first"], again) == (True, file.read_bytes())
    found = client.status()
    assert found is not None and found["compiled"] == 2


def test_its_death_is_survived(folder: Path) -> None:
    check(KernelCache().get(sample_kernel()))
    kill()
    KernelCache().get(sample_kernel("float64(5)"))
    assert statistics().compilations == 2


def test_death_with_a_request_is_survived(folder: Path) -> None:
    KernelCache().get(sample_kernel("float64(5)"))
    first = pid()
    os.kill(first, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(KernelCache().get, sample_kernel())
        os.kill(first, signal.SIGKILL)
        check(waiting.result())
    assert pid() != first


def test_it_outlives_the_client_and_its_terminal_s_interrupt(folder: Path) -> None:
    code = (
        "import os, signal, dask\n"
        "from tests.store.test_cache import sample_kernel\n"
        "from gpusched.backends.cache import kernels\n"
        f"dask.config.set({{'gpusched.fusion.cache-directory': {str(folder)!r}}})\n"
        "kernels.get(sample_kernel())\n"
        # A background job's processes would ignore it.
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "os.killpg(0, signal.SIGINT)\n"
    )
    # Its output ends with it: the service holds none of its files.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, start_new_session=True,
                          timeout=120, check=False)  # fmt: skip
    assert done.returncode == -signal.SIGINT
    found = client.status()
    assert found is not None and found["compiled"] == 1
    assert os.readlink(f"/proc/{found['pid']}/cwd") == "/"
    assert os.getsid(found["pid"]) != os.getsid(0)


def test_what_a_process_has_asked_for_is_compiled_after_its_end(folder: Path) -> None:
    code = (
        "import threading, dask\n"
        "from tests.store.test_cache import sample_kernel\n"
        "from gpusched.backends.cache import kernels\n"
        "from gpusched.store import background\n"
        "from gpusched.store.service import client\n"
        f"dask.config.set({{'gpusched.fusion.cache-directory': {str(folder)!r}}})\n"
        "begun = threading.Event()\n"
        "def connected(*given, **more):\n"
        "    begun.set()\n"
        "    threading.Event().wait()\n"  # As if the service took long to start.
        "client.connected = connected\n"
        "background.request([kernels.handle(sample_kernel())], 0.0, urgent=False)\n"
        "begun.wait()\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
    wait_for(lambda: (client.status() or {"compiled": 0})["compiled"] == 1)
    check(KernelCache().get(sample_kernel()))
    assert (statistics().compilations, statistics().kernels_loaded) == (0, 1)


def test_what_can_wait_starts_no_service_beside_tasks(folder: Path) -> None:
    """Until none runs, or one becomes urgent; a process that ends leaves it for a service."""
    running = unfused.running
    running.begin()
    handle = KernelCache().handle(sample_kernel())
    background.request([handle], 0.0, urgent=False)
    wait_for(lambda: client._client._unanswered)
    assert client.status() is None
    background.request([handle], 1.0)
    assert background.join(PATIENCE)
    assert handle.ready
    running.end()


def test_background_compilation_has_no_numba_in_this_process(folder: Path) -> None:
    code = (
        # Where sparse is installed, dask imports it, and it numba.
        "import sys; sys.modules['sparse'] = None\n"
        "import dask, dask.array as da, gpusched\n"
        "from gpusched.store import background\n"
        "from gpusched.store.handles import Handle\n"
        f"dask.config.set({{'gpusched.fusion.cache-directory': {str(folder)!r}, "
        "'gpusched.fusion.compile': 'background'})\n"
        "from gpusched.store import worthwhile\n"
        "worthwhile.gain = lambda *given: 1.0\n"
        "x = da.ones((4000, 100), chunks=(1000, 100))\n"
        "for _ in range(2):\n"
        "    with gpusched.enable():\n"
        "        assert float((da.exp(x) * 2 + x).max().compute(scheduler='sync')) > 6\n"
        "    assert background.join(100)\n"
        "assert 'numba' not in sys.modules\n"
        "found = gpusched.statistics()\n"
        "print(found.unfused_tasks, found.fused_tasks, found.compilations)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          check=False)  # fmt: skip
    unfused, fused, compiled = map(int, done.stdout.split())
    assert unfused > 0 and fused >= 4 and compiled >= 1, done.stderr


def test_without_processes_kernels_are_compiled_here_with_one_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError("no processes here")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(client, "_complained", set())
    with caplog.at_level(logging.WARNING):
        for constant in (3, 5):
            KernelCache().get(sample_kernel(f"float64({constant})"))
    assert statistics().compilations == 2
    (message,) = [r.message for r in caplog.records if "not by a service" in r.message]
    assert "no processes here" in message


@pytest.mark.parametrize("killed", [2, 3])
def test_a_service_that_is_killed_as_it_starts_is_started_again(
    killed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter(["kill -9 $$"] * killed + ["true"])
    monkeypatch.setattr(starting, "_process", lambda _: subprocess.Popen(["sh", "-c", next(codes)]))
    place = starting.Place(tmp_path / "own", "a")
    if killed < starting.STARTS:
        starting._start(place)
        assert not [*codes]
    else:
        monkeypatch.setattr(client, "place", lambda: place)
        asking = client.Client()
        with pytest.raises(starting.KilledError, match="status -9"):
            asking._connected()
        assert [*codes] == ["true"], "for the next request"
        assert not asking._refusal


def test_a_place_where_none_can_listen_is_known_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "_complained", set())
    place = client.place()
    place.prepare()
    place.socket.mkdir()
    with caplog.at_level(logging.WARNING):
        check(KernelCache().get(sample_kernel()))
    (message,) = [r.message for r in caplog.records if "not by a service" in r.message]
    assert "cannot be started" in message
    assert "IsADirectoryError" in place.log.read_text()


def test_a_service_whose_socket_has_been_removed_makes_way_for_another(folder: Path) -> None:
    KernelCache().get(sample_kernel())
    first = pid()
    client.place().socket.unlink()
    client._client.close()
    KernelCache().get(sample_kernel("float64(5)"))
    assert pid() != first
    wait_for(lambda: not psutil.pid_exists(first))
    assert client.place().socket.exists(), "the other one's"


def test_a_service_that_does_not_answer_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    KernelCache().get(sample_kernel("float64(5)"))
    stopped = pid()
    monkeypatch.setattr(client, "_complained", set())
    os.kill(stopped, signal.SIGSTOP)
    try:
        # Whoever ends the service afterwards is as patient as ever.
        with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
            patch.setattr(client, "PATIENCE", 0.1)
            check(KernelCache().get(sample_kernel()))
        assert "does not answer" in caplog.text
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_nobody_waits_for_a_service_that_takes_no_messages(folder: Path) -> None:
    KernelCache().get(sample_kernel("float64(5)"))
    stopped, connection = pid(), client._client._connected()
    os.kill(stopped, signal.SIGSTOP)
    try:
        # Far more than a socket holds.
        for _ in range(1000):
            connection.tell({"op": "nothing", "text": "x" * 10_000})
        assert not connection.wait_until_sent(0.1)
        with pytest.raises(SilentServiceError):
            connection.ask({"op": "status"}, patience=0.1)
        connection.close()
        assert connection.wait_until_sent(PATIENCE), "what cannot be sent is dropped"
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_nonsense_costs_the_connection_only(folder: Path) -> None:
    KernelCache().get(sample_kernel("float64(5)"))
    first, connection = pid(), client._client._connected()
    connection.tell({"op": "nothing of the kind"})
    assert connection.wait_until_lost(PATIENCE)
    check(KernelCache().get(sample_kernel()))
    assert pid() == first


def test_a_users_function_is_compiled_here(folder: Path) -> None:
    import gpusched

    @gpusched.kernel
    def poly(x: float) -> float:
        return x * x + 3.0

    cache.kernels.clear()
    np.testing.assert_array_equal(poly(np.arange(3.0)), [3.0, 4.0, 7.0])
    assert client.status() is None


def test_without_threads_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    found = background.Background()
    kernels = [KernelCache().handle(sample_kernel(f"float64({k})")) for k in (3, 5)]
    found.request(kernels, 1.0)
    assert ["no threads" in record.message for record in caplog.records] == [True]
    assert not any(kernel.ready for kernel in kernels)


@pytest.mark.parametrize(("urgent", "nice"), [(True, 0), (False, compilers.IDLE)])
def test_what_is_worth_no_time_of_tasks_gives_way_to_them(
    folder: Path, urgent: bool, nice: int
) -> None:
    with client.wishing(gain=1.0, urgent=urgent):
        KernelCache().get(sample_kernel())
    (worker,) = psutil.Process(pid()).children()
    assert worker.nice() == max(os.getpriority(os.PRIO_PROCESS, 0), nice)
    group = Path(f"/proc/{worker.pid}/autogroup")
    if group.exists():  # Niceness counts within a session where Linux groups by session.
        assert int(group.read_text().split()[-1]) == nice


def test_its_own_process_imports_nothing_that_only_clients_need() -> None:
    code = "import sys, gpusched.store.service.server\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True)
    assert {"numpy", "numba", "distributed"}.isdisjoint(done.stdout.decode().split())
