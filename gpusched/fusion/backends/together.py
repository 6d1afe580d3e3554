"""The loop that calls several kernels for one slab of rows after the other, without the GIL.

Its source is generated and kept as theirs is. It calls their machine code where that lies, so that
it need not be compiled with each of them: one loop serves all kernels of the same types.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from gpusched.fusion import cache, generate, sharing
from gpusched.fusion.backends import objectcode, primitives
from gpusched.fusion.deviations import Deviations
from gpusched.fusion.plan import Launch


@dataclass(frozen=True)
class Part:
    """One kernel among those that are called together."""

    arrays: tuple[str, ...]
    """Its own names for its arrays."""
    moved: tuple[bool, ...]
    """For each, whether every row has a place of its own in it."""
    before: tuple[str, ...]
    """Numbers that are passed before that of the rows."""
    after: tuple[str, ...]
    """Numbers that are passed behind it."""
    converted: tuple[tuple[int, str], ...]
    """Arrays that are copied to results of another dtype, row by row, with that dtype."""
    checked: bool
    """Whether the kernel returns floating-point errors."""


@dataclass(frozen=True)
class Join:
    """How squares of deviations from a mean are joined, slab by slab; names are the loop's."""

    sums: int
    """Which kernel adds up what the mean is made of."""
    total: str
    """Its sums."""
    squares: int
    """Which kernel adds up the squares."""
    result: str
    """Its sums."""
    given: str
    """Dtype of what it is given for each of them: the mean, or the sum if it divides that."""
    count: str = ""
    """Dtype of the array that it divides by, if it does."""
    number: str = ""
    """The constant that it divides by, if it does."""
    dtype: str = ""
    """That constant's dtype."""

    def named(self, *names: str) -> list[str]:
        """Return names of what belongs to this one."""
        return [f"{name}_{self.squares}" for name in names]

    @property
    def arrays(self) -> dict[str, str]:
        """What the loop writes for it besides results: dtypes by name."""
        dtypes = {"sums": "float64", "means": "float64", "deviations": "float64"}
        dtypes |= {"given": self.given} | ({"count": self.count} if self.count else {})
        return dict(zip(self.named(*dtypes), dtypes.values(), strict=True))


def join(found: Deviations, launches: Sequence[Launch]) -> Join:
    """Return what the loop has to know of deviations."""
    order = [id(launch) for launch in launches]
    sums, squares = order.index(id(found.sums)), order.index(id(found.squares))
    adding, squaring = found.sums.kernel.kernel, found.squares.kernel.kernel
    divisor = {}
    if found.count is not None:
        divisor = {"count": squaring.inputs[found.count].dtype}
    if found.number is not None:
        name = f"{generate.parameter_names(squaring)[found.number]}_{squares}"
        divisor = {"number": name, "dtype": squaring.parameters[found.number]}
    return Join(
        sums,
        f"{generate.output_names(adding)[found.place]}_{sums}",
        squares,
        f"{generate.output_names(squaring)[0]}_{squares}",
        squaring.inputs[found.given].dtype,
        **divisor,
    )


def _before(join: Join) -> list[str]:
    """Return what comes before the squares of a slab."""
    given, count, sums = join.named("given", "count", "sums")
    divides = join.count or join.number
    return [
        *([f"{join.number} = {join.dtype}(here)"] if join.number else []),
        f"for i in range(len({join.total})):",
        f"    total, mean = {join.total}[i], {join.total}[i] / here",
        f"    {given}[i] = {'total' if divides else 'mean'}",
        *([f"    {count}[i] = here"] if join.count else []),
        f"    {sums}[i] += total",
        f"    {join.total}[i] = mean",
    ]


def _after(join: Join) -> list[str]:
    """Return what joins a slab's sums and squares to those before."""
    means, deviations = join.named("means", "deviations")
    return [
        f"for i in range(len({join.total})):",
        f"    change = {join.total}[i] - {means}[i]",
        "    between = change * change * across",
        f"    {means}[i] += change * weight",
        # Infinities have made the squares what they are.
        f"    {deviations}[i] += {join.result}[i] + (between if between == between else 0.0)",
        f"    {join.total}[i] = 0",
        f"    {join.result}[i] = 0",
    ]


