"""Random bit generators as data: every number of a state is checked before NumPy sees it.

NumPy copies a state as it is given. A position outside of its buffer makes the next random number
read, and write, outside of the generator's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpusched.serialization.frames import CorruptFrameError


class _Words(NamedTuple):
    """An array of unsigned numbers."""

    dtype: str
    length: int


class _Number(NamedTuple):
    """A whole number from 0."""

    most: int


_Form = Mapping[str, Any]
"""What a state holds by name: words, numbers, and again what holds them."""

_HALF: _Form = {"has_uint32": _Number(1), "uinteger": _Number(2**32 - 1)}
"""The half of a number that waits for the next call."""
_PCG: _Form = {"state": {"state": _Number(2**128 - 1), "inc": _Number(2**128 - 1)}, **_HALF}
_FORMS: Mapping[type[np.random.BitGenerator], _Form] = {
    np.random.MT19937: {"state": {"key": _Words("u4", 624), "pos": _Number(624)}},
    np.random.PCG64: _PCG,
    np.random.PCG64DXSM: _PCG,
    np.random.Philox: {
        "state": {"counter": _Words("u8", 4), "key": _Words("u8", 2)},
        "buffer": _Words("u8", 4),
        "buffer_pos": _Number(4),
        **_HALF,
    },
    np.random.SFC64: {"state": {"state": _Words("u8", 4)}, **_HALF},
}
KINDS = tuple(_FORMS)
"""The bit generators that a file may hold."""


def restore(kind: Any, state: Any) -> np.random.BitGenerator:
    """Return a bit generator in a state.

    Raises `CorruptFrameError` if that is not a bit generator, or no state that one of its kind can
    be in.

    Parameters
    ----------
    kind
        One of `KINDS`, or anything else, from any source.
    state
        What the ``state`` of such a generator was, from any source.

    Examples
    --------
    >>> import numpy as np
    >>> from gpusched.saving.bitgenerators import restore
    >>> bits = np.random.MT19937(0)
    >>> restore(np.random.MT19937, bits.state).random_raw() == bits.random_raw()
    True
    >>> state = bits.state
    >>> state["state"]["pos"] = 10**9
    >>> restore(np.random.MT19937, state)
    Traceback (most recent call last):
    ...
    gpusched.serialization.frames.CorruptFrameError: MT19937.state.pos: 1000000000 is not 0 to 624
    """
    form = _FORMS.get(kind) if isinstance(kind, type) else None
    if form is None:
        raise CorruptFrameError(f"{kind!r:.200} is not a bit generator")
    name = kind.__name__
    if not isinstance(state, dict) or state.get("bit_generator") != name:
        raise CorruptFrameError(f"{state!r:.200} is not a state of {name}")
    told = {part: value for part, value in state.items() if part != "bit_generator"}
    bits: np.random.BitGenerator = kind(0)
    bits.state = {"bit_generator": name, **_checked(name, form, told)}
    return bits


def _checked(place: str, form: Any, value: Any) -> Any:
    if isinstance(form, _Number):
        if type(value) is not int or not 0 <= value <= form.most:
            raise CorruptFrameError(f"{place}: {value!r:.100} is not 0 to {form.most}")
        return value
    if isinstance(form, _Words):
        array = isinstance(value, np.ndarray)
        if not array or value.dtype != form.dtype or value.shape != (form.length,):
            raise CorruptFrameError(f"{place}: {value!r:.100} is not {form.length} of {form.dtype}")
        return np.array(value, form.dtype)
    if not isinstance(value, dict) or value.keys() != form.keys():
        raise CorruptFrameError(f"{place}: {value!r:.200} has not the parts {', '.join(form)}")
    return {part: _checked(f"{place}.{part}", form[part], value[part]) for part in form}
