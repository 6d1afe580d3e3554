"""How many bytes tasks will take besides their inputs, learned from similar tasks."""

from __future__ import annotations

from gpusched.newest import Newest

_KINDS = 4096
"""Kinds that are remembered at most."""
_FORGOTTEN = 8
"""The part of what a kind is known to take that is forgotten with each task that takes less."""

_NEAR = (-1, 1, -2, 2, -3, 3)
"""Kinds of tasks with the same prefix that are like one of which nothing is known: their inputs are
at most eight times smaller or larger. The nearest are first."""

Kind = tuple[str, int]


class Estimates:
    """What tasks of each kind have taken.

    Tasks are of one kind if their keys have the same prefix, and their inputs together about the
    same size, within a factor of two.

    Notes
    -----
    Used on the worker's event loop only.

    Examples
    --------
    >>> from gpusched.workers.memory.estimates import Estimates
    >>> estimates = Estimates()
    >>> estimates.known("mine", 40) is None
    True
    >>> estimates.learn("mine", 40, 8)
    >>> estimates.known("mine", 45)
    8
    """

    def __init__(self) -> None:
        self._learned: Newest[Kind, int] = Newest(_KINDS)

    def known(self, prefix: str, inputs: int) -> int | None:
        """Return the bytes that a task takes besides its inputs; None for the first of a kind.

        Parameters
        ----------
        prefix
            Of its key.
        inputs
            Bytes of its inputs.
        """
        return self._learned.get((prefix, inputs.bit_length()))

    def guess(self, prefix: str, inputs: int) -> int:
        """Return the bytes that a task may take besides its inputs where nothing is known of it.

        They are what tasks of a similar kind have taken, in proportion to their inputs, or as many
        as its inputs have.

        Examples
        --------
        >>> from gpusched.workers.memory.estimates import Estimates
        >>> estimates = Estimates()
        >>> estimates.learn("mine", 40, 100)
        >>> estimates.guess("mine", 80), estimates.guess("other", 80)
        (200, 80)
        """
        size = inputs.bit_length()
        for near in _NEAR if inputs else ():
            taken = self._learned.get((prefix, size + near))
            # Tasks without inputs are like none that has some.
            if taken is not None and size + near > 0:
                return int(taken * 2.0**-near)
        return inputs

    def learn(self, prefix: str, inputs: int, taken: int) -> None:
        """Remember the bytes that a task has taken: its result, or more if that was seen."""
        kind = prefix, inputs.bit_length()
        known = self._learned.get(kind, -1)
        expected = max(taken, known - known // _FORGOTTEN)
        if expected != known:
            self._learned[kind] = expected
        else:
            self._learned.move_to_end(kind)  # For less than setting it again would take.