def caller(kernel: Any) -> Any:
    """Return an intrinsic ``call(address, ...)`` for machine code of this signature."""

    @intrinsic
    def call(typing_context: Any, address: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            where, given = args
            values = [builder.extract_value(given, k) for k in range(len(kernel.args))]
            convention = context.call_conv
            function = convention.get_function_type(kernel.return_type, kernel.args)
            code = builder.inttoptr(where, function.as_pointer())
            # Kernels raise nothing, so that there is no status to look at.
            found = convention.call_function(builder, code, kernel.return_type, kernel.args, values)
            return found[1]

        taken = types.int64, types.StarArgTuple(kernel.args)
        return kernel.return_type(*taken), generate

    return call


def source(parts: tuple[Part, ...], joins: tuple[Join, ...] = ()) -> str:
    """Return the text of the loop.

    Names are those of each kernel's own source, with its number behind them; ``_step`` is the
    number of elements from a row to the next.
    """
    arguments, lines, last = ["rows, count"], [], []
    if joins:
        lines += ["weight = here / (row + here)", "across = row * weight"]
    for k, part in enumerate(parts):
        joined = [each for each in joins if each.squares == k]
        lines += [line for each in joined for line in _before(each)]
        given, passed = [f"kernel_{k}"], [f"kernel_{k}"]
        for name, moves in zip(part.arrays, part.moved, strict=True):
            array = f"{name}_{k}"
            given += [array, f"{array}_step"] if moves else [array]
            passed.append(f"shift({array}, row * {array}_step)" if moves else array)
        before, after = ([f"{name}_{k}" for name in names] for names in (part.before, part.after))
        call = f"call_{k}({', '.join([*passed, *before, 'here', *after])})"
        lines.append(f"errors |= {call}" if part.checked else call)
        for place, _ in part.converted:
            array = f"{part.arrays[place]}_{k}"
            given.append(f"{array}_result")
            lines += [
                f"for i in range(row * {array}_step, (row + here) * {array}_step):",
                f"    {array}_result[i] = {array}[i]",
            ]
        arguments.append(", ".join([*given, *before, *after]))
        lines += [line for each in joined for line in _after(each)]
    for each in joins:
        sums, deviations = each.named("sums", "deviations")
        arguments.append(", ".join(each.arrays))
        last += [
            f"for i in range(len({each.total})):",
            f"    {each.total}[i] = {sums}[i]",
            f"    {each.result}[i] = {deviations}[i]",
        ]
    return "\n".join([
        "# kernels on one slab of rows after the other, written by gpusched",
        "def slabs(",
        *[f"    {each}," for each in arguments],
        "):",
        "    errors = 0",
        "    for row in range(0, rows, count):",
        "        here = min(count, rows - row)",
        *[f"        {line}" for line in lines],
        *[f"    {line}" for line in last],
        "    return errors",
    ]) + "\n"  # fmt: skip


def part(launch: Launch, steps: list[int]) -> Part:
    """Return what the loop has to know of a launch."""
    kernel = launch.kernel.kernel
    arrays, constants = len(kernel.operands), len(kernel.parameters)
    names = generate.arguments(kernel)
    first = len(launch.inputs)
    converted = tuple(
        (first + k, output.result_dtype.name)
        for k, output in enumerate(launch.outputs)
        if steps[first + k] and output.dtype != output.result_dtype
    )
    return Part(
        tuple(names[:arrays]),
        tuple(map(bool, steps)),
        tuple(names[arrays : arrays + constants]),
        tuple(names[arrays + constants + 1 :]),
        converted,
        kernel.checked,
    )


def code_of(kernel: cache.CompiledKernel) -> tuple[Any, int] | None:
    """Return the signature and the address of a kernel's machine code; None if it has none."""
    compiled = list(getattr(kernel.call, "overloads", {}).values())
    if len(compiled) != 1:
        return None  # NUMBA_DISABLE_JIT is set, or the kernel is Python's.
    (found,) = compiled
    return found.signature, int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))


_lock = threading.Lock()


def loop(
    parts: tuple[Part, ...], signatures: tuple[Any, ...], joins: tuple[Join, ...]
) -> Callable[..., int]:
    """Return the compiled loop.

    Parameters
    ----------
    parts
        What is called, in this order.
    signatures
        Of the machine code of each.
    joins
        What is joined slab by slab.
    """
    with _lock:
        return _made(parts, signatures, joins)


@lru_cache(maxsize=256)
def _made(
    parts: tuple[Part, ...], signatures: tuple[Any, ...], joins: tuple[Join, ...]
) -> Callable[..., int]:
    text = source(parts, joins)
    tools = cache.toolchain()
    key = "|".join(["slabs", tools, objectcode.processor(), text,
                    *map(str, signatures), repr(parts)])  # fmt: skip
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    name = f"slabs_{digest[:8]}"
    path = cache.store(tools, name, text)
    filename = str(path) if path else cache.register(name, text)
    signature = _signature(parts, signatures, joins)

    def compiled(code: bytes | None) -> tuple[Callable[..., int], bytes | None]:
        found: dict[str, Any] = {"shift": primitives.shift, "__name__": __name__}
        found |= {each.dtype: getattr(types, each.dtype) for each in joins if each.number}
        found |= {f"call_{k}": caller(each) for k, each in enumerate(signatures)}
        exec(compile(text, filename, "exec"), found)
        # Symbols of code that was made in several processes must not meet.
        found["slabs"].__qualname__ = name
        options = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
        made = numba.njit(**options)(found["slabs"])
        return objectcode.specialise(made, signature, code)

    wanted = sharing.Wanted(name, digest, path and path.with_suffix(".code"))
    return sharing.obtain(wanted, lambda code: compiled(code)[0], lambda: compiled(None))[0]


def _signature(
    parts: tuple[Part, ...], signatures: tuple[Any, ...], joins: tuple[Join, ...]
) -> Any:
    given: list[Any] = [types.int64, types.int64]
    for part, kernel in zip(parts, signatures, strict=True):
        count, size = len(part.arrays), len(part.arrays) + len(part.before)
        given.append(types.int64)
        for array, moves in zip(kernel.args[:count], part.moved, strict=True):
            given += [array, types.int64] if moves else [array]
        given += [types.Array(getattr(types, dtype), 1, "C") for _, dtype in part.converted]
        given += [*kernel.args[count:size], *kernel.args[size + 1 :]]
    for each in joins:
        given += [types.Array(getattr(types, d), 1, "C") for d in each.arrays.values()]
    return types.int64(*given)
