"""Loops that reduce elements side by side: block by block, to totals that are wider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpusched.emit import accumulators
from gpusched.emit.generate import combine, identity, literal
from gpusched.emit.hostloops.nest import Nest, is_heavy
from gpusched.emit.kernel import FIRSTS, MOMENTS, PLACE, Kernel, Output
from gpusched.emit.policy import FIRST_VALUES


class Reduction(Nest):
    """Reduces one row after the other."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.joined = [
            (k, replace(o, combine=FIRSTS.get(o.combine or "", o.combine)))
            for k, o in enumerate(kernel.outputs)
            if o.combine not in (MOMENTS, PLACE)
        ]
        """Outputs whose values are joined one by one in a block, with their numbers."""
        self.plain = [(k, o) for k, o in self.joined if k not in kernel.firsts]
        """Those whose blocks are joined in the same way."""
        self.skipping = _skipping(kernel, self.joined)

    def begin(self) -> None:
        """Write what comes before the loops."""
        for k in self.kernel.firsts:
            self.write(f"values{k} = scratch({self.outputs[k]})")
        if not is_heavy(self.kernel):
            self.look_ahead()

    def body(self) -> None:
        """Write the innermost loop."""
        self.hoist(self.still)
        self.start_totals()
        self.open_blocks()
        self.enter_block()
        self.join_block()
        self.depth -= 1
        self.write_totals()

    def start_totals(self) -> None:
        """Write the totals as they are before the first element."""
        if self.kernel.moments:
            self.start_moments()
        for k, output in self.joined:
            self.write(f"total{k} = {identity(output, output.dtype)}")
            if _compensated(output):
                self.write(f"lost{k} = {identity(output, output.dtype)}")
        for k in self.kernel.firsts:
            self.write(f"place{k} = n{self.innermost}")

    def start_moments(self) -> None:
        """Write the value that moments are taken about: the mean of the first ones."""
        names = ", ".join([*self.value_names(), *self.kernel.tested])
        of_moments = self.kernel.moments
        self.write(f"{names} = point({self.values('0')})")
        for k in of_moments:
            self.write(f"mean{k} = value{k}")
            self.write(f"apart{k} = {accumulators.ZERO}")
        self.write(f"first = min({FIRST_VALUES}, n{self.innermost})")
        with self.block("for i in range(first):"):
            self.write(f"{names} = point({self.values('i')})")
            for k in of_moments:
                self.write(f"apart{k} = apart{k} + deviation(value{k}, mean{k})")
        for k in of_moments:
            self.write(f"mean{k} = mean{k} + apart{k} / first")
            self.write(f"rest{k} = {accumulators.ZERO}")
            self.write(f"squares{k} = {accumulators.ZERO}")
        self.write("before = 0")

    def value_names(self) -> list[str]:
        """Return the names of what an element adds to each output."""
        return [f"value{k}" for k in range(len(self.outputs))]

    def join_block(self) -> None:
        """Join the elements of a block, and what comes of it to the totals."""
        for k in self.kernel.moments:
            self.write(*accumulators.start_block(k))
        outputs = self.joined
        for k, output in outputs:
            if k in self.skipping:
                self.write(f"part{k} = {_furthest(output)}")
                self.write(f"some{k} = False")
            else:
                self.write(f"part{k} = {identity(output, output.value_dtype)}")
        with self.block("for i in range(count):"):
            self.compute(self.value_names(), self.values("i"))
            for k in self.kernel.moments:
                self.write(*accumulators.take(k, f"value{k}"))
            for k in self.kernel.firsts:
                self.write(f"values{k}[i] = value{k}")
            for k, output in outputs:
                part, value = f"part{k}", f"value{k}"
                if k in self.skipping:
                    number = f"number_or({value}, {_furthest(output)})"
                    self.write(f"{part} = {self.skipping[k]}({part}, {number})")
                    self.write(f"some{k} = some{k} | ({value} == {value})")
                else:
                    self.write(f"{part} = {combine(output, part, value, output.value_dtype)}")
        for k, output in outputs:
            if k in self.skipping:
                nan = literal(np.nan, output.value_dtype)
                self.write(f"part{k} = part{k} if some{k} else {nan}")
        for k in self.kernel.firsts:
            self.find_first(k)
        for k, output in self.plain:
            total, lost = f"total{k}", f"lost{k}"
            if _compensated(output):
                self.write(f"{total}, {lost} = compensated_add({total}, {lost}, part{k})")
            else:
                self.write(f"{total} = {combine(output, total, f'part{k}')}")
        for k in self.kernel.moments:
            names = [f"mean{k}", f"rest{k}", f"squares{k}"]
            self.write(*accumulators.join_block(k, names, names, "before", "count"))
        if self.kernel.moments:
            self.write("before = before + count")

    def find_first(self, k: int) -> None:
        """Write the search of a block for its first value, if none before comes first.

        Blocks come in no order. Going through one is a reduction of integers, several at once.
        """
        output, part, total = self.kernel.outputs[k], f"part{k}", f"total{k}"
        found = accumulators.comes_first(output, part, "start", total, f"place{k}")
        with self.block(f"if {found}:"):
            self.write(f"{total} = {part}", f"place{k} = count")
            later = accumulators.sooner(output, total, f"values{k}[i]")
            with self.block("for i in range(count):"):
                self.write(f"place{k} = min(place{k}, count if {later} else i)")
            self.write(f"place{k} = start + place{k}")

    def write_first(self, k: int) -> None:
        """Join the first value of a row, and its place, to those at their places.

        Rows come in their order, so that one of no other value is not the first.
        """
        output, place = self.kernel.outputs[k], f"place{k}"
        found, at = (f"{self.current[name]}[0]" for name in self.outputs[k : k + 2])
        rows = self.joined_before()
        if rows != "0":
            place = f"({rows}) * n{self.innermost} + {place}"
        with self.block(f"if {accumulators.sooner(output, f'total{k}', found)}:"):
            self.write(f"{found} = total{k}", f"{at} = {place}")

    def write_moments(self, k: int) -> None:
        """Join moments of a row to those at their places."""
        places = [f"{self.current[name]}[0]" for name in self.outputs[k : k + 3]]
        found, rows = f"mean{k}, rest{k}, squares{k}", self.joined_before()
        if rows != "0":
            length = f"n{self.innermost}"
            joined = f"({rows}) * {length}"
            found = f"join_moments({', '.join(places)}, {joined}, {found}, {length})"
        self.write(f"{', '.join(places)} = {found}")

    def write_totals(self) -> None:
        """Join totals to what is at the outputs' places."""
        for k in self.kernel.moments:
            self.write_moments(k)
        for k in self.kernel.firsts:
            self.write_first(k)
        for k, output in self.plain:
            name = self.outputs[k]
            total, lost = f"total{k}", f"lost{k}"
            if _compensated(output):
                self.write(f"{total} = {total} + {lost} if {lost} != 0 else {total}")
            place = f"{self.current[name]}[0]"
            self.write(f"{place} = {combine(output, place, total)}")


def _skipping(kernel: Kernel, outputs: Sequence[tuple[int, Output]]) -> dict[int, str]:
    """Return, by output, what joins numbers instead of what joins NaN, too.

    LLVM computes several elements at once where `fmin` or `fmax` is alone in a loop, and one after
    the other beside any other reduction, such as of what tests find. NaN is made the furthest
    number there is instead, and another reduction says whether there is a number at all: beside a
    sum, 10 to 18 times as fast (AMD EPYC, `znver4`).
    """
    joins = {"fmin": "least", "fmax": "greatest"}
    alone = len(outputs) == len(kernel.outputs) and not kernel.tested
    if alone and all(o.combine in joins for _, o in outputs):
        return {}
    return {
        k: joins[o.combine]
        for k, o in outputs
        if o.combine in joins and np.dtype(o.value_dtype).kind == "f"
    }


def _furthest(output: Output) -> str:
    return literal(np.inf if output.combine == "fmin" else -np.inf, output.value_dtype)


def _compensated(output: Output) -> bool:
    return output.combine == "add" and output.dtype == "float64"
