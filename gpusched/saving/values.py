"""Values as JSON and back: numbers, containers, dtypes, arrays, and functions by name.

JSON's own values stand for themselves, and a list for a list. Everything else is an object with
one key, which says what it is: ``{"tuple": [1, 2]}``. What no such form exists for is left to
`gpusched.saving.code`, and then the file needs to be trusted.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.utils import SerializableLock, methodcaller
from toolz import curry  # type: ignore[import-untyped]
from toolz.functoolz import Compose  # type: ignore[import-untyped]

from gpusched.saving import bitgenerators, elements
from gpusched.saving.code import Carried, refuse
from gpusched.saving.permitted_functions import METHODS, find, name_of
from gpusched.serialization import dtypes
from gpusched.serialization.frames import CorruptFrameError

DEEPEST = 64
"""Levels of containers in a value; real ones have some five."""


_LARGEST_POOL = 64
"""Words of a random seed; NumPy takes 4 unless given otherwise."""
_MOST_SPAWNED = 2**32 - 1
"""Children of a random seed, which NumPy counts in 32 bits."""


class Encoder:
    """Turns values into what JSON can hold; collects the arrays and the code among them.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.code: list[Carried] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def value(self, value: Any, place: str) -> Any:
        """Return a value as JSON.

        Raises `UnsavableError` if no file can carry it; `place` says where it was.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        refuse(value, place)
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return self._all(value, place)
        write = _WRITERS.get(kind)
        if write is not None:
            return write(self, value, place)
        if isinstance(value, np.ndarray):
            return self._array(value, place)
        if isinstance(value, np.generic) and dtypes.is_plain(value.dtype):
            return {"number": [dtypes.describe(value.dtype), _text(value.tobytes())]}
        if isinstance(value, np.dtype) and dtypes.is_plain(value):
            return {"dtype": dtypes.describe(value)}
        name = name_of(value)
        return {"function": name} if name else {"code": self._carried(value, place)}

    def _all(self, values: Any, place: str) -> list[Any]:
        return [self.value(item, place) for item in values]

    def _array(self, array: np.ndarray, place: str) -> Any:
        if isinstance(array, np.memmap):
            array = np.asarray(array)
        if type(array) is np.ma.MaskedArray and dtypes.is_plain(array.dtype):
            parts = array.data, np.ma.getmaskarray(array), np.asarray(array.fill_value)
            return {"masked": self._all(map(np.asarray, parts), place)}
        if type(array) is not np.ndarray or not dtypes.is_plain(array.dtype):
            return {"code": self._carried(array, place)}
        return {"array": self._numbered("array", array, self.arrays, array)}

    def _carried(self, value: Any, place: str) -> int:
        return self._numbered("code", value, self.code, Carried(value, place))

    def _numbered(self, kind: str, value: Any, items: list[Any], item: Any) -> int:
        # The list keeps the value alive, so that its id stays its own.
        number = self._numbers.setdefault((kind, id(value)), len(items))
        if number == len(items):
            items.append(item)
        return number

    def _pairs(self, value: dict[Any, Any], place: str) -> list[Any]:
        return [[self.value(k, place), self.value(v, place)] for k, v in value.items()]

    def _partial(self, value: Any, place: str) -> list[Any]:
        return [
            self.value(value.func, place),
            self._all(value.args, place),
            self._pairs(value.keywords, place),
        ]

    def _method(self, value: Any, place: str) -> Any:
        if value.method in METHODS:
            return {"method": value.method}
        return {"code": self._carried(value, place)}

    def _seed(self, seed: Any, place: str) -> Any:
        known = ("entropy", "spawn_key", "pool_size", "n_children_spawned")
        return {"seed": [self.value(seed.state[name], place) for name in known]}

    def _generator(self, bits: Any, place: str) -> Any:
        name = name_of(type(bits))
        return {"bit generator": [name, self.value(bits.state, place)]}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_WRITERS: dict[type, Callable[[Encoder, Any, str], Any]] = {
    tuple: lambda e, v, place: {"tuple": e._all(v, place)},
    dict: lambda e, v, place: {"dict": e._pairs(v, place)},
    bytes: lambda e, v, place: {"bytes": _text(v)},
    complex: lambda e, v, place: {"complex": e._all((v.real, v.imag), place)},
    slice: lambda e, v, place: {"slice": e._all((v.start, v.stop, v.step), place)},
    type(Ellipsis): lambda e, v, place: {"ellipsis": None},
    partial: lambda e, v, place: {"partial": e._partial(v, place)},
    curry: lambda e, v, place: {"curry": e._partial(v, place)},
    Compose: lambda e, v, place: {"compose": e._all((*reversed(v.funcs), v.first), place)},
    methodcaller: Encoder._method,
    SerializableLock: lambda e, v, place: {"lock": str(v.token)},
    np.random.SeedSequence: Encoder._seed,
    **dict.fromkeys(bitgenerators.KINDS, Encoder._generator),
}


@dataclass(frozen=True)
class Input:
    """Stands for an input of a program, in the arguments of its calls."""

    number: int


@dataclass(frozen=True)
class Result:
    """Stands for the result of an earlier call of a program."""

    number: int


class Decoder:
    """Turns JSON back into values.

    Parameters
    ----------
    arrays
        Those of the file.
    code
        What was pickled, by its number; empty if there is none, or it is not trusted.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, arrays: list[np.ndarray], code: list[Any]) -> None:
        self.arrays = arrays
        self.code = code
        self.inputs = 0
        """How many inputs the program has whose values are read."""
        self.steps = 0
        """How many of its steps come before."""
        self._depth = 0

    def value(self, encoded: Any) -> Any:
        """Return the value.

        Raises `CorruptFrameError` if this is not what `Encoder` made.
        """
        if encoded is None or isinstance(encoded, bool | int | float | str):
            return encoded
        self._depth += 1
        if self._depth > DEEPEST:
            raise CorruptFrameError(f"a value of more than {DEEPEST} levels")
        try:
            return self._read(encoded)
        except (
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            OverflowError,
        ) as error:
            if isinstance(error, CorruptFrameError):
                raise
            raise CorruptFrameError(f"{encoded!r:.200} is not a value: {error!r}") from error
        finally:
            self._depth -= 1

    def called(self, encoded: Any) -> Any:
        """Return the function of a call, whose arguments `check_call` is then given."""
        match encoded:
            case {"function": name, **rest} if not rest:
                return find(name, called=True)
        return self.value(encoded)

    def _read(self, encoded: Any) -> Any:
        if isinstance(encoded, list):
            return self._all(encoded)
        ((kind, content),) = encoded.items()
        return _READERS[kind](self, content)

    def _all(self, encoded: Any) -> list[Any]:
        return [self.value(item) for item in encoded]

    def _pairs(self, encoded: Any) -> dict[Any, Any]:
        return {self.value(k): self.value(v) for k, v in encoded}

    def _partial(self, encoded: Any, kind: Any) -> Any:
        function, args, keywords = encoded
        function = self.value(function)
        if not callable(function):
            raise CorruptFrameError(f"{encoded!r:.200} calls no function")
        return kind(function, *self._all(args), **self._pairs(keywords))

    def _seed(self, encoded: Any) -> np.random.SeedSequence:
        entropy, spawn_key, pool_size, spawned = self._all(encoded)
        return np.random.SeedSequence(
            _naturals(entropy),
            spawn_key=_naturals(spawn_key),
            pool_size=index(pool_size, _LARGEST_POOL + 1),
            n_children_spawned=index(spawned, _MOST_SPAWNED + 1),
        )

    def _generator(self, encoded: Any) -> Any:
        name, state = encoded
        return bitgenerators.restore(find(name), self.value(state))

    def _masked(self, encoded: Any) -> np.ma.MaskedArray:
        data, mask, fill = parts = self._all(encoded)
        if not all(isinstance(part, np.ndarray) for part in parts):
            raise CorruptFrameError(f"{encoded!r:.200} is not a masked array")
        expected = [(data.shape, np.ma.make_mask_descr(data.dtype)), ((), data.dtype)]
        if [(part.shape, part.dtype) for part in (mask, fill)] != expected:
            raise CorruptFrameError(f"{encoded!r:.200} is not a masked array")
        return np.ma.MaskedArray(data, mask, fill_value=fill[()])

    def _number(self, encoded: Any) -> Any:
        described, text = encoded
        dtype = dtypes.parse(described)
        data = base64.b64decode(text, validate=True)
        if len(data) != dtype.itemsize:
            raise CorruptFrameError(f"{len(data)} bytes are not one number of {dtype}")
        found = np.frombuffer(data, dtype)
        elements.check(found)
        return found[0]


