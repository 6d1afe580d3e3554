"""A worker of the compile service: reads a kernel, writes its machine code, again and again."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from typing import Any, BinaryIO

from gpusched.store.service import protocol
from gpusched.store.service.definitions import from_data


def main() -> None:
    """Compile what comes in by the standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What a compiler prints is no answer.
    import gpusched.backends.cpu  # noqa: F401  a second, which is no kernel's time

    # A compilation makes many objects; looking through all of numba's for garbage each time took
    # a seventh of the processor's time.
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)
    serve(sys.stdin.buffer, out)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are none."""
    while (frame := protocol.read(requests)) is not None:
        answer, code = answer_to(frame[0])
        answers.write(protocol.packed(answer, code))
        answers.flush()


def answer_to(request: dict[str, Any]) -> protocol.Frame:
    """Return the answer to a client's request, and the code; no code after an error."""
    started = time.process_time()
    try:
        code = _compiled(request)
    except Exception as error:  # noqa: BLE001  the client compiles it itself, and shows what it gets
        return {"error": f"{type(error).__name__}: {error}"}, b""
    return {"seconds": time.process_time() - started}, code


def _compiled(request: dict[str, Any]) -> bytes:
    kernel = from_data(request["kernel"])
    if request["target"] == "cuda":
        from gpusched.backends.cuda import runtime

        return runtime.code_for(kernel, tuple(request["cc"]), request["key"])
    from gpusched.backends import cache

    return cache.code_for(kernel, request["key"])


if __name__ == "__main__":
    main()
