"""Which kernel a user means."""

from __future__ import annotations

import difflib
from typing import Any

from gpusched.backends import cache
from gpusched.emit.kernel import Kernel
from gpusched.inspection.kernel_listings import ExplainedKernel, lately_explained

_TOLD = 8
"""Names that a message gives of those that there are, the most similar ones."""


class UnknownKernelError(LookupError):
    """No kernel of that name is known in this process; the message says how to get it."""


def kernel_of(subject: Any) -> Kernel:
    """Return the generated kernel that a user means.

    Raises `UnknownKernelError` if no kernel of that name was explained or has run in this process;
    `TypeError` if it is none of these.

    Parameters
    ----------
    subject
        One of `gpusched.explain`'s kernels, its definition, or its name.
    """
    if isinstance(subject, ExplainedKernel):
        subject = subject.kernel
    if isinstance(subject, Kernel):
        return subject.original or subject
    if isinstance(subject, str):
        return _named(subject)
    raise TypeError(
        f"a kernel is meant by explain(x).kernels[i] or by its name, not by {subject!r:.100} of "
        f"type {type(subject).__name__}"
    )


def _named(name: str) -> Kernel:
    known = {kernel.name: kernel for kernel in (*cache.kernels, *lately_explained())}
    if name not in known:
        alike = difflib.get_close_matches(name, known, _TOLD, cutoff=0)
        told = ", ".join(alike) or "none"
        raise UnknownKernelError(
            f"no kernel {name!r} was explained or has run in this process; known here: {told}. "
            "Workers' kernels are known after gpusched.explain(x)"
        )
    return known[name].original or known[name]
