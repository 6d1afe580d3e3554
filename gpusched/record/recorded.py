"""Functions that record themselves, as NumPy's are recorded: what user kernels are made of."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from gpusched.breaks import GraphBreak
from gpusched.plan.expression import UnfusibleError, UnrecordableError
from gpusched.record.catalogue import own
from gpusched.record.chunk import DEFERRED, LazyChunk, computed
from gpusched.record.handlers import noted, recording
from gpusched.record.record import Recorder


class RecordedFunction:
    """A function that chunk tasks may give lazy chunks.

    Notes
    -----
    Instances are immutable and hashable; equal ones compute the same, in every process.
    """

    elementwise = False
    """Whether its value at a place depends on the arguments at that place only."""
    lasts = False
    """Whether it holds no arrays, and stays as it is: programs that call it are kept."""

    def record(self, recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Return lazy chunks of the results.

        Raises
        ------
        UnfusibleError
            If an argument cannot be recorded.
        """
        raise NotImplementedError


class OfLibrary(RecordedFunction):
    """A library's function of arrays, which knows no lazy chunks by itself."""

    function: Any
    """What is called with arrays; it changes none."""
    named: Set[str] = frozenset()
    """Arguments that may be given by their names, where a function of the user's calls it."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function, or record the call where an argument is a lazy chunk."""
        recorder = recorder_among((*args, *options.values()))
        if recorder is None:
            return self.function(*args, **options)
        with recording(recorder):
            try:
                found = self.record(recorder, *args, **options)
            except UnfusibleError as reason:
                if not recorder.device.can.host_memory:
                    recorder.stop(reason.reason)  # Such functions take no others' arrays.
                recorder.broke(self.function.__name__, reason.reason)
                found = computed(recorder, self.function, args, options)
            return noted(recorder, found, self, args, options)


class StandIn(RecordedFunction):
    """What programs call instead of a function of a library's."""

    lasts = True
    plain: Any
    """That function."""
    finish: Any = None
    """What is called with its result, and with its sealed arguments; None for nothing."""

    sealed: tuple[int, ...] = ()
    """Places of arguments that only `plain` and `finish` read, which are given as `Sealed`: no
    program depends on their values."""

    def __call__(self, array: Any, *args: Any, **taken: Any) -> Any:
        """Return what is recorded of a lazy chunk; of an array, what `plain` does."""
        if not isinstance(array, LazyChunk):
            return self.plain(array, *args, **taken)
        try:
            return self.record(array._recorder, array, *args, **taken)
        except UnfusibleError as error:
            array._recorder.stop(error.reason)

    def taken(self, args: tuple[Any, ...]) -> dict[str, tuple[Any, tuple[Any, ...]]]:
        """Return the calls whose results it is given beside these arguments, by parameter."""
        del args
        return {}

    def user(self, function: Any) -> Any:
        """Return what is called with its result instead of a function that is to have it."""
        return function


class Sealed:
    """A value of any dtype that nothing recorded reads, so that no plan depends on it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@own("quick", shown="")
def sealed(value: Any) -> Sealed:
    """Return a value as what is recorded may have it.

    Examples
    --------
    >>> from gpusched.record.recorded import sealed
    >>> sealed(3).value
    3
    """
    return Sealed(value)


class Freezable:
    """A function that records itself as others, which depend on what it reads from outside."""

    def parts(self) -> tuple[RecordedFunction, ...]:
        """Return those others as they are now."""
        raise NotImplementedError


@own("passes", "moves", shown="")
def one_of(results: tuple[Any, ...], k: int) -> Any:
    """Return one of several results of a recorded function, which a task has as a tuple.

    Examples
    --------
    >>> from gpusched.record.recorded import one_of
    >>> one_of((3, 4), 1)
    4
    """
    return results[k]


def recorder_among(args: tuple[Any, ...]) -> Recorder | None:
    """Return the recorder of the first lazy chunk among some arguments; None if there is none.

    Raises
    ------
    UnrecordableError
        If there are lanes among them, which know nothing of whoever asks.
    """
    if not DEFERRED.isdisjoint(map(type, args)):
        raise UnrecordableError(
            GraphBreak.OPERAND("calls a kernel, or a library's function, of lanes")
        )
    found = next((a for a in args if isinstance(a, LazyChunk)), None)
    if found is None:
        return None
    found._recorder.check_thread()
    return found._recorder
