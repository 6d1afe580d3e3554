"""A user's version of a kernel, to be checked, applied and removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpusched import forks
from gpusched.editing import checking
from gpusched.emit.editions import EditionError, functions
from gpusched.emit.kernel import EXACT, Edition, Kernel
from gpusched.emit.skeleton import counted
from gpusched.plan import overrides
from gpusched.plan.overrides import Override, TextOverride

SOURCE = "<your version>"
"""What messages call a source that is in no file."""


class Edited:
    """A user's version of a kernel.

    Parameters
    ----------
    kernel : Kernel
        The original.
    make : callable
        Returns the version as it is now.
    path : Path, optional
        The file that the version is in, if there is one.
    tolerance : float, optional
        Largest relative difference of floating-point results from the original's; None for as much
        as the original may differ from NumPy's, which is nothing for plain arithmetic.

    Notes
    -----
    Thread-safe. Applied, it holds for all that this process computes from then on; as a context
    manager, for what the thread (or asynchronous task) computes in the block, and for nothing
    afterwards. Where a graph is computed does not matter: its tasks take the version with them.
    """

    def __init__(self, kernel: Kernel, make: Callable[[], Override], path: Path | None = None,
                 tolerance: float | None = None) -> None:  # fmt: skip
        checking.check_tolerance(tolerance)
        if kernel.mathematics != EXACT:
            raise EditionError(
                f"kernel {kernel.name} computes in the fast mode: change it as gpusched.explain "
                "shows it in the exact mode; your version holds in both"
            )
        self.kernel = kernel
        self.path = path
        self.tolerance = tolerance
        self._make = make
        self._applied: Override | None = None
        self._lock = forks.lock()

    @property
    def name(self) -> str:
        """What statistics call the version."""
        return self._make().version(self.kernel).name

    @property
    def applied(self) -> bool:
        """Whether it holds in the whole process."""
        return self._applied is not None

    def check(self, tolerance: float | None = None) -> int:
        """Compare the version with the original on samples; return how many numbers were equal.

        Samples are ordinary numbers, and NaN, infinities, zeros, subnormals and extremes. It runs
        compiled for the CPU, and in plain Python.

        Parameters
        ----------
        tolerance : float, optional
            Instead of the one this was made with.

        Raises
        ------
        gpusched.editing.checking.MismatchError
            If results differ; the message has inputs, expected and found.
        gpusched.emit.editions.EditionError
            If the version does not compile; the message has the line in the edited file.
        """
        checking.check_tolerance(tolerance)
        version = self._make().version(self.kernel)
        allowed = self.tolerance if tolerance is None else tolerance
        return checking.check(self.kernel, version, allowed, str(self.path or SOURCE))

    def apply(self, check: bool = True) -> Edited:
        """Let the version, as it is now, run instead of the original from now on.

        Parameters
        ----------
        check : bool
            Whether it is compared with the original first.
        """
        if check:
            self.check()
        with self._lock:
            before, self._applied = self._applied, self._make()
            overrides.apply(self._applied)
            if before is not None:
                overrides.withdraw(before)
        return self

    def remove(self) -> None:
        """Let the original run again; nothing happens if the version was not applied."""
        with self._lock:
            if self._applied is not None:
                overrides.withdraw(self._applied)
                self._applied = None

    def __enter__(self) -> Edited:
        if self._applied is not None:
            # `with gpusched.override(...)`: checked already, and meant for this block only.
            override = self._applied
            self.remove()
        else:
            self.check()
            override = self._make()
        overrides.enter(override)
        return self

    def __exit__(self, *exception: Any) -> None:
        overrides.leave(self.kernel.digest)

    def __repr__(self) -> str:
        state = "applied" if self.applied else "not applied"
        where = f" in {self.path}" if self.path else ""
        return f"<version of kernel {self.kernel.name}{where}, {state}>"


def edited_file(kernel: Kernel, path: Path, target: str, tolerance: float | None = None) -> Edited:
    """Return the version of a kernel that a file holds, read whenever it is asked for."""

    def make() -> Override:
        return edited_override(kernel, path.read_text(), target, str(path))

    return Edited(kernel, make, path, tolerance)


def edited_override(kernel: Kernel, text: str, target: str, filename: str) -> Override:
    """Return the version of a kernel that a source text is.

    Raises
    ------
    EditionError
        If it is no Python, or has neither `point` nor `kernel`; or if it has loops for GPUs, and
        the kernel is another one there.
    """
    if not functions(text, filename).keys() & {"point", "kernel"}:
        raise EditionError(f"{filename}: defines neither point nor kernel, as the original does")
    if target == "cuda" and "kernel" in functions(text) and counted(kernel) is not kernel:
        raise EditionError(
            f"{filename}: on GPUs kernel {kernel.name} has one result more, how many values there "
            "are: explain the program where workers own GPUs, and change the kernel found there"
        )
    return TextOverride(kernel.digest, kernel.computation, Edition(text, target))
