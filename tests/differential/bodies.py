"""Writes the bodies of user functions: expressions and statements out of the templates."""

from __future__ import annotations

import random
import re

from tests.differential import templates
from tests.differential.case import DTYPES, INTEGERS, literal

EXPRESSIONS = templates.one_per_line("expressions")
STATEMENTS = templates.tagged("statements")
WEIGHTS = {"tame": 2, "aliases": 2, "writes": 3, "free": 4}
"""How often a hostile function takes a statement of each section."""
TRACKED = ("assign", "assign-2", "where", "branch-shape")
"""Statements of which it is known whether the sums of what they make are exact."""
RETURNED = ("<v>", "<v>.T", "np.asarray(<v>)", "x", "x[:]", "<v>.max()", "[<v>]", "<v>.tolist()",
            "np.asfortranarray(<v>)", "None", "1")  # fmt: skip
"""What hostile functions may return besides expressions; <v> is the newest variable."""


class Body:
    """Writes one function's body.

    Parameters
    ----------
    rng
        Decides everything.
    dtype
        The dtype of its chunks.
    loose
        Whether it may round in an order, or by functions, that NumPy's values do not fix.
    """

    def __init__(self, rng: random.Random, dtype: str, loose: bool) -> None:
        self.random = rng
        self.dtype = dtype
        self.loose = loose
        self.variables: dict[str, bool] = {}
        """By name, whether sums of it are exact in any order."""
        self.returned = False
        """The same, of what the function returns."""
        self.features: set[str] = set()
        """The tags of its statements."""

    def write(self, parameters: dict[str, bool], hostile: bool, extra: list[str]) -> str:
        """Return the lines of a body, `extra` among them.

        Parameters
        ----------
        parameters
            By name, whether sums of it are exact.
        hostile
            Whether it may hold what fusion must not see.
        extra
            Lines that use the function's other parameters.
        """
        self.variables = dict(parameters)
        if hostile and self.random.random() < 0.5:
            return self._interplay(extra)
        count = self.random.choice((1, 1, 2, 2, 3, 4, 6))
        lines = [self._statement(None if hostile else "tame") for _ in range(count)] + extra
        text, self.returned = self._expression(self.random.choice((0, 1, 1, 2)))
        newest = list(self.variables)[-1]
        if newest not in text and self.random.random() < 0.7:
            text, self.returned = f"{newest} + {text}", self.returned and self.variables[newest]
        if hostile and self.random.random() < 0.15:
            text = self.random.choice(RETURNED).replace("<v>", newest)
        return "\n".join([*lines, f"return {text}"])

    def _interplay(self, extra: list[str]) -> str:
        """Return a body that makes an array, names it again, writes into it, and uses both."""
        draw = self.random
        lines = [self._statement("tame")] if draw.random() < 0.7 else []
        lines += extra
        lines += [self._statement("aliases") for _ in range(draw.choice((0, 1, 1, 2)))]
        if draw.random() < 0.3:
            lines.append(self._statement("tame"))
        for _ in range(draw.choice((1, 1, 2))):
            lines.append(self._statement(draw.choice(("writes", "writes", "free"))))
        if draw.random() < 0.3:
            lines.append(self._statement("tame"))
        self.returned = False
        names = list(self.variables)
        used = draw.sample(names, min(len(names), draw.choice((1, 2, 2, 3, 4))))
        return "\n".join([*lines, f"return {' + '.join(used)}"])

    def _statement(self, section: str | None) -> str:
        """Return one statement, of any section if None, and note what it does to variables."""
        if section is None:
            (section,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        tag, template = self.random.choice(STATEMENTS[section])
        self.features.add(tag)
        name = f"t{len(self.variables)}"
        target = self.random.choice(list(self.variables))
        text, exact = self._fill(template, self.random.choice((1, 1, 2, 3)), v=name, t=target)
        if section in ("writes", "free"):
            # What shares memory with what is not tracked.
            self.variables = dict.fromkeys(self.variables, False)
            exact = False
        elif tag not in TRACKED and section != "aliases":
            exact = False
        if "<v>" in template:
            self.variables[name] = exact
        return text

    def _expression(self, depth: int) -> tuple[str, bool]:
        """Return an expression, and whether its sums are exact."""
        if depth <= 0 or self.random.random() < 0.25:
            return self._variable()
        weights = {"exact sums": 8, "rearranging": 1, "exact": 4, "reductions": 2}
        if any(self.variables.values()) or self.loose:
            weights["sums"] = 2
        if self.loose:
            weights["loose"] = 7
        else:
            weights |= {"steps": 3, "casts": 2}
        if self.dtype in INTEGERS:
            weights["integer"] = 3
        (section,) = self.random.choices(list(weights), list(weights.values()))
        text, exact = self._fill(self.random.choice(EXPRESSIONS[section]), depth - 1)
        return f"({text})", exact and section in ("exact sums", "rearranging")

    def _variable(self) -> tuple[str, bool]:
        name = self.random.choice(list(self.variables))
        return name, self.variables[name]

    def _fill(self, template: str, depth: int, **given: str) -> tuple[str, bool]:
        """Return a template filled in, and whether sums of all its operands are exact."""
        exact = True

        def part(found: re.Match[str]) -> str:
            nonlocal exact
            what = found.group(1)
            if what in given:
                return given[what]
            if what in ("X", "x"):
                text, one = self._expression(depth) if what == "X" else self._variable()
                exact = exact and one
                return text
            if what == "g":
                names = [n for n, exact_sums in self.variables.items() if exact_sums]
                return self.random.choice(names or list(self.variables))
            if what == "m":
                condition = self.random.choice(EXPRESSIONS["conditions"])
                return f"({self._fill(condition, depth - 1)[0]})"
            if what == "n":
                return literal(self.random, self.dtype)
            if what == "k":
                return self.random.choice(("2", "4", "1", "2"))
            assert what == "d"
            return repr(self.random.choice(DTYPES))

        return re.sub(r"<(\w+)>", part, template), exact
