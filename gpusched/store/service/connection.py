"""One process's connection to the compile service, shared by its threads."""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from gpusched.store.service import protocol

PATIENCE = 30.0
"""Seconds after which a service has to show that it is alive, and that it has to do so: it takes
milliseconds, however long a compilation takes."""


class ServiceLostError(ConnectionError):
    """The service has ended, or closed the connection."""


class SilentServiceError(ConnectionError):
    """The service is there, and does not answer: it is stopped, or hangs."""


class Connection:
    """Asks and waits for answers, which come in any order.

    Parameters
    ----------
    connected
        A socket to the service; closed with the connection.

    Notes
    -----
    Thread-safe. A thread sends the messages, so that nobody waits for a service that does not take
    them, and one reads the answers; neither keeps the process from ending.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._messages: queue.Queue[bytes | None] = queue.Queue()
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[protocol.Frame]] = {}
        self._ended = threading.Event()
        threading.Thread(target=self._read, name="gpusched-compile-answers", daemon=True).start()
        threading.Thread(target=self._send, name="gpusched-compile-requests", daemon=True).start()

    @property
    def lost(self) -> bool:
        """Whether no more answers come."""
        return self._ended.is_set()

    def ask(self, message: dict[str, Any], patience: float = PATIENCE) -> protocol.Frame:
        """Send a message, and return the answer, however long that takes a service that is alive.

        Parameters
        ----------
        message
            Without a number.
        patience
            Seconds after which it is asked whether it is alive, and that it has to say so.

        Raises
        ------
        ServiceLostError
            If no answer came before the connection ended.
        SilentServiceError
            If the service answers nothing any more.
        """
        with self._sent(message) as answer:
            while True:
                try:
                    return answer.result(patience)
                except TimeoutError:
                    self._check(patience)

    def _check(self, patience: float) -> None:
        """Raise `SilentServiceError` unless the service answers a question about itself."""
        with self._sent({"op": "status"}) as answer:
            try:
                answer.result(patience)
            except TimeoutError:
                raise SilentServiceError(f"no answer for {patience:g} s") from None

    @contextlib.contextmanager
    def _sent(self, message: dict[str, Any]) -> Iterator[Future[protocol.Frame]]:
        """Send a message, and give what will have its answer."""
        number = next(self._numbers)
        answer = self._asked[number] = Future()
        try:
            self.tell({**message, "id": number})
            if self._ended.is_set():
                self._give_up()
            yield answer
        finally:
            self._asked.pop(number, None)

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message that has no answer; nothing happens if the service is gone."""
        self._messages.put(protocol.packed(message))

    def wait_until_sent(self, timeout: float) -> bool:
        """Wait until the service has been sent all messages; return whether it has."""
        messages = self._messages
        with messages.all_tasks_done:
            return messages.all_tasks_done.wait_for(lambda: not messages.unfinished_tasks, timeout)

    def _send(self) -> None:
        for message in iter(self._messages.get, None):
            with contextlib.suppress(OSError):
                self._socket.sendall(message)
            self._messages.task_done()
        self._messages.task_done()

    def wait_until_lost(self, timeout: float | None = None) -> bool:
        """Wait until the service has closed the connection; return whether it has."""
        return self._ended.wait(timeout)

    def close(self) -> None:
        """End the connection; whoever waits for an answer gets none."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._ended.wait()

    def _read(self) -> None:
        with (
            contextlib.suppress(OSError, protocol.FrameError),
            self._socket.makefile("rb") as stream,
        ):
            while (frame := protocol.read(stream)) is not None:
                waiting = self._asked.get(frame[0].get("id", 0))
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
        self._ended.set()
        self._messages.put(None)
        self._give_up()
        with contextlib.suppress(OSError):  # Whoever sends at this moment is let go.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _give_up(self) -> None:
        for waiting in list(self._asked.values()):
            if not waiting.done():
                with contextlib.suppress(Exception):  # Another thread was faster.
                    waiting.set_exception(ServiceLostError("the compile service has ended"))
