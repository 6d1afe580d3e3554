"""Kernel -> the loops around `point` on the CPU, and with them the whole of its source.

The same text runs in plain Python (the reference, and what pdb steps through) and through numba
on the CPU.  Two small functions hide pointer arithmetic: ``shift(a, k)`` is `a` starting `k`
elements further, ``element(a, k)`` its element `k`, where `k` may be negative.

Memory gives more when it is asked early, and in several places.  Where inputs lie in sequence,
blocks of them are taken from `PLACES` places in turn, and a later block is asked for while one is
computed; where rows are joined, `ROWS` are read at once.  Processors that are faster in sequence
(`backends.processors`) take ``spread`` and ``ahead`` for just that.
"""

from __future__ import annotations

import numpy as np

from gpusched.fusion import editions
from gpusched.fusion.generate import (
    arguments,
    combine,
    header,
    helper_source,
    identity,
    input_names,
    literal,
    output_names,
    parameter_names,
    point_source,
)
from gpusched.fusion.kernel import EXACT, Access, Kernel, Output
from gpusched.fusion.operations import named

BLOCK = 128
"""Elements that a kernel computes in one go if it waits for memory."""

PART = 512
"""Elements that a heavy kernel computes in one go, so that its loop is long enough. No streamed
kernel computes more: that is the room there is for its results."""

AHEAD = 1024
"""Bytes that inputs are asked for ahead of a block, in long rows."""

LONG = 32768
"""Bytes of a row from which on the next one, asked for now, would leave the cache unused."""

PLACES = 4
"""Places of an input that blocks are taken from in turn."""

ROWS = 4
"""Rows that are joined at once."""

_FEW = 8
"""The most statements that a `point` may have to be called once for each of these rows."""

CALLED = frozenset(["shift", "element", "scratch", "stream", "drain", "spread", "ahead",
                    "past_line", "prefetch", "compensated_add", "clear_floating_point_errors",
                    "floating_point_errors", "flush_subnormals", "restore_subnormals"])  # fmt: skip
"""What loops call, besides `point` and what joins values."""


def is_heavy(kernel: Kernel) -> bool:
    """Return whether an element takes hundreds of instructions, as that of an `exp` does."""
    return any(named(statement.operation).heavy for statement in kernel.statements)


def block(kernel: Kernel) -> int:
    """Return the elements that are computed in one go.

    A reduction joins them before their result joins a wider, compensated total; a streamed kernel
    computes them in the cache before they go to memory at once.
    """
    chosen = kernel.options.block if kernel.reduces_innermost else None
    return chosen or (PART if is_heavy(kernel) else BLOCK)


