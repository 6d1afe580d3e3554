"""Writes programs that call a user function on chunks, and change what it reads."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from tests.differential import templates
from tests.differential.bodies import Body
from tests.differential.case import (
    DTYPES,
    HEADER,
    LARGE,
    LARGER,
    SHAPES,
    SPRINKLED,
    Case,
    chunks,
    data,
    scheduler,
    settings,
    size,
)
from tests.differential.running import Schedulers, TooLongError, run

CALLS = templates.one_per_line("calls")
DEFINITIONS = dict(templates.tagged("preamble")["definitions"])
CHANGES = dict(templates.tagged("preamble")["changes"])

STATE = ("COUNT", "SEEN", "G_LIST", "G_DICT", "G_ARRAY", "STATE", "KEPT")
"""Names of the preamble that a function may change."""

ORDERED = (
    "k.append(1)",
    "counted",
    "stepped",
    "drawn",
    "COUNT",
    "global-array-write",
    "write-shuffle",
)
"""Names and tags that make results depend on the order of chunks."""

DEFAULTS = {
    "[]": "k.append(1)\nx = x + len(k)",
    "np.abs": "x = k(x)",
    "double": "x = k(x)",
    "G": "x = x * k",
    "(1, 2)": "x = x + k[1]",
    "SEEN": "k.append(x.ndim)",
    "G_ARRAY": "x = x + k[0]",
    "None": "x = x if k is None else x + 1",
    "Scale(2)": "x = k(x)",
}
"""Defaults of a parameter ``k``, and what a function does with it."""

BLOCKS = (
    ("block_id", "x = x + sum(block_id)"),
    ("block_info", "x = x + block_info[None]['num-chunks'][0]"),
    ("block_info", "x = x + block_info[0]['array-location'][0][0]"),
)
"""Parameters that `dask.array.map_blocks` fills in."""

NUMBERS = ("x, k", "x, k=2", "x, *, k=3", "x, k=G", "x, /, k=1", "x, k=np.float32(2)")
"""Parameters of functions that take a number."""

TRIES = 5
"""Programs that are written for a seed until one computes without an exception."""


def generate(seed: int) -> Case:
    """Return the case of a seed: for seven eighths of them one that raises no exception, if any."""
    with Schedulers() as schedulers:
        for attempt in range(TRIES):
            case = _Program(seed, attempt).case()
            if seed % 8 == 0:
                break
            if not _raises(case, schedulers):
                break
    return case


def _raises(case: Case, schedulers: Schedulers) -> bool:
    """Return whether plain dask fails to compute something of a case, or takes too long."""
    try:
        found = run(replace(case, scheduler="sync"), False, schedulers)
    except TooLongError:
        return True
    return any(outcome.error for outcome in found.outcomes.values())


def _indented(text: str) -> str:
    return "\n".join("    " + line if line else line for line in text.splitlines())


class _Program:
    """Writes one program, with the numbers that its seed gives."""

    def __init__(self, seed: int, attempt: int) -> None:
        self.random = random.Random(f"functions {seed} {attempt}")
        self.seed = seed
        self.dtype = self.random.choice(DTYPES)
        self.loose = self.random.random() < 0.25
        self.body = Body(self.random, self.dtype, self.loose)
        self.shape = self.random.choice(LARGE if self.random.random() < 0.15 else SHAPES)
        self.features: set[str] = set()

    def case(self) -> Case:
        draw = self.random
        hostile = draw.random() < 0.65
        special = draw.random() < 0.3
        grid = self.dtype != "f2" and (not self.loose or draw.random() < 0.3)
        grid = grid and not (special and size(self.shape) > LARGER)
        signature, body, call = self.function(hostile, grid)
        texts = "\n".join([signature, body, call])
        self.features |= self.body.features
        unordered = any(name in texts or name in self.features for name in ORDERED)
        names = _needed(texts)
        arrays = [data(draw, self.dtype, self.shape, special=special, grid=grid, constant=unordered)
                  for _ in range(2)]  # fmt: skip
        # Chunks of equal lengths, where the order of equal chunks is what must not matter.
        first = 1 if self.shape[0] < LARGER // 10 else self.shape[0]
        layout = str((first, *self.shape[1:])) if unordered else chunks(draw, self.shape)
        main = self.main(call, layout, names, texts)
        parts = [HEADER.rstrip(), SPRINKLED.rstrip()]
        parts += [DEFINITIONS[name] for name in DEFINITIONS if name in names]
        parts.append(f"def f({signature}):\n{_indented(body)}")
        parts.append(f"DATA = {{'a': {arrays[0]}, 'b': {arrays[1]}}}")
        parts.append(f"def main(observe):\n{_indented(main)}")
        alone = unordered or not self.features.isdisjoint(("shared-chunk", "state"))
        return Case(
            "functions",
            self.seed,
            "\n\n\n".join(parts) + "\n",
            "sync" if alone else scheduler(draw),
            self.loose,
            unordered,
            scribble=hostile and draw.random() < 0.2,
            beside=not hostile and draw.random() < 0.15,
            config=settings(draw),
            features=frozenset(self.features),
        )

    def function(self, hostile: bool, grid: bool) -> tuple[str, str, str]:
        """Return a function's parameters and body, and what calls it."""
        draw = self.random
        forms = ["one", "one", "one", "two", "number", "default", "block"]
        hostile_forms = ["callable", "callable", "star", "direct"]
        form = draw.choice(forms + hostile_forms if hostile else forms)
        self.features.add(f"signature-{form}")
        parameters = {"x": grid}
        write = self.body.write
        if form == "one":
            return "x", write(parameters, hostile, []), self.call("f", "a")
        if form == "two":
            return "x, y", write(parameters | {"y": grid}, hostile, []), self.call("f", "a", "b")
        if form == "number":
            return self.with_number(hostile, parameters)
        if form == "callable":
            given = draw.choice(CALLS["callables"])
            return "x, g", write(parameters, hostile, ["x = g(x)"]), self.given("g", given)
        if form == "direct":
            return (
                "x",
                write(parameters, hostile, []),
                self.call(draw.choice(CALLS["callables"]), "a"),
            )
        if form == "default":
            default = draw.choice(list(DEFAULTS))
            body = write(parameters, hostile, [DEFAULTS[default]])
            return f"x, k={default}", body, self.call("f", "a")
        if form == "star":
            body = write(parameters, hostile, ["x = x + len(args) + len(kwargs)"])
            return "x, *args, **kwargs", body, self.call("f", "a", keywords=", extra=1")
        keyword, use = draw.choice(BLOCKS)
        body = write(parameters, hostile, [use])
        call = f"da.map_blocks(f, {self.operand('a')}, dtype={self.dtype!r})"
        return f"x, {keyword}=None", body, call

    def with_number(self, hostile: bool, parameters: dict[str, bool]) -> tuple[str, str, str]:
        draw = self.random
        signature = draw.choice(NUMBERS)
        use = draw.choice(("x = x * k", "x = x + k"))
        body = self.body.write(parameters, hostile, [use])
        if "=" in signature and draw.random() < 0.3:
            return signature, body, self.call("f", "a")
        value = draw.choice(("2", "0.5", "np.float32(3)", "True", "np.int8(2)", "-1", "-0.0"))
        return signature, body, self.given("k", value)

    def given(self, keyword: str, value: str) -> str:
        """Return what calls the function with a keyword argument, here or in a partial."""
        if self.random.random() < 0.3:
            return self.call(f"functools.partial(f, {keyword}={value})", "a")
        return self.call("f", "a", keywords=f", {keyword}={value}")

    def operand(self, name: str) -> str:
        """Return an array that the function is called with."""
        return self.random.choice(CALLS["operands"]).replace("<a>", name)

    def call(self, function: str, *names: str, keywords: str = "") -> str:
        """Return the array that a program computes."""
        draw = self.random
        shared = draw.random() < 0.04
        operands = list(names) if shared else [self.operand(name) for name in names]
        dtype = repr(draw.choice((self.dtype, "f8", "f8")))
        meta = f"np.empty((0,) * {len(self.shape)}, {dtype})"
        index = repr("ijk"[: len(self.shape)])
        parts = {
            "f": function,
            "first": operands[0],
            "rest": "".join(f", {each}" for each in operands[1:]),
            "args": ", ".join(operands),
            "pairs": ", ".join(f"{each}, {index}" for each in operands),
            "same": ", ".join("s" for _ in operands),
            "core": ",".join("()" for _ in operands),
            "k": keywords,
            "d": dtype,
            "typed": draw.choice((f", dtype={dtype}", f", dtype={dtype}", f", meta={meta}", "")),
            "index": index,
        }
        found = re.sub(r"<(\w+)>", lambda part: parts[part.group(1)], draw.choice(CALLS["calls"]))
        if shared:
            # Both read one chunk: what the function writes into it must not depend on fusion.
            self.features.add("shared-chunk")
            return f"(a * 2 + 1) + {found}"
        results = CALLS["results"]
        if self.body.returned and self.dtype != "f2" and draw.random() < 0.3:
            results = CALLS["exact results"]
        zeros = str((0,) * len(self.shape))
        given = draw.choice(CALLS["callables"])
        result = draw.choice(results).replace("<r>", found).replace("<callable>", given)
        return result.replace("<zeros>", zeros)

    def main(self, call: str, layout: str, names: set[str], texts: str) -> str:
        """Return the body of ``main``."""
        lines = [f"{name} = da.from_array(DATA[{name!r}], chunks={layout})" for name in "ab"]
        lines += [f"r = {call}", *self.observed()]
        changeable = [name for name in CHANGES if name in names]
        replaced = [name for name in CALLS["replaced"] if name in texts]
        if changeable and self.random.random() < 0.7:
            name = self.random.choice(changeable)
            self.features |= {"changed", f"changed-{name}"}
            change = CHANGES[name].splitlines()
            lines = [line for line in change if line.startswith("global")] + lines
            lines += [line for line in change if not line.startswith("global")]
            lines += ["observe('changed', lambda: r)", f"observe('rebuilt', lambda: {call})"]
        elif replaced and self.random.random() < 0.4:
            self.features.add("replaced")
            lines += _replacing(self.random.choice(replaced))
        if self.random.random() < 0.2:
            # The same program for other values, and for another layout.
            lines += ["a = b", f"observe('other', lambda: {call})"]
            lines += ["a = b[::-1].rechunk(-1)", f"observe('layout', lambda: {call})"]
        for name in STATE:
            if name in names:
                lines.append(f"observe.state({name!r}, lambda: {name})")
        if "made" in names:
            lines.append("observe.state('cell', lambda: made.__closure__[0].cell_contents)")
        if "k=[]" in texts:
            lines.append("observe.state('default', lambda: f.__defaults__)")
        return "\n".join(lines)

    def observed(self) -> list[str]:
        """Return the lines that compute the program for the first time."""
        if self.random.random() > 0.08:
            return ["observe('first', lambda: r)"]
        self.features.add("state")
        state = self.random.choice(CALLS["states"])
        return [f"with {state}:", "    observe('state', lambda: r)", "observe('first', lambda: r)"]


def _replacing(name: str) -> list[str]:
    """Return the lines that compute with a library function replaced."""
    return [
        f"kept = {name}",
        f"{name} = lambda *args, **kwargs: kept(*args, **kwargs) * 1 + 7",
        "try:",
        "    observe('replaced', lambda: r)",
        "finally:",
        f"    {name} = kept",
        "observe('put back', lambda: r)",
    ]


def _needed(texts: str) -> set[str]:
    """Return which names of the preamble a text needs, and which these need."""
    found: set[str] = set()
    waiting = [texts]
    while waiting:
        text = waiting.pop()
        for name in DEFINITIONS.keys() - found:
            if re.search(rf"\b{name}\b", text):
                found.add(name)
                waiting.append(DEFINITIONS[name])
    return found
