"""Task results in tiers: device, host memory, disk. The least recently used go down first."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import zict
from dask.typing import Key
from dask.utils import format_bytes

from gpusched import events
from gpusched.workers.device.base import Device, Frozen
from gpusched.workers.memory.kept import KeepingBuffer
from gpusched.workers.memory.sizes import host_nbytes
from gpusched.workers.memory.spillfiles import (
    Form,
    LostValueError,
    SpillFiles,
    UnreadableValueError,
    form,
)
from gpusched.workers.memory.streamed_inputs import StoredArray, streamed

logger = logging.getLogger(__name__)

_OVERFULL = 0.1
"""Share of a limit by which results may exceed it while they wait to be moved down."""

_SMALL = 1 / 10_000
"""Share of all results of a tier below which one goes last."""

_NOTHING = object()
_TURNS = 100
"""Times that a value is looked for which others replace while it is read."""


class Store(MutableMapping[Key, object]):
    """The results that a worker holds.

    A value that is on the device goes from there to host memory, as bytes, and on to a file; any
    other goes from host memory to a file. What is read comes back up.

    Parameters
    ----------
    device
        Where device values are.
    files
        The lowest tier.
    host_limit
        Bytes of results kept in host memory.
    on_lost
        Called from any thread with the key of a value whose file is damaged or gone, and the
        reason in words. The key is no longer here by then.

    Notes
    -----
    Thread-safe. All copying between tiers is done by one thread, the mover, because two threads
    that bring the same value up would meet in zict's bookkeeping. Setting, deleting and reading
    what is in the upper tier never wait for it, but for a host value that takes the place of a
    device value which is just being moved. There is never a moment when a value is in no
    tier: it leaves one after it has arrived in the next.
    """

    def __init__(
        self,
        device: Device,
        files: SpillFiles,
        host_limit: float = math.inf,
        on_lost: Callable[[Key, str], None] = lambda key, reason: None,
    ) -> None:
        self.device = device
        self.files = files
        self.disk_error: OSError | None = None
        """Why the last attempt to write a file failed; None once one has succeeded."""
        self._on_lost = on_lost
        # zict's own limits are off: it would let a failing write end a read that has succeeded.
        self.host: KeepingBuffer[Key, Any] = KeepingBuffer({}, files, math.inf, _host_weight)
        self.on_device: zict.Buffer[Key, Any] = zict.Buffer(
            {},
            zict.Func(self._freeze, self._thaw, self.host),
            math.inf,
            lambda key, value: device.nbytes(value),
        )
        self.host_limit = host_limit
        self.device_limit = device.memory_limit or math.inf
        self._device_keys: set[Key] = set()
        self._unspillable: set[Key] = set()
        self.in_use: Callable[[], Iterable[Key]] = tuple
        """Returns, to any thread, what running tasks read: to move that down would free nothing."""
        self._lock = threading.Lock()
        self._waiting = False
        self._freezing: tuple[object, threading.Event] = _NOTHING, threading.Event()
        """The key whose value is on its way from the device to host memory, and its arrival."""
        self._going_down: object = _NOTHING
        """The key whose value is being moved down."""
        self._gone: set[Key] = set()
        """That key, if it was deleted meanwhile: zict drops its value where it arrives."""
        self._mover = ThreadPoolExecutor(1, thread_name_prefix="gpusched-mover")
        self.closed = False
        self._stopped = False

    def __setitem__(self, key: Key, value: object) -> None:
        """Take a value into the tier where it is; what is too much there is spilled later."""
        self._forget(key)
        if isinstance(value, Frozen):
            self._device_keys.add(key)
            self._put_on_host(key, value)
        elif self.device.nbytes(value):
            self._device_keys.add(key)
            self.on_device.set_noevict(key, value)
        else:
            self._put_on_host(key, value)
        with self._lock:
            self._gone.discard(key)
        self._tidy()

    def replace(self, key: Key, value: object, other: object) -> None:
        """Take another form of a value in its place, unless that has gone or changed meanwhile."""
        if self.host.fast.get(key) is value and key not in self._device_keys:
            self[key] = other

    def __getitem__(self, key: Key) -> Any:
        """Return a value, from wherever it is.

        Raises `KeyError` if there is none, or its file was damaged (`LostValueError`).
        """
        if key in streamed.get():
            found = self.array_of(key)
            if found is not None:
                return StoredArray(self, key, *found)
        try:
            return self._upper(key)[key]
        except KeyError:
            return self._mover.submit(self._bring_up, key).result()

    def read(self, key: Key) -> Any:
        """Return a value of host memory or of a file, and leave it where it is.

        Raises `KeyError` as for ``store[key]``.
        """
        return self._found(key, self._read)

    def array_of(self, key: Key) -> Form | None:
        """Return the shape and dtype of a host array; None for any other value, or for none."""
        if key in self._device_keys:
            return None
        value = self.host.fast.get(key)
        return form(value) if value is not None else self.files.array_of(key)

    def __delitem__(self, key: Key) -> None:
        """Remove a value from all tiers, also while it is being moved."""
        if not self._forget(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if key in self._device_keys:
            return key in self.on_device
        # In this order: a key is gone for as long as its value may be in a lower tier.
        return key not in self._gone and key in self.host

    def __iter__(self) -> Iterator[Key]:
        on_device, gone = set(self._device_keys), set(self._gone)
        yield from on_device
        yield from (key for key in self.host if key not in on_device and key not in gone)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def ready(self, key: Key) -> bool:
        """Return whether reading a value takes no copying."""
        return key in self._upper(key)

    def is_of_device(self, key: Key) -> bool:
        """Return whether a value is the device's, wherever it is."""
        return key in self._device_keys

    def bring_up(self, keys: Collection[Key]) -> Future[list[Key]]:
        """Start bringing values to their upper tier; the result lists those that are lost."""
        return self._mover.submit(self._bring_up_all, list(keys))

    def make_room(
        self, host_bytes: float = 0, device_bytes: float = 0, keep: Collection[Key] = ()
    ) -> Future[int]:
        """Start moving values down until the limits hold, and by so many bytes more.

        Returns a future of the bytes that were moved; values of `keep` are not. Unlike the moves
        that follow from setting a value, this one tries again after a file could not be written.
        """
        return self._mover.submit(self._make_room, host_bytes, device_bytes, keep, retry=True)

    def movable_from_host(self, keep: Collection[Key] = ()) -> int:
        """Return the bytes in host memory that may be moved down, but for some values."""
        return self._movable(self.host.fast, keep)

    def movable_from_device(self, keep: Collection[Key] = ()) -> int:
        """Return the bytes on the device that may be moved down, but for some values."""
        return self._movable(self.on_device.fast, keep)

    def is_overfull(self) -> bool:
        """Return whether results come in faster than they can be moved down."""
        return (
            self._host_excess() > _OVERFULL * self.host_limit
            or self._device_excess() > _OVERFULL * self.device_limit
        )

    def held_on_device(self) -> int:
        """Return the bytes that results take on the device."""
        return int(self.on_device.fast.total_weight)

    def held_on_host(self) -> int:
        """Return the bytes that results take in host memory, those frozen for the device too."""
        return int(self.host.fast.total_weight)

    @property
    def slow(self) -> SpillFiles:
        """The values in files; counted by distributed's page of metrics."""
        return self.files

    @property
    def spilled_total(self) -> tuple[int, int]:
        """The bytes in files only: as objects, and as written; asked by distributed."""
        kept_memory, kept_disk = self.files.sizes(list(self.host.kept))
        return self.files.memory_bytes - kept_memory, self.files.disk_bytes - kept_disk

    def metrics(self) -> dict[str, float]:
        """Return how much was spilled, and what became of it, as plain numbers."""
        frozen = [value for value in list(self.host.fast.values()) if isinstance(value, Frozen)]
        counters = self.files.counters
        return {
            "device_bytes": sum(value.nbytes for value in frozen),
            "disk_bytes": self.files.disk_bytes,
            "written_bytes": counters.written_bytes,
            "read_bytes": counters.read_bytes,
            "lost": counters.lost,
        }

    def stop_spilling(self) -> None:
        """Move nothing more down, since the folder of the files may go away; idempotent."""
        self._stopped = True

    def close(self) -> None:
        """Wait for what is being moved, and remove the files; idempotent."""
        self.closed = self._stopped = True
        self.on_device.close()
        self.host.close()
        self._mover.shutdown(wait=True, cancel_futures=True)
        self.files.close()

    def _upper(self, key: Key) -> zict.LRU[Key, Any]:
        return (self.on_device if key in self._device_keys else self.host).fast

    def _freeze(self, value: Any) -> Frozen:
        started = time.perf_counter()
        frozen = self.device.freeze(value)
        if events.active:
            events.record_since("spill", "to host memory", started, frozen.nbytes)
        return frozen

    def _thaw(self, value: Any) -> Any:
        if not isinstance(value, Frozen):
            raise KeyError("a host value has just taken the place of a device value")
        started = time.perf_counter()
        thawed = self.device.thaw(value)
        if events.active:
            events.record_since("unspill", "from host memory", started, value.nbytes)
        return thawed

    def _put_on_host(self, key: Key, value: object) -> None:
        moving, done = self._freezing
        if moving == key:
            # The key's last value is on its way there, for zict to put and then to drop: with it
            # would go whatever has taken its place.
            done.wait()
        self.host.set_noevict(key, value)

    def _forget(self, key: Key) -> bool:
        buffer = self.on_device if key in self._device_keys else self.host
        with self._lock:
            if key in self._gone:
                return False
            if key == self._going_down:
                self._gone.add(key)
        try:
            del buffer[key]
        except KeyError:
            return False
        finally:
            self._device_keys.discard(key)
            self._unspillable.discard(key)
        return True

    def _tidy(self) -> None:
        """Start moving values down where a limit is exceeded, unless that is about to happen."""
        with self._lock:
            if not self._waiting and self._is_crowded():
                self._waiting = True
                self._mover.submit(self._tidy_now)

    def _tidy_now(self) -> None:
        with self._lock:
            self._waiting = False
        self._make_room()

    def _is_crowded(self) -> bool:
        on_device = self.device_limit < math.inf and (
            self._device_excess() > 0 or self.device.held() > self.device_limit
        )
        return on_device or self._host_excess() > 0

    def _device_excess(self) -> float:
        # What the pool has lent beyond the results belongs to running tasks, and counts too.
        return max(self.on_device.fast.total_weight, self.device.used()) - self.device_limit

    def _host_excess(self) -> float:
        return self.host.fast.total_weight - self.host_limit

    def _read(self, key: Key) -> Any:
        try:
            return self.host.fast[key]
        except KeyError:
            return self.files[key]

    def _bring_up(self, key: Key) -> Any:
        return self._found(
            key, lambda key: (self.on_device if key in self._device_keys else self.host)[key]
        )

    def _found(self, key: Key, look: Callable[[Key], Any]) -> Any:
        """Return what a look for a value finds, which others may move or replace meanwhile."""
        for _ in range(_TURNS):
            if key not in self:
                break
            try:
                return look(key)
            except LostValueError as lost:
                self._device_keys.discard(key)
                self._on_lost(key, str(lost.args[0]))
                raise
            except KeyError:
                continue  # Another value has just taken its place, or it was deleted.
        raise KeyError(key)

    def _bring_up_all(self, keys: list[Key]) -> list[Key]:
        lost = []
        for key in keys:
            try:
                self._bring_up(key)
            except LostValueError:
                lost.append(key)
            except KeyError:
                # Deleted in the meantime by whoever owns it.
                continue
            except (MemoryError, UnreadableValueError) as error:
                # Raised again, in its place, when the value is read.
                logger.error("cannot bring %s back: %s", key, error or type(error).__name__)
        # The values just used are the last to go, so they stay if they fit at all.
        self._make_room()
        return lost

    def _make_room(
        self, host: float = 0, device: float = 0, keep: Collection[Key] = (), retry: bool = False
    ) -> int:
        if self.device.held() > self.device_limit or device:
            self.device.free_unused()
        moved = self._lower(self.on_device.fast, self._device_excess, device, keep)
        if moved:
            self.device.free_unused()
        if self.disk_error is not None and not retry:
            return moved
        return moved + self._lower(self.host.fast, self._host_excess, host, keep)

    def _lower(
        self,
        fast: zict.LRU[Key, Any],
        excess: Callable[[], float],
        more: float,
        keep: Collection[Key],
    ) -> int:
        """Move values out of one tier until it has no excess, and by `more` bytes more."""
        moved = 0
        while not self._stopped and (excess() > 0 or moved < more):
            key = self._next_to_go(fast, keep)
            if key is None:
                break
            try:
                moved += self._evict(fast, key)
                if fast is self.host.fast:
                    self.disk_error = None
            except KeyError:
                continue
            except OSError as error:
                # The value stays where it is, and so does the wish to move it.
                if self.host.forget_kept():
                    continue
                if not self._stopped:
                    self._say_full(error)
                break
            except (TypeError, MemoryError) as error:
                self._unspillable.add(key)
                logger.error("%s stays in memory: %s", key, error)
        return moved

    def _next_to_go(self, fast: zict.LRU[Key, Any], keep: Collection[Key]) -> Key | None:
        """Return the value that was not used for longest, of those that make room, if there is one.

        Small ones go when there are no others: a file for each would take long, and free nothing.
        """
        staying = self._staying(keep)
        with fast.lock:
            small = _SMALL * fast.total_weight
            large = (key for key in fast.order if fast.weights[key] >= small)
            for keys in (large, fast.order):
                found = next((key for key in keys if key not in staying), None)
                if found is not None:
                    return found
            return None

    def _staying(self, keep: Collection[Key]) -> set[Key]:
        return {*self.in_use(), *self._unspillable, *keep}

    def _movable(self, fast: zict.LRU[Key, Any], keep: Collection[Key]) -> int:
        staying = self._staying(keep)
        return int(fast.total_weight - sum(fast.weights.get(key, 0) for key in staying))

    def _evict(self, fast: zict.LRU[Key, Any], key: Key) -> int:
        """Move a value out of one tier, and return its bytes; 0 if it was deleted meanwhile."""
        done = threading.Event()
        with self._lock:
            self._going_down = key
        if fast is self.on_device.fast:
            self._freezing = key, done
        try:
            return int(fast.evict(key)[2])
        finally:
            self._freezing = _NOTHING, done
            done.set()
            with self._lock:
                self._going_down = _NOTHING
                self._gone.discard(key)

    def _say_full(self, error: OSError) -> None:
        if self.disk_error is None:
            logger.error(
                "cannot spill to %s (%s); %s of results stay in memory",
                self.files.directory,
                error,
                format_bytes(self.held_on_host()),
            )
        self.disk_error = error


def _host_weight(key: Key, value: Any) -> int:
    return value.nbytes if isinstance(value, Frozen) else host_nbytes(value)
