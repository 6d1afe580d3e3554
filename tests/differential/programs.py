"""Writes array programs; each line is tried at once, on dask arrays that are not computed."""

from __future__ import annotations

import random
import re
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np

from tests.differential import templates
from tests.differential.case import (
    DTYPES,
    HEADER,
    LARGE,
    SPRINKLED,
    Case,
    data,
    literal,
    scheduler,
    settings,
)

HELPERS = """\
def bump(chunk):
    chunk += 1
    return chunk


def filled(chunk):
    chunk[...] = 3
    return chunk


def halved(chunk):
    half = chunk / 2
    half -= chunk
    np.multiply(half, 2, out=half)
    return half
"""

SHAPES = ((), (0,), (1,), (5,), (12,), (3, 0), (4, 6), (5, 3), (1, 7), (2, 3, 4), (8, 8), (6, 1),
          (3, 1, 2))  # fmt: skip

LAYOUTS = ("{}", "{}", "{}", "{}[::2]", "{}.T", "np.asfortranarray({})", "{}[::-1]",
           "readonly({})", "{}.astype({}.dtype.newbyteorder())",
           "np.repeat({}, 2, axis=-1)[..., ::2]",
           "np.broadcast_to({}, (3, *{}.shape)).copy()")  # fmt: skip
"""How the input of a program is in memory."""

READONLY = """\
def readonly(array):
    array.flags.writeable = False
    return array
"""

OPERATIONS = templates.one_per_line("operations")

LARGEST = 600, 20_000
"""Elements of arrays that later lines may use, in programs with small and with large inputs."""


def generate(seed: int) -> Case:
    """Return the case of a seed."""
    return _Program(seed).case()


