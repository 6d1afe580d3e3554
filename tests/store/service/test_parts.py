"""The compile service's parts: frames, definitions, and which compilation comes first."""

from __future__ import annotations

import io
import json
import os
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest

from gpusched.backends import cache
from gpusched.backends.cache import KernelCache
from gpusched.backends.compileworker import answer_to, serve
from gpusched.emit.kernel import DefinitionError, from_data, to_data
from gpusched.store.service import client, protocol
from gpusched.store.service import start as starting
from gpusched.store.service.compilations import Compilation, Compilations
from gpusched.store.service.connection import Connection, SilentServiceError
from gpusched.store.service.server import Server
from tests.record.recording import record
from tests.store.test_cache import sample_kernel


def request(key: str, gain: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"key": key, "name": f"kernel {key}", "gain": gain, **more}


class TestFrames:
    def test_messages_follow_each_other(self) -> None:
        stream = io.BytesIO(protocol.packed({"a": 1}, b"x" * 1000) + protocol.packed({"b": [None]}))
        assert protocol.read(stream) == ({"a": 1}, b"x" * 1000)
        assert protocol.read(stream) == ({"b": [None]}, b"")
        assert protocol.read(stream) is None

    @pytest.mark.parametrize("content", [
        b"\0", b"\xff" * 8 + b"\n", b"{}\n", b"1\n", b'[[], ""]\n', b'[{}, "x"]\n',
        b"[{}, 1]\n", protocol.packed({})[:-1],
    ])  # fmt: skip
    def test_anything_else_is_refused(self, content: bytes) -> None:
        with pytest.raises(protocol.FrameError):
            protocol.read(io.BytesIO(content))


class TestDefinitions:
    @pytest.mark.parametrize("function", [
        lambda x: np.exp(-x) * 2 + x, lambda x: np.std(x, axis=1), lambda x: np.where(x > 0, x, 1),
        lambda x: (x.sum(axis=0), x.max()), lambda x: x.astype("i4") // 3,
    ])  # fmt: skip
    def test_a_kernel_is_the_same_after_a_way_as_text(self, function: Any) -> None:
        for launch in record(function, np.ones((300, 40)), backend="python").launches:
            kernel = launch.kernel.kernel
            again = from_data(json.loads(json.dumps(to_data(kernel))))
            assert again == kernel and again.description == kernel.description

    @pytest.mark.parametrize("change", [
        {"loops": "map"}, {"checked": 1}, {"options": {"block": "1"}}, {"more": 1},
        {"inputs": [{"dtype": "float64", "access": ["sideways"]}]}, {"parameters": [1]},
    ])  # fmt: skip
    def test_other_data_is_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises((DefinitionError, ValueError)):
            from_data(to_data(sample_kernel()) | change)


def taken(compilations: Compilations, idle: bool = True) -> str | None:
    compilation = compilations.take(idle)
    return compilation and compilation.key


