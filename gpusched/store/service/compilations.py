"""What the compile service has to do, and in which order; decided without a network."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import field
from typing import Any

from gpusched.dataclass import dataclass

TRIES = 2
"""How often a kernel is begun whose worker dies of it."""


@dataclass
class Compilation:
    """A kernel to be compiled."""

    key: str
    """Of its machine code."""
    request: dict[str, Any]
    """The first message that asked for it."""
    waiting: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By client and number of the request, whether tasks wait for it."""
    left: bool = False
    """Whether somebody has asked for it who is gone: no task of theirs is delayed by it."""
    gain: float = 0.0
    """Seconds that all clients expect to be saved."""
    urgent: bool = False
    """Whether that is more than a compilation beside their tasks costs."""
    running: bool = False
    idly: bool = False
    """Whether only by who works where the machine has nothing else to do."""
    deaths: int = 0
    """How many workers have died of it."""

    @property
    def name(self) -> str:
        """The kernel's, for people."""
        return str(self.request.get("name", self.key))

    @property
    def awaited(self) -> int:
        """How many tasks or processes wait for it."""
        return sum(self.waiting.values())

    @property
    def rank(self) -> tuple[int, bool, float, int]:
        """What is compiled first: what most wait for, then what saves most."""
        return self.awaited, self.urgent, self.gain, len(self.waiting)


class Compilations:
    """The compilations of a service, each kernel once.

    Examples
    --------
    >>> from gpusched.store.service.compilations import Compilations
    >>> queue = Compilations()
    >>> queue.add((0, 1), {"key": "a", "gain": 1.0}), queue.add((1, 1), {"key": "b", "gain": 2.0})
    (True, True)
    >>> queue.take(idle=True).key
    'b'
    """

    def __init__(self) -> None:
        self._compilations: dict[str, Compilation] = {}

    def __len__(self) -> int:
        return len(self._compilations)

    def __iter__(self) -> Iterator[Compilation]:
        """Yield what is being compiled, and then the others in the order of their turns."""
        ordered = sorted(self._compilations.values(), key=lambda each: each.rank, reverse=True)
        return iter(sorted(ordered, key=lambda each: not each.running))

    def add(self, asking: tuple[int, int] | None, request: dict[str, Any]) -> bool:
        """Take a request; return whether it is for a kernel that nobody had asked for.

        Parameters
        ----------
        asking
            The client, and the number it gave the request; None if it is gone.
        request
            Its message.
        """
        key = str(request["key"])
        new = key not in self._compilations
        compilation = self._compilations.setdefault(key, Compilation(key, request))
        if asking is None:
            compilation.left = True
        else:
            compilation.waiting[asking] = bool(request.get("awaited", False))
        compilation.gain += float(request.get("gain", 0.0))
        compilation.urgent |= bool(request.get("urgent", False))
        return new

    def take(self, idle: bool) -> Compilation | None:
        """Return what is to be compiled next, or None.

        Parameters
        ----------
        idle
            Whether who takes it works only where the machine has nothing else to do. Such a one
            leaves to others what is urgent, unless tasks wait for it; others begin once more what
            has become urgent since.
        """
        fits = _fits_idle if idle else _fits
        ready = (compilation for compilation in self._compilations.values() if fits(compilation))
        found = max(ready, key=lambda compilation: compilation.rank, default=None)
        if found is not None:
            found.idly = idle
            found.running = True
        return found

    def urge(self, name: str, gain: float) -> None:
        """Let what is left of a kernel's compilation be urgent."""
        for compilation in self._compilations.values():
            if compilation.name == name:
                compilation.urgent = True
                compilation.gain += gain

    def is_wanted(self, compilation: Compilation) -> bool:
        """Return whether nobody has done a compilation yet."""
        return self._compilations.get(compilation.key) is compilation

    def finish(self, compilation: Compilation) -> list[tuple[int, int]]:
        """Forget a compilation that is done; return who has asked for it."""
        self._compilations.pop(compilation.key, None)
        return list(compilation.waiting)

    def give_back(self, compilation: Compilation, others: Collection[bool]) -> bool:
        """Let another worker compile what one died of; return whether somebody does or may.

        Parameters
        ----------
        compilation
            What it had begun.
        others
            Of each who has begun it, too, whether that one works only where nothing else does.
        """
        compilation.deaths += 1
        again = compilation.deaths < TRIES
        compilation.running = bool(others)
        compilation.idly = again and bool(others) and all(others)
        return again or bool(others)

    def leave(self, client: int) -> None:
        """Forget a client; what it has asked for is compiled all the same, for the next run."""
        for compilation in self._compilations.values():
            for asking in [each for each in compilation.waiting if each[0] == client]:
                del compilation.waiting[asking]
                compilation.left = compilation.left or not compilation.waiting


def _fits(compilation: Compilation) -> bool:
    # Whoever asks again, in the next run of a program, finds it begun rather than put off.
    wanted = compilation.urgent or compilation.awaited or compilation.left
    return bool(wanted) and (not compilation.running or compilation.idly)


def _fits_idle(compilation: Compilation) -> bool:
    return not compilation.running and (not compilation.urgent or compilation.awaited > 0)
