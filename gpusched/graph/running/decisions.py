"""What a segment may do with inputs of one kind, and what is new about some inputs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched.breaks import Reason
from gpusched.dataclass import dataclass
from gpusched.store.handles import Handle

if TYPE_CHECKING:
    from gpusched.plan.plan import Plan


@dataclass(frozen=True)
class Direct:
    """The decision to call the functions as they are."""

    operation: str
    reason: Reason


@dataclass
class Remaining:
    """How much of a graph is still to come, as far as this process knows.

    It goes with the messages that a program goes with, and each process counts for itself what it
    has run: several workers take what the others have run for something to come. What is decided
    by it is decided by a graph's first tasks.
    """

    tasks: int = 0
    """Tasks of one program; threads that count at once may miss one."""
    graph: str = ""
    """The graph that was made last; empty if none is known of."""
    extra: int | None = None
    """Bytes that each of the tasks takes at most besides its inputs, its result included, where
    its calls are made one by one; None if that is not known."""
    whole: bool = True
    """Whether the sizes of all their results are known; those that are not count nothing there."""

    def learn(self, told: Remaining) -> None:
        """Take what another process has sent; nothing happens if the graph is known already."""
        if told.graph and told.graph != self.graph:
            self.tasks, self.graph = told.tasks, told.graph
            self.extra, self.whole = told.extra, told.whole

    def told(self) -> tuple[Any, ...]:
        """Return what makes it again, as few bytes when pickled."""
        known = () if self.extra is None else (self.extra, False)[: 2 - self.whole]
        return (self.tasks, self.graph, *known) if self.graph else ()

    def __reduce__(self) -> Any:
        return Remaining, self.told()


UNKNOWN = Remaining()
"""What is known where nothing was sent."""


class ByToken:
    """What a task calls and a scheduler may send by name, as it does with programs.

    A scheduler knows it by this class, without the modules that a program takes.
    """


@dataclass(frozen=True)
class Waiting:
    """The decision to call the functions as they are until kernels are compiled: to record then."""

    kernels: tuple[Handle, ...]


@dataclass(frozen=True)
class Awaited:
    """The decision to record when inputs of this kind come again."""


AWAITED = Awaited()


@dataclass(frozen=True)
class Plans:
    """The plan for inputs of one kind, or several, where functions go a way that chunks decide.

    A run shows whether a plan holds (`gpusched.record.branches`).
    """

    plans: tuple[Plan, ...]
    """The one that held last comes first."""

    def first(self, plan: Plan) -> Plans:
        """Return them with one of them, or another one, as the first."""
        return Plans((plan, *(each for each in self.plans if each is not plan)))


class GpuFallbackWarning(UserWarning):
    """Kernels for chunks on a GPU cannot be made: CuPy's own calls compute them."""


_has_warned = threading.Event()


def warn_once(reason: str, library: str = "CuPy") -> None:
    """Warn of the first such failure of this process; statistics count each of them.

    Results are right without kernels, so that only a measurement would show that there are none.

    Parameters
    ----------
    reason
        What has failed.
    library
        Whose own calls compute instead.
    """
    if _has_warned.is_set():
        return
    _has_warned.set()
    warnings.warn(
        f"chunks on the GPU are computed by {library}'s own calls, unfused: {reason}. Other such "
        "failures of this process are counted in gpusched.statistics().breaks only; "
        "'gpusched doctor' tests each GPU",
        GpuFallbackWarning,
        stacklevel=2,
    )


FIRST = "first of its kind"
CHANGED = "what a function reads from outside has changed"
UNCOMPARABLE = "an object among the arguments, which may have changed"
OTHER_RESULT = "a function returned another kind of result than before"
COMPILED = "its kernels have been compiled since"
AGAIN = "it has come again"
NOT_KEPT = "the plan before was for one chunk only"

Inputs = tuple[Any, ...]
"""What a plan depends on, for each input of a segment, see
`gpusched.graph.running.inputs.describe`."""

_FACTS = ("dtype", "shape", "strides")


def newness(inputs: Inputs, known: Iterable[Inputs]) -> str:
    """Return which inputs differ from those that there is a plan for, where the fewest differ.

    Parameters
    ----------
    inputs
        Those that there is no plan for.
    known
        Those that there are plans for.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.graph.running.decisions import newness
    >>> whole = np.dtype(float), (10, 4), (32, 8)
    >>> newness((whole,), [])
    'first of its kind'
    >>> newness(((np.dtype(float), (7, 4), (32, 8)),), [(whole,)])
    'another shape of input 0'
    """
    found = [list(_differences(inputs, each)) for each in known if len(each) == len(inputs)]
    if not found:
        return FIRST
    fewest = min(found, key=len)
    return ", ".join(fewest)


def _differences(inputs: Inputs, known: Inputs) -> Iterator[str]:
    for number, (new, old) in enumerate(zip(inputs, known, strict=True)):
        if new == old:
            continue
        facts = zip(_FACTS, _array(new), _array(old), strict=False)
        what = next((fact for fact, one, other in facts if one != other), "value")
        yield f"{'other' if what == 'strides' else 'another'} {what} of input {number}"


def _array(described: Any) -> tuple[Any, ...]:
    """Return an array's dtype, shape and strides; nothing if it is none."""
    last = described[-3:]
    return last if isinstance(last[0], np.dtype) and len(last) == 3 else ()