class TestJobs:
    def test_what_most_wait_for_comes_first_and_then_what_saves_most(self) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("little", 1.0))
        compilations.add((1, 2), request("much", 5.0))
        compilations.add((1, 3), request("awaited", 0.0, awaited=True))
        compilations.add((1, 4), request("awaited by two", 0.0, awaited=True))
        compilations.add((2, 1), request("awaited by two", 0.0, awaited=True))
        order = [taken(compilations) for _ in range(5)]
        assert order == ["awaited by two", "awaited", "much", "little", None]

    def test_gains_of_all_clients_add_up(self) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("one", 3.0))
        assert not [compilations.add((k, 1), request("several", 2.0)) for k in range(3)][-1]
        assert taken(compilations) == "several"

    def test_beside_tasks_only_what_is_urgent(self) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("later"))
        assert taken(compilations, idle=False) is None
        compilations.add((1, 2), request("now", urgent=True))
        assert (taken(compilations), taken(compilations, idle=False)) == ("later", "now")
        compilations.urge("kernel later", 1.0)
        assert taken(compilations, idle=False) == "later", (
            "begun once more, as it has become urgent"
        )

    def test_who_has_asked_is_answered_once(self) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("a", urgent=True))
        compilations.add((2, 7), request("a"))
        compilation = compilations.take(idle=False)
        assert compilation is not None and compilations.is_wanted(compilation)
        assert compilations.finish(compilation) == [(1, 1), (2, 7)]
        assert not compilations.is_wanted(compilation) and not compilations

    def test_the_kernels_of_a_client_that_has_gone_are_compiled_all_the_same(self) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("a"))
        assert taken(compilations, idle=False) is None
        compilations.leave(1)
        compilation = compilations.take(idle=False)
        assert compilation is not None and compilations.finish(compilation) == []

    def test_who_asks_again_for_what_one_that_has_gone_wanted_does_not_put_it_off(
        self,
    ) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("a"))
        compilations.leave(1)
        compilations.add((2, 1), request("a"))
        assert taken(compilations, idle=False) == "a"

    def test_a_client_that_goes_leaves_others_theirs(self) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("a"))
        compilations.add((2, 1), request("a"))
        compilations.leave(1)
        assert taken(compilations, idle=False) is None, (
            "beside the other one's tasks it is as before"
        )

    def test_a_kernel_that_ends_its_compiler_is_tried_twice(self) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("a"))
        found: list[Compilation] = []
        while (compilation := compilations.take(idle=True)) is not None:
            found.append(compilation)
            if not compilations.give_back(compilation, []):
                compilations.finish(compilation)
        assert len(found) == 2

    @pytest.mark.parametrize(("left", "again"), [([True], "a"), ([False], None)])
    def test_what_one_dies_of_that_two_have_begun_goes_on_as_urgent(
        self, left: list[bool], again: str | None
    ) -> None:
        compilations = Compilations()
        compilations.add((1, 1), request("a"))
        compilations.take(idle=True)
        compilations.urge("kernel a", 1.0)
        compilation = compilations.take(idle=False)
        assert compilation is not None and compilations.give_back(compilation, left)
        assert taken(compilations, idle=True) is None
        assert taken(compilations, idle=False) == again
        assert compilations.give_back(compilation, [True]), "who has begun it may still do it"
        assert taken(compilations, idle=False) is None, "two have died of it"


class TestWorker:
    def test_another_toolchain_is_an_error(self) -> None:
        message = {"kernel": to_data(sample_kernel()), "target": "cpu", "key": "another"}
        answer, code = answer_to(message)
        assert "another version of gpusched" in answer["error"] and not code

    def test_errors_do_not_end_it(self) -> None:
        out = io.BytesIO()
        serve(
            io.BytesIO(protocol.packed({}) + protocol.packed({"kernel": 1, "target": "cpu"})), out
        )
        out.seek(0)
        assert "KeyError" in str(protocol.read(out))
        assert "DefinitionError" in str(protocol.read(out))


def test_a_compilation_may_take_longer_than_an_answer_about_the_service() -> None:
    one, other = socket.socketpair()
    asked: list[float] = []

    class Watched(Connection):
        def _check(self, patience: float) -> None:
            asked.append(patience)
            if len(asked) == 2:
                other.sendall(protocol.packed({"id": 1}, b"code"))

    connection = Watched(one)
    with other:
        assert connection.ask({"op": "compile"}, patience=0.01)[1] == b"code"
    assert len(asked) >= 2
    connection.close()


def test_a_service_that_says_nothing_is_not_waited_for() -> None:
    one, other = socket.socketpair()
    connection = Connection(one)
    with other, pytest.raises(SilentServiceError, match=r"0\.01 s"):
        connection.ask({"op": "compile"}, patience=0.01)
    connection.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> starting.Place:
    """Give a place where no service is, and none is started."""
    found = starting.Place(tmp_path / "run", "0" * 16)
    monkeypatch.setattr(client, "place", lambda: found)
    monkeypatch.setattr(starting, "_process", lambda place: SimpleNamespace(pid=-1))
    return found


