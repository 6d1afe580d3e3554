"""Programs that are kept between the graphs that use them, with the plans they have by then.

A plan is recorded by the first chunk that runs a program. A graph that comes again, as that of the
next time step does, would record it again for as many chunks as there are threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched.graph import libraries
from gpusched.newest import Newest
from gpusched.plan.plan import Register
from gpusched.record.recorded import StandIn

if TYPE_CHECKING:
    from gpusched.graph.program import Program

RECENT = 256
"""Programs that are kept at most."""

_recent: Newest[Any, Program] = Newest(RECENT)


def keep(key: Any, program: Program) -> None:
    """Keep a program until that many others have been kept or used since."""
    _recent[key] = program


_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis), np.dtype, Register,
          StandIn)  # fmt: skip


def lasts(value: Any) -> bool:
    """Return whether a value is, or holds, functions of libraries and plain values only.

    Functions of the user's may hold arrays, as may arguments that are given with them; and they
    change, as a notebook's do.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from gpusched.graph.lasting import lasts
    >>> lasts(np.add), lasts(partial(np.sum, axis=0)), lasts(lambda x: x + 1)
    (True, True, False)
    """
    if isinstance(value, _PLAIN):
        return True
    if type(value) in (tuple, list):
        return all(map(lasts, value))
    if type(value) is dict:
        return all(map(lasts, value.values()))
    if type(value) is partial:
        return lasts([value.func, value.args, value.keywords])
    if isinstance(value, Compose):
        return lasts([value.first, *value.funcs])
    return libraries.found_by_name(value)
