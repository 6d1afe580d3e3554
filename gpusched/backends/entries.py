"""What a kernel's machine code has so that it can be called without its compiler.

Numba's own wrappers of functions need numba where they run. These take a block of memory, or
Python's arguments, from which they make one: 64 bits each for the address of an array's first
element, for how many elements can be seen from there, and for each number. What is passed is
checked here, since a kernel believes whatever it is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from gpusched.backends import checks
from gpusched.backends.native import CALL, RUN

_POINTER = ir.IntType(8).as_pointer()
_WORD, _BIT, _INT = ir.IntType(64), ir.IntType(1), ir.IntType(32)
_BLOCK = _WORD.as_pointer()
_METHOD = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _WORD])
"""A function of Python's with METH_FASTCALL."""


def add(module: Any, context: Any, symbol: str, signature: Any) -> None:
    """Add the entries of a kernel to a module of LLVM's.

    Parameters
    ----------
    module
        A new one, to be linked with that of the kernel and with `checks.text`.
    context
        Numba's target context, which knows how arguments are passed.
    symbol
        The kernel's name in the other module.
    signature
        Numba's, of the kernel.
    """
    _run(module, context, symbol, signature)
    _read(module, signature.args)
    _method(module, signature.args)


def words(arguments: Any) -> int:
    """Return the length of the block for such arguments, in words."""
    return sum(2 if isinstance(each, types.Array) else 1 for each in arguments)


def _place(builder: Any, block: Any, word: int) -> Any:
    return builder.gep(block, [_WORD(word)])


def _run(module: Any, context: Any, symbol: str, signature: Any) -> None:
    """Add ``run(block)``, which returns the kernel's result, or -1 if it has raised an error."""
    function = ir.Function(module, ir.FunctionType(_WORD, [_BLOCK]), RUN)
    builder = ir.IRBuilder(function.append_basic_block())
    given, word = [], 0
    for each in signature.args:
        if isinstance(each, types.Array):
            given.append(_array(builder, context, each, function.args[0], word))
        else:
            given.append(_number(builder, context, each, function.args[0], word))
        word += words([each])
    convention = context.call_conv
    kernel = ir.Function(
        module, convention.get_function_type(signature.return_type, signature.args), symbol
    )
    status, found = convention.call_function(
        builder, kernel, signature.return_type, signature.args, given, attrs=("noinline",)
    )
    with cgutils.if_unlikely(builder, status.is_error):
        builder.ret(_WORD(-1))
    builder.ret(_WORD(0) if signature.return_type == types.void else found)


def _array(builder: Any, context: Any, kind: Any, block: Any, word: int) -> Any:
    made = context.make_array(kind)(context, builder)
    element = context.get_data_type(kind.dtype)
    size = _WORD(context.get_abi_sizeof(element))
    length = builder.load(_place(builder, block, word + 1))
    made.data = builder.inttoptr(builder.load(_place(builder, block, word)), element.as_pointer())
    made.shape = cgutils.pack_array(builder, [length])
    made.strides = cgutils.pack_array(builder, [size])
    made.itemsize, made.nitems = size, length
    # A borrowed view: whoever calls keeps the array alive, so nothing is counted.
    for owner in ("meminfo", "parent"):
        setattr(made, owner, ir.Constant(getattr(made, owner).type, None))
    return made._getvalue()


def _number(builder: Any, context: Any, kind: Any, block: Any, word: int) -> Any:
    found = builder.load(_place(builder, block, word))
    wanted = context.get_value_type(kind)
    if isinstance(kind, types.Float):
        double = builder.bitcast(found, ir.DoubleType())
        return double if wanted == double.type else builder.fptrunc(double, wanted)
    return found if wanted == found.type else builder.trunc(found, wanted)


def _read(module: Any, arguments: Any) -> None:
    """Add ``read(arguments, block)``, which makes the block; false if Python has an error set."""
    kind = ir.FunctionType(_BIT, [_POINTER.as_pointer(), _BLOCK])
    function = ir.Function(module, kind, "gpusched.read")
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    word = 0
    for number, each in enumerate(arguments):
        given = builder.load(builder.gep(function.args[0], [_WORD(number)]))
        place = _place(builder, function.args[1], word)
        name, options = _check(each)
        values = [_text(module, o) if isinstance(o, str) else o for o in options]
        passed = [given, place, _WORD(number + 1), *values]
        check = cgutils.get_or_insert_function(
            module, ir.FunctionType(_BIT, [value.type for value in passed]), name
        )
        with cgutils.if_unlikely(builder, builder.not_(builder.call(check, passed))):
            builder.ret(_BIT(0))
        word += words([each])
    builder.ret(_BIT(1))


def _check(kind: Any) -> tuple[str, list[Any]]:
    """Return the function that checks and converts an argument, and what it is given besides."""
    if isinstance(kind, types.Array):
        numbers = [*_type_numbers(kind.dtype), 0][:2]
        # Chunks that came over the network lie at any address.
        flags = checks.READ if not kind.mutable else checks.WRITTEN
        return checks.ARRAY, [_INT(numbers[0]), _INT(numbers[-1] or numbers[0]), _INT(flags),
                              str(kind.dtype)]  # fmt: skip
    if isinstance(kind, types.Float):
        return checks.FLOAT, []
    if isinstance(kind, types.Boolean):
        return checks.TRUTH, []
    if not kind.signed:
        return checks.UNSIGNED, [_WORD(2**kind.bitwidth - 1)]
    return checks.INTEGER, [_WORD(-(2 ** (kind.bitwidth - 1))), _WORD(2 ** (kind.bitwidth - 1) - 1)]


def _type_numbers(kind: Any) -> list[int]:
    """Return NumPy's numbers of the dtypes that are of this kind: C has two names for some."""
    wanted = np.dtype(str(kind).replace("boolean", "bool"))
    return sorted({np.dtype(code).num for code in "?bBhHiIlLqQefdFD" if np.dtype(code) == wanted})


def _text(module: Any, content: str) -> Any:
    data = bytearray(content.encode() + b"\0")
    kind = ir.ArrayType(ir.IntType(8), len(data))
    name = module.get_unique_name("gpusched.text")
    variable = ir.GlobalVariable(module, kind, name)
    variable.global_constant, variable.linkage = True, "internal"
    variable.initializer = ir.Constant(kind, data)
    return variable.bitcast(_POINTER)


def _method(module: Any, arguments: Any) -> None:
    """Add ``call(*arguments)``."""
    called = ir.Function(module, _METHOD, CALL)
    builder = ir.IRBuilder(called.append_basic_block())
    _, given, count = called.args
    block = builder.alloca(_WORD, max(1, words(arguments)))
    check = cgutils.get_or_insert_function(
        module, ir.FunctionType(_BIT, [_WORD, _WORD]), checks.COUNT
    )
    _refuse(builder, builder.call(check, [count, _WORD(len(arguments))]))
    _refuse(builder, builder.call(module.get_global("gpusched.read"), [given, block]))
    finish = cgutils.get_or_insert_function(
        module, ir.FunctionType(_POINTER, [_POINTER, _BLOCK]), checks.RUN
    )
    run = builder.bitcast(module.get_global(RUN), _POINTER)
    builder.ret(builder.call(finish, [run, block]))


def _refuse(builder: Any, right: Any) -> None:
    """Return null to Python, which has an error set, unless a condition holds."""
    with cgutils.if_unlikely(builder, builder.not_(right)):
        builder.ret(ir.Constant(_POINTER, None))