class _Program:
    """Writes one program, with the numbers that its seed gives."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"programs {seed}")
        self.seed = seed
        self.loose = self.random.random() < 0.25
        self.large = self.random.random() < 0.15
        self.arrays: dict[str, Any] = {}
        self.exact: dict[str, bool] = {}
        """By name, whether the sums of an array are exact in any order."""
        self.huge: set[str] = set()
        """Arrays of integers so large that only their sums as integers are."""
        self.lines: list[str] = []
        self.features: set[str] = set()
        self.names: dict[str, Any] = {"np": np, "da": da, "dask": dask}

    def case(self) -> Case:
        draw = self.random
        exec(HELPERS, self.names)
        inputs = [self.input(name) for name in ("a", "b")[: draw.choice((1, 2, 2))]]
        for _ in range(draw.choice((2, 3, 4, 6, 8, 10))):
            self.line()
        outputs = [*list(self.arrays)[-draw.choice((1, 1, 2, 3)) :]]
        wanted = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
        lines = [*self.lines, f"observe('result', lambda: {wanted})"]
        body = "".join(f"    {line}\n" for line in lines)
        parts = [HEADER, SPRINKLED, READONLY, HELPERS]
        parts += [f"DATA = {{{', '.join(inputs)}}}", f"def main(observe):\n{body}"]
        return Case(
            "programs",
            self.seed,
            "\n\n\n".join(part.strip("\n") for part in parts) + "\n",
            scheduler(draw),
            self.loose,
            scribble=draw.random() < 0.15,
            beside=draw.random() < 0.15,
            config=settings(draw),
            features=frozenset(self.features),
        )

    def input(self, name: str) -> str:
        """Add an input array, and return the text of its data."""
        draw = self.random
        dtype = draw.choice(DTYPES)
        shape = draw.choice(LARGE if self.large else SHAPES)
        special = draw.random() < 0.3 and bool(shape) and dtype != "?"
        grid = dtype != "f2" and (not self.loose or draw.random() < 0.3)
        grid = grid and not (special and self.large)
        plain = data(draw, dtype, shape, special=special, grid=grid)
        layout = draw.choice(LAYOUTS if len(shape) in (1, 2) else LAYOUTS[:1])
        text = layout.replace("{}", f"({plain})")
        array = eval(text, _names)
        line = f"{name} = da.from_array(DATA[{name!r}], chunks={self.chunks(array.shape)})"
        self.try_line(line, name, grid, DATA={name: array})
        if special and dtype in ("i4", "i8", "u4", "u8"):
            self.huge.add(name)
        return f"{name!r}: {text}"

    def chunks(self, shape: tuple[int, ...]) -> str:
        draw = self.random
        if draw.random() < 0.2:
            return "-1"
        return str(tuple(self.lengths(n) for n in shape))

    def lengths(self, length: int) -> Any:
        """Return the chunks of one axis; some are empty."""
        draw = self.random
        if length > 1 and draw.random() < 0.2:
            first = draw.randint(1, length - 1)
            return draw.choice(((first, 0, length - first), (first, length - first), (0, length)))
        parts = (1, 2) if self.large else (1, 2, 3, length)
        return max(1, length // max(1, draw.choice(parts)))

    # Lines --------------------------------------------------------------------------------

    def line(self) -> None:
        """Add a line that dask accepts, after at most a few tries."""
        draw = self.random
        weights = {"exact sums": 6, "exact": 3, "sums": 2, "writes": 1}
        if self.loose:
            weights["loose"] = 5
        else:
            weights["steps"] = 4
        for _ in range(8):
            (table,) = draw.choices(list(weights), list(weights.values()))
            if self.add(draw.choice(OPERATIONS[table]), table):
                return

    def add(self, template: str, table: str) -> bool:
        """Try one template on arrays drawn for it; return whether dask accepts it."""
        usable = [n for n, x in self.arrays.items() if not self.too_large(x)]
        if "<g>" in template:
            usable = [n for n in usable if self.exact[n] or self.loose]
        if not usable:
            return False
        recent = usable[-3:]
        first = self.random.choice(recent if self.random.random() < 0.7 else usable)
        name = f"x{len(self.arrays)}"
        exact = table == "exact sums" and self.exact[first]
        text, others = self.fill(template, first, name, usable)
        exact = exact and all(self.exact[each] for each in others)
        line = text if "<t>" in template else f"{name} = {text}"
        huge = not self.huge.isdisjoint((first, *others))
        whole = huge and "<g>" in template and not self.loose
        if not self.try_line(line, name, exact, whole):
            return False
        if huge:
            self.huge.add(name)
        self.features.add(template.replace("<", "").replace(">", ""))
        return True

    def fill(
        self, template: str, first: str, name: str, usable: list[str]
    ) -> tuple[str, list[str]]:
        """Return a template filled in, and the further arrays in it."""
        draw = self.random
        array = self.arrays[first]
        others: list[str] = []

        def part(found: re.Match[str]) -> str:
            what = found.group(1)
            if what in ("a", "g"):
                return first
            if what == "t":
                return name
            if what == "s":
                same = [n for n in usable if getattr(self.arrays[n], "shape", None) == array.shape]
                others.append(draw.choice(same or [first]))
                return others[-1]
            if what == "m":
                return draw.choice(
                    (
                        f"{first} > 0",
                        f"{first} != 1",
                        f"({first} > 1) & ({first} < 3)",
                        f"{first} <= 2",
                    )
                )
            if what == "n":
                return literal(draw, "f8" if array.dtype.kind == "f" else "i8")
            if what == "d":
                return repr(draw.choice(DTYPES))
            if what == "axis":
                return str(draw.randrange(-1, max(array.ndim, 1)))
            if what == "index":
                return self.index(array)
            assert what == "chunks"
            return self.chunks(array.shape) if not _unknown(array) else "-1"

        return re.sub(r"<(\w+)>", part, template), others

    def index(self, array: Any) -> str:
        draw = self.random
        parts = [
            draw.choice((":", ":", "::2", "::-1", "1:", ":-1", "0", "-1", "None", "1:2"))
            for _ in range(array.ndim)
        ]
        return ", ".join(parts[: draw.randint(0, array.ndim)]) or "..."

    def too_large(self, array: Any) -> bool:
        """Return whether later lines may not use an array."""
        return _unknown(array) or array.size > LARGEST[self.large] or array.npartitions > 60

    def try_line(
        self, line: str, name: str, exact: bool, whole: bool = False, **extra: Any
    ) -> bool:
        """Run a line on dask arrays, and keep it if it makes one; of integers, if `whole`."""
        names = {**self.names, **self.arrays, **extra}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                exec(line, names)
        except Exception:
            return False
        made = names[name]
        if not isinstance(made, da.Array) or (whole and made.dtype.kind == "f"):
            return False
        self.arrays[name], self.exact[name] = names[name], exact
        self.lines.append(line)
        return True


def _unknown(array: Any) -> bool:
    """Return whether the lengths of an array's chunks are known only once it is computed."""
    return any(length != length for lengths in array.chunks for length in lengths)


_names: dict[str, Any] = {"np": np}
exec(SPRINKLED + READONLY, _names)