def served(place: starting.Place, monkeypatch: pytest.MonkeyPatch) -> list[Compilation]:
    """Return the compilations that a service which starts at a place finds there."""
    with socket.socket(socket.AF_UNIX) as listening:
        found = Server(place, listening, idle=1.0, prepare=lambda: serve)
        monkeypatch.setattr(found._compilers, "call", lambda: None)
        found._take_left()
        found._take_left()
        return list(found._compilations)


def test_what_a_process_has_not_asked_for_at_its_end_is_left_for_the_service(
    place: starting.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").touch()
    for keys in ("ab", "bc"):
        ending = client.Client()
        for number, key in enumerate(keys):
            path = tmp_path / ("made" if key == "c" else key)
            ending._unanswered[number] = request(key, op="compile", path=str(path))
        ending.leave()
    compilations = sorted(served(place, monkeypatch), key=lambda compilation: compilation.key)
    assert [
        (compilation.key, compilation.left, compilation.waiting) for compilation in compilations
    ] == [("a", True, {}), ("b", True, {})]
    assert not list(place.folder.iterdir())


def test_damaged_requests_are_left_out(
    place: starting.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting.leave_for(place, [request("a", path=str(tmp_path / "a"))])
    with place.left.open("ab") as file:
        file.write(b"\xff" * 8)
    assert [compilation.key for compilation in served(place, monkeypatch)] == ["a"]


def test_who_has_asked_for_nothing_leaves_nothing(place: starting.Place) -> None:
    client.Client().leave()
    assert not place.folder.exists()


def test_processes_of_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        starting.check_peer(one)
        monkeypatch.setattr("os.getuid", lambda: 12345)
        with pytest.raises(starting.ForeignPeerError, match="user"):
            starting.check_peer(one)


def test_the_folder_is_short_and_its_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    assert tmp_path not in starting.folder().parents, "others may write there"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "x" * 200)
    assert len(str(starting.Place(starting.folder(), "0" * 16).socket)) < 100
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * 200)
    assert starting.folder() == Path(f"/tmp/gpusched-{os.getuid()}")


def test_a_folder_that_would_be_another_one_for_the_service_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own").mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "own")
    assert starting.folder().is_absolute()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "own"))
    monkeypatch.setattr(starting, "_LONGEST", len(str(tmp_path)) + 50)
    assert starting.folder() == tmp_path / "own" / "gpusched"


def test_machines_that_share_a_folder_have_a_service_each(monkeypatch: pytest.MonkeyPatch) -> None:
    here = client.place()
    monkeypatch.setattr("platform.node", lambda: "another machine")
    assert here.folder == client.place().folder
    assert here.socket != client.place().socket


def test_a_socket_that_there_is_no_way_to_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in a folder that another user has made: a task asks for it, and is not to fail."""
    (tmp_path / "kernels").mkdir()
    monkeypatch.setattr(client, "place", lambda: starting.Place(tmp_path / ("x" * 300), "a"))
    settings = {"fusion.compiler": "service", "fusion.cache-directory": str(tmp_path)}
    with dask.config.set({f"gpusched.{key}": value for key, value in settings.items()}):
        monkeypatch.setattr(client, "_client", client.Client())
        assert client.starting() == client.STARTING


def test_what_compilers_die_of_is_not_compiled_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"error": "the compiler's process ended: no answer with status -9", "died": True}
    monkeypatch.setattr(client._client, "ask", lambda message: (answer, b""))
    monkeypatch.setattr(cache.PreparedKernel, "compile", lambda self: pytest.fail("compiles it"))
    settings = {"fusion.compiler": "service", "fusion.cache-directory": str(tmp_path)}
    with (
        dask.config.set({f"gpusched.{key}": value for key, value in settings.items()}),
        pytest.raises(client.CompilerDiedError, match="status -9"),
    ):
        KernelCache().get(sample_kernel("float64(11)"))
