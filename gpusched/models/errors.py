"""What is wrong with a model, or with what it gives."""

from __future__ import annotations

import socket
from typing import Any

from gpusched.roles import current_worker


class ModelError(RuntimeError):
    """A model cannot be sent, loaded or used so; the message says what to change."""


class WritesInputError(ModelError):
    """A model has changed a chunk that others may use."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the model {name} has changed its input in place, a chunk that others may use: let a "
            "sample show that it does, by leaving out meta and shape, and chunks will be copied; "
            "or pass a function that copies"
        )
        self.name = name

    def __reduce__(self) -> Any:
        return type(self), (self.name,)


def here() -> str:
    """Return where this process is, for messages: a worker's address, or the machine's name.

    Examples
    --------
    >>> from gpusched.models.errors import here
    >>> here().startswith("this process on ")
    True
    """
    worker = current_worker()
    if worker is not None:
        return f"worker {worker.address}"
    return f"this process on {socket.gethostname()}"