class _Loops:
    """Writes the loop nest of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.inputs = input_names(kernel)
        self.outputs = output_names(kernel)
        self.operands = kernel.operands
        self.innermost = len(kernel.loops) - 1
        self.lines = [f"def kernel({', '.join(arguments(kernel))}):"]
        self.depth = 1
        self.current = {name: name for name in self.inputs + self.outputs}
        self.ahead: dict[str, str] = {}
        """By input, how far ahead of a block it is asked for, in source."""

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def open(self, line: str) -> None:
        self.write(line)
        self.depth += 1

    def source(self) -> str:
        kernel = self.kernel
        if kernel.checked:
            self.write("clear_floating_point_errors()")
        if kernel.streamed:
            for name in self.outputs:
                self.write(f"{name}_part = scratch({name})")
        if (kernel.streamed or kernel.reduces_innermost) and not is_heavy(kernel):
            self.look_ahead()
        for level in range(self.innermost):
            if level == self.innermost - 1 and self.joins_rows():
                self.rows(level)
            else:
                self.open(f"for i{level} in range(n{level}):")
            self.enter(level, f"i{level}")
        if kernel.reduces_innermost:
            self.reduce()
        elif kernel.streamed:
            self.stream()
        else:
            self.map()
        self.depth = 1
        if kernel.streamed:
            self.write("drain()")
        if kernel.checked:
            self.write("return floating_point_errors()")
        return "\n".join(self.lines)

    def enter(self, level: int, index: str) -> None:
        """Move what a loop moves to where it is now."""
        for name, operand in zip(self.inputs + self.outputs, self.operands, strict=True):
            if operand.access[level] is Access.STRIDED:
                self.advance(name, f"{index} * {name}_s{level}", f"_{level}")

    def advance(self, name: str, distance: str, suffix: str) -> None:
        self.write(f"{name}{suffix} = shift({self.current[name]}, {distance})")
        self.current[name] = name + suffix

    def joins_rows(self) -> bool:
        """Return whether the loops add rows to each other, in a computation that waits for them."""
        light = len(self.kernel.statements) <= _FEW and not is_heavy(self.kernel)
        return light and self.kernel.loops[-2:] == ("reduce", "map")

    def rows(self, level: int) -> None:
        """Join some rows at once, and open the loop for those that are left.

        Each is read from another place, and what they are joined to is read and written once.
        """
        before, depth = dict(self.current), self.depth
        self.open(f"for i{level} in range(0, n{level} - {ROWS - 1}, {ROWS}):")
        self.enter(level, f"i{level}")
        row0 = dict(self.current)
        moving = [
            name
            for name, operand in zip(self.inputs, self.kernel.inputs, strict=True)
            if operand.access[level] is Access.STRIDED
        ]
        for row in range(1, ROWS):
            for name in moving:
                self.write(f"{row0[name]}_row{row} = shift({row0[name]}, {row} * {name}_s{level})")
        each_row = [
            row0 | ({name: f"{row0[name]}_row{row}" for name in moving} if row else {})
            for row in range(ROWS)
        ]
        for row, self.current in enumerate(each_row):
            self.hoist(f"{row or ''}")
        self.open(f"for i in range(n{self.innermost}):")
        for row, self.current in enumerate(each_row):
            self.join("i", f"{row or ''}")
        self.current, self.depth = before, depth
        self.open(f"for i{level} in range(n{level} - n{level} % {ROWS}, n{level}):")

    def values(self, index: str, row: str = "") -> str:
        """Return the arguments of `point` at `index`."""
        found, level = [], self.innermost
        for name, operand in zip(self.inputs, self.kernel.inputs, strict=True):
            array, access = self.current[name], operand.access[level]
            if access is Access.BROADCAST:
                found.append(f"{name}_value{row}")
            elif access is Access.UNIT:
                found.append(f"{array}[{index}]")
            else:
                found.append(f"element({array}, {index} * {name}_s{level})")
        return ", ".join(found + parameter_names(self.kernel))

    def hoist(self, row: str = "") -> None:
        """Read what does not move in the innermost loop."""
        for name, operand in zip(self.inputs, self.kernel.inputs, strict=True):
            if operand.access[self.innermost] is Access.BROADCAST:
                self.write(f"{name}_value{row} = {self.current[name]}[0]")

    def place(self, name: str, output: Output, index: str) -> str:
        array, access = self.current[name], output.access[self.innermost]
        if access is Access.BROADCAST:
            return f"{array}[0]"
        unit = access is Access.UNIT
        return f"{array}[{index}]" if unit else f"{array}[{index} * {name}_s{self.innermost}]"

    def places(self, index: str) -> list[str]:
        outputs = zip(self.outputs, self.kernel.outputs, strict=True)
        return [self.place(name, output, index) for name, output in outputs]

    def map(self) -> None:
        self.hoist()
        self.open(f"for i in range(n{self.innermost}):")
        if self.kernel.reduces:
            self.join("i")
        else:
            self.write(f"{', '.join(self.places('i'))} = point({self.values('i')})")

    def join(self, index: str, row: str = "") -> None:
        """Join what `point` returns to what is at the outputs' places."""
        places = self.places(index)
        names = [f"value{k}" for k in range(len(places))]
        self.write(f"{', '.join(names)} = point({self.values(index, row)})")
        for place, name, output in zip(places, names, self.kernel.outputs, strict=True):
            self.write(f"{place} = {combine(output, place, name)}")

    def stream(self) -> None:
        """Compute parts where they stay in the cache, and write each past it to memory.

        A line of memory that is written whole that way is not read first, as it is otherwise.
        """
        self.hoist()
        self.open_blocks()
        self.open("for i in range(count):")
        places = ", ".join(f"{name}_part[i]" for name in self.outputs)
        self.write(f"{places} = point({self.values('i')})")
        self.depth -= 1
        for name in self.outputs:
            self.write(f"stream(shift({self.current[name]}, start), {name}_part, count)")

    def open_blocks(self) -> None:
        """Open a loop over blocks of the innermost loop, each input at its start in them."""
        level, size = self.innermost, block(self.kernel)
        number = "number" if is_heavy(self.kernel) else f"spread(number, blocks, {PLACES})"
        if self.kernel.streamed and level:
            # Blocks end where lines of memory do, wherever a row begins.
            self.write(f"lead = past_line({self.current[self.outputs[0]]})")
            self.write(f"blocks = (lead + n{level} + {size - 1}) // {size}")
            self.open("for number in range(blocks):")
            self.write(f"first = {number} * {size} - lead")
            self.write("start = max(first, 0)")
            self.write(f"count = min(first + {size}, n{level}) - start")
        else:
            self.write(f"blocks = (n{level} + {size - 1}) // {size}")
            self.open("for number in range(blocks):")
            self.write(f"start = {number} * {size}")
            self.write(f"count = min({size}, n{level} - start)")
        for name, operand in zip(self.inputs, self.kernel.inputs, strict=True):
            if operand.access[level] is Access.UNIT:
                self.advance(name, "start", "_block")
            elif operand.access[level] is Access.STRIDED:
                self.advance(name, f"start * {name}_s{level}", "_block")
        for name, ahead in self.ahead.items():
            self.write(f"prefetch({self.current[name]}, {ahead}, count)")

    def look_ahead(self) -> None:
        """Write how far ahead each input is asked for: a row, or a little further in a long row.

        Inputs that are the same for all rows are not, since they stay in the cache; nor are those
        whose elements do not lie side by side.
        """
        level = self.innermost
        inputs = zip(self.inputs, self.kernel.inputs, strict=True)
        units = [(name, each) for name, each in inputs if each.access[level] is Access.UNIT]
        widest = max((np.dtype(each.dtype).itemsize for _, each in units), default=1)
        further, long = AHEAD // widest, LONG // widest
        for name, each in units:
            if not level:
                self.ahead[name] = f"ahead({further})"
            elif each.access[level - 1] is Access.STRIDED:
                self.ahead[name] = f"{name}_ahead"
                row = f"{name}_s{level - 1} if n{level} <= {long} else"
                # A streamed kernel stops to write, and no processor reads ahead meanwhile.
                streamed = self.kernel.streamed
                found = f"{row} ahead({further})" if streamed else f"ahead({row} {further})"
                self.write(f"{name}_ahead = {found}")

    def reduce(self) -> None:
        self.hoist()
        outputs = list(zip(self.outputs, self.kernel.outputs, strict=True))
        for k, (_, output) in enumerate(outputs):
            self.write(f"total{k} = {identity(output, output.dtype)}")
            if _compensated(output):
                self.write(f"lost{k} = {identity(output, output.dtype)}")
        self.open_blocks()
        skipping = _skipping(self.kernel)
        for k, (_, output) in enumerate(outputs):
            if k in skipping:
                self.write(f"part{k} = {_furthest(output)}")
                self.write(f"some{k} = False")
            else:
                self.write(f"part{k} = {identity(output, output.value_dtype)}")
        self.open("for i in range(count):")
        names = ", ".join(f"value{k}" for k in range(len(outputs)))
        self.write(f"{names} = point({self.values('i')})")
        for k, (_, output) in enumerate(outputs):
            part, value = f"part{k}", f"value{k}"
            if k in skipping:
                number = f"{output.combine}({value}, {_furthest(output)})"
                self.write(f"{part} = {skipping[k]}({part}, {number})")
                self.write(f"some{k} = some{k} | ({value} == {value})")
            else:
                self.write(f"{part} = {combine(output, part, value, output.value_dtype)}")
        self.depth -= 1
        for k, (_, output) in enumerate(outputs):
            if k in skipping:
                nothing = identity(output, output.value_dtype)
                self.write(f"part{k} = part{k} if some{k} else {nothing}")
        for k, (_, output) in enumerate(outputs):
            if _compensated(output):
                self.write(f"total{k}, lost{k} = compensated_add(total{k}, lost{k}, part{k})")
            else:
                self.write(f"total{k} = {combine(output, f'total{k}', f'part{k}')}")
        self.depth -= 1
        for k, (name, output) in enumerate(outputs):
            total = f"total{k}"
            if _compensated(output):
                self.write(f"total{k} = total{k} + lost{k} if lost{k} != 0 else total{k}")
            place = f"{self.current[name]}[0]"
            self.write(f"{place} = {combine(output, place, total)}")


