"""The C library's function for the few numbers that vectors do not serve.

The variants for vectors return zeros at once where no element of the vector is large, and else call
the C library for each that is.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpusched.vectormath import variants
from gpusched.vectormath.bits import of_floats

_NEVER = (1, 1 << 20)
"""How often elements are large, and are not, for the order of the machine code."""


def _function(module: Any, name: str, kind: Any, count: int, attribute: str) -> Any:
    """Return a new function of `count` of a kind, which is kept though nothing calls it."""
    function = variants.function(module, name, kind, count, (*variants.PURE, attribute))
    # Merged where several modules of a kernel have it.
    function.linkage = "linkonce_odr"
    return function


def _is_large(builder: Any, x: Any, limit: float, lanes: int = 0) -> Any:
    number = x.type.element if lanes else x.type
    suffix = "f32" if number == ir.FloatType() else "f64"
    name = f"llvm.fabs.{f'v{lanes}' if lanes else ''}{suffix}"
    fabs = builder.module.globals.get(name)
    fabs = fabs or ir.Function(builder.module, ir.FunctionType(x.type, [x.type]), name)
    bound = ir.Constant(x.type, [ir.Constant(number, limit)] * lanes if lanes else limit)
    return builder.fcmp_ordered(">=", builder.call(fabs, [x]), bound)


def _of_one(module: Any, name: str, symbol: str, kind: Any, limit: float, arguments: int) -> Any:
    """Return the scalar function: C's result where the first is large, and else 0."""
    given = arguments if arguments == 1 else arguments + 1
    function = _function(module, name, kind, given, "noinline")
    in_c = ir.FunctionType(kind, [kind] * arguments)
    library = module.globals.get(symbol) or ir.Function(module, in_c, symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    with builder.if_then(_is_large(builder, function.args[0], limit), likely=False):
        builder.ret(builder.call(library, function.args[-arguments:]))
    builder.ret(ir.Constant(kind, 0.0))
    return function


def _of_vector(module: Any, of_one: Any, kind: Any, lanes: int, limit: float) -> Any:
    """Return the same for vectors of numbers."""
    vector, count = ir.VectorType(kind, lanes), ir.IntType(32)
    name, given = f"{of_one.name}.v{lanes}", len(of_one.args)
    function = _function(module, name, vector, given, "alwaysinline")
    start, slow, done = (function.append_basic_block(name) for name in ("start", "slow", "done"))
    zeros = ir.Constant(vector, [ir.Constant(kind, 0.0)] * lanes)
    builder = ir.IRBuilder(start)
    large = _is_large(builder, function.args[0], limit, lanes)
    mask = builder.bitcast(large, ir.IntType(lanes))
    builder.cbranch(builder.icmp_unsigned("!=", mask, mask.type(0)), slow, done).set_weights(_NEVER)
    builder.position_at_end(slow)
    place, so_far = builder.phi(count), builder.phi(vector)
    found = builder.call(of_one, [builder.extract_element(x, place) for x in function.args])
    joined = builder.insert_element(so_far, found, place)
    following = builder.add(place, count(1))
    for phi, first, then in ((place, count(0), following), (so_far, zeros, joined)):
        phi.add_incoming(first, start)
        phi.add_incoming(then, slow)
    builder.cbranch(builder.icmp_unsigned("<", following, count(lanes)), slow, done)
    builder.position_at_end(done)
    result = builder.phi(vector)
    result.add_incoming(zeros, start)
    result.add_incoming(joined, slow)
    builder.ret(result)
    return function


def rarely(symbol: str, limit: float, arguments: int = 1) -> Any:
    """Return a function that calls the C library where a number is large, and else returns 0.

    Parameters
    ----------
    symbol
        Of the C library's function of float64, such as ``"sin"``.
    limit
        Numbers are large from this on, and from its negative down; NaN is not.
    arguments
        How many the C library's function takes. Of several none is the number that may be large:
        that is given first, and they behind it.
    """

    def call(builder: Any, *args: Any) -> Any:
        module, kind = builder.module, args[0].type
        narrow = kind == ir.FloatType()
        name = f"{variants.PREFIX}{symbol}{'f' if narrow else ''}"
        function = module.globals.get(name)
        if function is None:
            in_c = f"{symbol}f" if narrow else symbol
            function = _of_one(module, name, in_c, kind, limit, arguments)
            sizes = variants.lanes(kind)
            wide = [_of_vector(module, function, kind, n, limit) for n in sizes]
            variants.keep(module, wide)
        found = builder.call(function, args)
        variants.offer(found, name, kind, len(args))
        return found

    return of_floats(1 if arguments == 1 else arguments + 1, call)
