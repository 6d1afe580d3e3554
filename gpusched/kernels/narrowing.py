"""Constants in a function of float32: float32 too, as NumPy takes Python's numbers beside arrays.

numba types Python's floats as float64 and its integers as int64, either of which widens float32.
What is changed is the function's bytecode: one constant for another, in place.
"""

from __future__ import annotations

import dis
import math
import operator
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpusched.record.bytecode import instructions

_EXACT = 1 << 24
"""Integers up to here are float32 numbers."""

_OPERATORS = frozenset(
    getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge", "eq",
                 "ne", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod")
)  # fmt: skip

_LOAD_CONST = dis.opmap["LOAD_CONST"]
_LOAD_SMALL_INT = dis.opmap.get("LOAD_SMALL_INT")
"""Holds an integer below 256 itself, instead of its place among the constants; None before 3.14."""

_CONSTANT = re.compile(r"^\$const(\d+)\.")
"""What numba calls what an instruction loads; the number is where it is, and a bit."""


def narrowed(value: Any) -> Any:
    """Return a Python float as float32, unless that would be infinite or zero.

    Examples
    --------
    >>> narrowed(0.5)
    np.float32(0.5)
    >>> narrowed(1e300)
    1e+300
    """
    if type(value) is not float:
        return value
    with np.errstate(all="ignore"):
        found = np.float32(value)
    lost = math.isfinite(value) and (not np.isfinite(found) or (found == 0 and value != 0))
    return value if lost else found


def narrow_floats(code: types.CodeType) -> types.CodeType:
    """Return code with float32 instead of its floats."""
    return code.replace(co_consts=tuple(map(narrowed, code.co_consts)))


def narrow_integers(
    code: types.CodeType, bind: Callable[[types.CodeType], Any], signature: tuple[Any, ...]
) -> types.CodeType:
    """Return code with float32 instead of integers beside float32: ``2 * x``.

    Parameters
    ----------
    code
        Of the function.
    bind
        Returns the function with other code.
    signature
        numba types of its arguments.
    """
    for _ in range(64):
        # Each round makes more of the function float32.
        offsets = [o for o in set(_beside_float32(bind(code), signature)) if _is_integer(code, o)]
        if not offsets or len(code.co_consts) + len(offsets) > 255:
            break
        code = _replaced(code, offsets)
    return code


def _beside_float32(function: Any, signature: tuple[Any, ...]) -> Iterator[int]:
    """Yield where the bytecode loads what is then joined with a float32."""
    from numba.core import compiler, errors, ir, typed_passes
    from numba.core import types as numba_types
    from numba.core.registry import cpu_target
    from numba.core.ssa import reconstruct_ssa

    from gpusched.adapters.numba import offset_of

    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    try:
        program = reconstruct_ssa(compiler.run_frontend(function))
        typed, *_ = typed_passes.type_inference_stage(typing, target, program, signature, None)
    except errors.NumbaError:
        return  # Compiling it tells what is wrong.
    for block in program.blocks.values():
        for assignment in block.find_insts(ir.Assign):
            expression = assignment.value
            joins = isinstance(expression, ir.Expr) and expression.op in ("binop", "inplace_binop")
            if not joins or expression.fn not in _OPERATORS:
                continue
            for one, other in (("lhs", "rhs"), ("rhs", "lhs")):
                name = _CONSTANT.match(getattr(expression, other).name)
                if name and typed[getattr(expression, one).name] == numba_types.float32:
                    yield offset_of(int(name[1]))


def _is_integer(code: types.CodeType, offset: int) -> bool:
    """Return whether the instruction there loads an integer that float32 holds."""
    for instruction in instructions(code):
        if instruction.offset == offset:
            value = instruction.argval
            small = type(value) is int and abs(value) <= _EXACT
            loads = instruction.opcode in (_LOAD_CONST, _LOAD_SMALL_INT)
            return loads and (instruction.arg or 0) < 256 and small
    return False


def _replaced(code: types.CodeType, offsets: list[int]) -> types.CodeType:
    constants, text = list(code.co_consts), bytearray(code.co_code)
    for offset in offsets:
        operand = text[offset + 1]
        value = operand if text[offset] == _LOAD_SMALL_INT else constants[operand]
        constants.append(np.float32(value))
        text[offset : offset + 2] = _LOAD_CONST, len(constants) - 1
    return code.replace(co_consts=tuple(constants), co_code=bytes(text))
