"""The loop that calls several kernels for one slab of rows after the other, without the GIL.

Its source is generated and kept as theirs is. It calls their machine code where that lies, so that
it need not be compiled with each of them: one loop serves all kernels of the same types.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from gpusched.fusion import cache, generate, sharing
from gpusched.fusion.backends import objectcode, primitives
from gpusched.fusion.handles import Code, Runnable
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
    resumes: bool
    """Whether it is passed the rows before as well, behind all else."""


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


def source(parts: tuple[Part, ...]) -> str:
    """Return the text of the loop.

    Names are those of each kernel's own source, with its number behind them; ``_step`` is the
    number of elements from a row to the next.
    """
    arguments, lines = ["rows, count"], []
    for k, part in enumerate(parts):
        given, passed = [f"kernel_{k}"], [f"kernel_{k}"]
        for name, moves in zip(part.arrays, part.moved, strict=True):
            array = f"{name}_{k}"
            given += [array, f"{array}_step"] if moves else [array]
            passed.append(f"shift({array}, row * {array}_step)" if moves else array)
        before, after = ([f"{name}_{k}" for name in names] for names in (part.before, part.after))
        last = ["row"] if part.resumes else []
        call = f"call_{k}({', '.join([*passed, *before, 'here', *after, *last])})"
        lines.append(f"errors |= {call}" if part.checked else call)
        for place, _ in part.converted:
            array = f"{part.arrays[place]}_{k}"
            given.append(f"{array}_result")
            lines += [
                f"for i in range(row * {array}_step, (row + here) * {array}_step):",
                f"    {array}_result[i] = {array}[i]",
            ]
        arguments.append(", ".join([*given, *before, *after]))
    return "\n".join([
        "# kernels on one slab of rows after the other, written by gpusched",
        "def slabs(",
        *[f"    {each}," for each in arguments],
        "):",
        "    errors = 0",
        "    for row in range(0, rows, count):",
        "        here = min(count, rows - row)",
        *[f"        {line}" for line in lines],
        "    return errors",
    ]) + "\n"  # fmt: skip


def part(launch: Launch, steps: list[int]) -> Part:
    """Return what the loop has to know of a launch."""
    kernel = launch.kernel.kernel
    arrays, constants = len(kernel.operands), len(kernel.parameters)
    names = generate.arguments(kernel)
    end = len(names) - kernel.resumes
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
        tuple(names[arrays + constants + 1 : end]),
        converted,
        kernel.checked,
        kernel.resumes,
    )


def code_of(kernel: Runnable) -> tuple[Any, int] | None:
    """Return the signature and the address of a kernel's machine code; None if it has none."""
    compiled = list(getattr(kernel.call, "overloads", {}).values())
    if len(compiled) != 1:
        return None  # NUMBA_DISABLE_JIT is set, or the kernel is Python's.
    (found,) = compiled
    return found.signature, int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))


@lru_cache(maxsize=256)
def loop(parts: tuple[Part, ...], signatures: tuple[Any, ...]) -> Code:
    """Return the loop, which need not be compiled yet.

    Parameters
    ----------
    parts
        What is called, in this order.
    signatures
        Of the machine code of each.
    """
    text = source(parts)
    tools = cache.toolchain()
    key = "|".join(["slabs", tools, objectcode.processor(), text,
                    *map(str, signatures), repr(parts)])  # fmt: skip
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    name = f"slabs_{digest[:8]}"
    path = cache.store(tools, name, text)
    filename = str(path) if path else cache.register(name, text)
    signature = _signature(parts, signatures)
    lock = threading.Lock()

    def compiled(code: bytes | None) -> tuple[Callable[..., int], bytes | None]:
        found: dict[str, Any] = {"shift": primitives.shift, "__name__": __name__}
        found |= {f"call_{k}": caller(each) for k, each in enumerate(signatures)}
        exec(compile(text, filename, "exec"), found)
        # Symbols of code that was made in several processes must not meet.
        found["slabs"].__qualname__ = name
        options = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
        made = numba.njit(**options)(found["slabs"])
        return objectcode.specialise(made, signature, code)

    def load(code: bytes) -> Callable[..., int]:
        return compiled(code)[0]

    wanted = sharing.Wanted(name, digest, path and path.with_suffix(".code"))

    def obtain() -> Callable[..., int]:
        with lock:
            return sharing.obtain(wanted, load, lambda: compiled(None))[0]

    return Code(name, lambda: sharing.known(wanted, load), obtain)


def _signature(parts: tuple[Part, ...], signatures: tuple[Any, ...]) -> Any:
    given: list[Any] = [types.int64, types.int64]
    for part, kernel in zip(parts, signatures, strict=True):
        count, size = len(part.arrays), len(part.arrays) + len(part.before)
        given.append(types.int64)
        for array, moves in zip(kernel.args[:count], part.moved, strict=True):
            given += [array, types.int64] if moves else [array]
        given += [types.Array(getattr(types, dtype), 1, "C") for _, dtype in part.converted]
        end = len(kernel.args) - part.resumes
        given += [*kernel.args[count:size], *kernel.args[size + 1 : end]]
    return types.int64(*given)
