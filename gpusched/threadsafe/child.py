"""The child process of the policy ``process``: ``python -m gpusched.threadsafe.child DESCRIPTOR``.

Ends when its parent does, even in the middle of a call: the parent's thread that started it lives
as long as it, and where that thread ends the kernel ends this process (Linux); elsewhere it ends
once the call returns, for nobody reads the answer.
"""

from __future__ import annotations

import itertools
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pickle import PicklingError
from typing import Any

from gpusched.orphans import end_with_parent
from gpusched.threadsafe import pipe_messages
from gpusched.threadsafe.handle_classes import PLAIN, Package
from gpusched.threadsafe.pipe_messages import Apply, Hold, Raised, Reference, Returned
from gpusched.threadsafe.proxy import _BOUND
from gpusched.threadsafe.specials import specials


class Child:
    """Keeps objects, and carries out what it is asked to, one after the other."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._kept: dict[int, tuple[Any, Package]] = {}

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request: `Returned` or `Raised`, as bytes."""
        try:
            message = pipe_messages.loads(request, lambda number: self._kept[number][0])
            if isinstance(message, Hold):
                return pipe_messages.dumps(
                    Returned(self._keep(pipe_messages.loads(message.content), message.package))
                )
            return self._carry_out(message)
        except BaseException as error:  # noqa: BLE001
            # Whatever the library raises is the caller's, as it would be without a child: also
            # SystemExit, which would end this process with all that it keeps.
            return _raised(error)

    def _carry_out(self, message: Apply) -> bytes:
        for number in message.dropped:
            self._kept.pop(number, None)
        value, package = self._kept[message.number]
        result = message.operation(value, *message.args)
        if result is value:
            return pipe_messages.dumps(Returned(message.number))
        if type(result) in PLAIN or not (type(result) in _BOUND or package.is_handle(result)):
            try:
                return pipe_messages.dumps(Returned((result,)))
            except (AttributeError, TypeError, PicklingError, ValueError):
                # What cannot be sent is used where it is.
                pass
        return pipe_messages.dumps(Returned(self._keep(result, package)))

    def _keep(self, value: Any, package: Package) -> Reference:
        number = next(self._numbers)
        self._kept[number] = (value, package)
        kind = type(value)
        return Reference(number, specials(kind), (kind.__module__, kind.__qualname__), repr(kind))


def _raised(error: BaseException) -> bytes:
    error.add_note("In the child process:\n" + "".join(traceback.format_tb(error.__traceback__)))
    error.__traceback__ = None
    try:
        content = pipe_messages.dumps(Raised(error))
        pipe_messages.loads(content)
        return content
    except Exception:  # noqa: BLE001
        # Exceptions of any library, with constructors of any kind.
        return pipe_messages.dumps(Raised(RuntimeError(f"{type(error).__name__}: {error}")))


def main(descriptor: int) -> None:
    """Answer requests until the parent ends."""
    end_with_parent()
    # Typed at a terminal, it goes to all its processes; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    sys.path[:] = connection.recv()
    child = Child()
    connection.send("ready")
    while True:
        try:
            request = connection.recv_bytes()
            connection.send_bytes(child.answer(request))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    main(int(sys.argv[1]))
