"""Workers of this machine whose GPUs can copy from each other's memory, without the host's.

A worker that is about to fetch results from another one of its machine offers a sample of its own
GPU memory there. If the other one can open it, the opposite is taken to hold, too: from then on its
results may be sent as handles. If a handle cannot be opened after all, the receiver withdraws, and
fetches again through the host.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from distributed import Worker
from distributed.comm.addressing import get_address_host
from distributed.core import clean_exception
from distributed.worker_state_machine import GatherDepFailureEvent, StateMachineEvent

from gpusched import config
from gpusched.serialization.codec import interprocess
from gpusched.serialization.codec.interprocess import Handle, UnopenedMemoryError
from gpusched.serialization.codec.link import Peer

logger = logging.getLogger(__name__)

INTRODUCE = "gpusched_introduce"
"""The request to another worker: to open a sample, and to send handles from then on if it can."""
_SAMPLE = 64
"""Bytes of a sample."""


class Peers:
    """The other workers of a worker's machine, as far as GPU memory is concerned.

    Notes
    -----
    Belongs to the worker's event loop.
    """

    def __init__(self, worker: Any) -> None:
        self._worker: Worker = worker
        self._on_gpu = worker.device.kind == "cuda"
        self._receivers: dict[str, Peer] = {}
        """Who can open this worker's memory, by address."""
        self._introduced: dict[str, asyncio.Task[None]] = {}
        """Who knows whether this worker can open its memory, by address."""
        self._sample: tuple[Any, bytes] | None = None
        self._unable = False
        """Whether no other process's memory can ever be opened here."""
        worker.handlers[INTRODUCE] = self._meet

    def way_to(self, receiver: str | None) -> Peer | None:
        """Return the way to a receiver's GPU, by its address; None if it cannot copy by itself."""
        return self._receivers.get(receiver or "")

    def forget(self, receiver: str | None) -> None:
        """Forget a receiver that does not answer."""
        self._receivers.pop(receiver or "", None)

    async def introduce(self, sender: str) -> None:
        """Let a worker know, once, that this one can open its memory, if that is so."""
        if not self._may_open(sender):
            return
        if sender not in self._introduced:
            self._introduced[sender] = asyncio.create_task(self._offer_sample(sender))
        # Whoever waits may be cancelled, and others wait for the same.
        await asyncio.shield(self._introduced[sender])

    async def withdraw(self, sender: str, event: StateMachineEvent) -> None:
        """Have a worker send through the host from now on, if what it sent could not be opened."""
        if not isinstance(event, GatherDepFailureEvent):
            return
        _, error, _ = clean_exception(event.exception.data)
        if isinstance(error, UnopenedMemoryError):
            logger.warning("results of %s come through the host from now on: %s", sender, error)
            await self._tell(sender, None, b"")

    def _may_open(self, sender: str) -> bool:
        same = get_address_host(sender) == get_address_host(self._worker.address)
        able = self._on_gpu and not self._unable
        return same and able and config.get("serialization.between-gpus") == "auto"

    async def _offer_sample(self, sender: str) -> None:
        try:
            if self._sample is None:
                self._sample = await asyncio.to_thread(_made_sample)
            data, content = self._sample
            sample = await asyncio.to_thread(interprocess.offer, data)
        except (MemoryError, RuntimeError) as error:
            # Without room, or with a context that is lost, which the next task finds out.
            self._introduced.pop(sender, None)
            logger.warning("results of %s come through the host for now: %s", sender, error)
        except Exception as error:  # noqa: BLE001  results can be fetched without, and must be
            self._unable = True
            logger.warning("results come through the host, as CuPy does not work: %r", error)
        else:
            await self._tell(sender, sample, content)

    async def _tell(self, sender: str, sample: Handle | None, content: bytes) -> None:
        request = getattr(self._worker.rpc(sender), INTRODUCE)
        try:
            await request(receiver=self._worker.address, sample=sample, content=content)
        except OSError as error:
            # Who fetches from it finds out the same, and reports it.
            self._introduced.pop(sender, None)
            logger.info("%s cannot be asked: %s", sender, error)
        except Exception as error:  # noqa: BLE001  whatever it has raised, results can be fetched
            logger.warning("%s cannot say whether it can send from its GPU: %r", sender, error)

    async def _meet(self, receiver: str, sample: Any, content: bytes) -> None:
        """Send handles to a worker from now on if its sample can be opened here; else bytes."""
        why = None if sample and self._may_open(receiver) else "not wanted"
        if why is None:
            why = await asyncio.to_thread(_why_unreadable, Handle(*sample), content)
        if why is None:
            self._receivers.setdefault(receiver, Peer())
        else:
            self._receivers.pop(receiver, None)
            logger.info("GPU memory goes to %s through the host: %s", receiver, why)


def _made_sample() -> tuple[Any, bytes]:
    import cupy
    import numpy as np

    content = os.urandom(_SAMPLE)
    return cupy.asarray(np.frombuffer(content, np.uint8)), content


def _why_unreadable(sample: Handle, content: bytes) -> str | None:
    """Return why a sample of another process's memory cannot be read; None if it can."""
    try:
        found = interprocess.fetch(sample, len(content)).get().tobytes()
    except (RuntimeError, OSError, MemoryError, ImportError) as error:
        return str(error)
    return None if found == content else "another memory was opened"