def _skipping(kernel: Kernel) -> dict[int, str]:
    """Return, by output, what joins numbers in the place of `fmin` or `fmax`.

    LLVM computes several elements at once where these two are alone in a loop, and one after the
    other beside any other reduction. NaN is made the furthest number there is instead, and what
    tells whether there is a number at all is another reduction.
    """
    joins = {"fmin": "minimum", "fmax": "maximum"}
    if all(output.combine in joins for output in kernel.outputs):
        return {}
    outputs = enumerate(kernel.outputs)
    return {
        k: joins[o.combine]
        for k, o in outputs
        if o.combine in joins and np.dtype(o.value_dtype).kind == "f"
    }


def _furthest(output: Output) -> str:
    return literal(np.inf if output.combine == "fmin" else -np.inf, output.value_dtype)


def _compensated(output: Output) -> bool:
    return output.combine == "add" and output.dtype == "float64"


def _loops(kernel: Kernel) -> str:
    """Return the source of the loops, in which subnormal numbers are zero where fast is enough."""
    text = _Loops(kernel).source()
    if kernel.mathematics == EXACT:
        return text
    head, *body = text.split("\n")
    last = [body.pop()] if kernel.checked else []
    before, after = "    before = flush_subnormals()", "    restore_subnormals(before)"
    return "\n".join([head, before, *body, after, *last])


def source(kernel: Kernel) -> str:
    """Return the whole text of a kernel for the CPU and for plain Python."""
    if kernel.edition is not None:
        return editions.with_loops(kernel.edition, "cpu", _loops(kernel))
    point = point_source(kernel)
    parts = [helper_source(point) + point, _loops(kernel)]
    return "\n\n\n".join([header(kernel, kernel.name), *parts]) + "\n"