def index(number: Any, count: int) -> int:
    """Return a number that a file gives, if it is one of so many."""
    if type(number) is not int or not 0 <= number < count:
        raise CorruptFrameError(f"{number!r:.100} is none of the {count} that there are")
    return number


def _naturals(value: Any) -> Any:
    """Return a number from 0, or several; NumPy makes words of them."""
    several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
    for number in value if several else [value]:
        if type(number) is bool or not isinstance(number, int | np.integer) or number < 0:
            raise CorruptFrameError(f"{value!r:.200} is not a seed")
    return value


def _text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise CorruptFrameError(f"{value!r:.200} is not a string")
    return value


def _functions(values: list[Any]) -> list[Any]:
    if not values or not all(map(callable, values)):
        raise CorruptFrameError(f"{values!r:.200} are not functions")
    return values


def _method(name: Any) -> Any:
    if name not in METHODS:
        raise CorruptFrameError(f"{name!r:.200} is not a method a file may name")
    return methodcaller(name)


_READERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "float": lambda d, v: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[v],
    "complex": lambda d, v: complex(*d._all(v)),
    "tuple": lambda d, v: tuple(d._all(v)),
    "dict": lambda d, v: d._pairs(v),
    "bytes": lambda d, v: base64.b64decode(v, validate=True),
    "slice": lambda d, v: slice(*d._all(v)),
    "ellipsis": lambda d, v: Ellipsis,
    "dtype": lambda d, v: dtypes.parse(v),
    "number": Decoder._number,
    "array": lambda d, v: d.arrays[index(v, len(d.arrays))],
    "masked": Decoder._masked,
    "input": lambda d, v: Input(index(v, d.inputs)),
    "step": lambda d, v: Result(index(v, d.steps)),
    "function": lambda d, v: find(v),
    "method": lambda d, v: _method(v),
    "lock": lambda d, v: SerializableLock(_text_of(v)),
    "partial": lambda d, v: d._partial(v, partial),
    "curry": lambda d, v: d._partial(v, curry),
    "compose": lambda d, v: Compose(_functions(d._all(v))),
    "seed": Decoder._seed,
    "bit generator": Decoder._generator,
    "code": lambda d, v: d.code[index(v, len(d.code))],
}
