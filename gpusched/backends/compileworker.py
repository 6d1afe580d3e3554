"""The compile service with its compilers: imports them, and compiles in workers, one by one."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from gpusched.store.service import protocol, server
from gpusched.store.service.compilers import Work


def prepared() -> Work:
    """Import what compiles, once for all workers; return what these do."""
    with _absent("scipy", "coverage"):
        import gpusched.backends.cache
        import gpusched.backends.cpu  # noqa: F401
        from gpusched.adapters import numba

        numba.load_registries()
    # A compilation makes many objects; looking through all of numba's for garbage each time took
    # a seventh of the processor's time.
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)
    return serve


@contextmanager
def _absent(*names: str) -> Iterator[None]:
    """Let packages not be found that numba imports where they are, and kernels have no use for.

    SciPy is there for linear algebra, and takes a quarter of the time until the first kernel.
    """
    missing: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


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
    from gpusched.emit.kernel import from_data

    kernel = from_data(request["kernel"])
    if request["target"] == "cuda":
        from gpusched.backends.cuda import runtime

        return runtime.code_for(kernel, tuple(request["cc"]), request["key"])
    from gpusched.backends import cache

    return cache.code_for(kernel, request["key"])


if __name__ == "__main__":
    server.main(prepared, *sys.argv[1:])
