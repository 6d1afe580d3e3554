"""The C library's function for the few numbers that a polynomial does not serve.

A call stops LLVM from vectorising a loop, unless the function has variants that take a whole
vector ("vector function ABI").  These variants are made here: they return zeros at once where no
element of the vector is large, and else call the C library for each that is.  Once loops are
vectorised the variants become part of them, so that a call does not cost the vectors in registers.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_PREFIX = "gpusched.rarely."
_PURE = ("nounwind", "memory(none)", "willreturn")
_NEVER = (1, 1 << 20)
"""How often elements are large, and are not, for the order of the machine code."""


def _function(module: Any, name: str, kind: Any, *attributes: str) -> Any:
    """Return a new function from one `kind` to the same, which is kept though nothing calls it."""
    function = ir.Function(module, ir.FunctionType(kind, [kind]), name)
    # Merged where several modules of a kernel have it.
    function.linkage = "linkonce_odr"
    for attribute in (*_PURE, *attributes):
        # llvmlite's own `add` does not know them all.
        set.add(function.attributes, attribute)
    return function


def _is_large(builder: Any, x: Any, limit: float, lanes: int = 0) -> Any:
    number = x.type.element if lanes else x.type
    suffix = "f32" if number == ir.FloatType() else "f64"
    name = f"llvm.fabs.{f'v{lanes}' if lanes else ''}{suffix}"
    fabs = builder.module.globals.get(name)
    fabs = fabs or ir.Function(builder.module, ir.FunctionType(x.type, [x.type]), name)
    bound = ir.Constant(x.type, [ir.Constant(number, limit)] * lanes if lanes else limit)
    return builder.fcmp_ordered(">=", builder.call(fabs, [x]), bound)


def _of_one(module: Any, name: str, symbol: str, kind: Any, limit: float) -> Any:
    """Return the function of one number: C's result where it is large, and else 0."""
    function = _function(module, name, kind, "noinline")
    library = module.globals.get(symbol)
    library = library or ir.Function(module, ir.FunctionType(kind, [kind]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    (x,) = function.args
    with builder.if_then(_is_large(builder, x, limit), likely=False):
        builder.ret(builder.call(library, [x]))
    builder.ret(ir.Constant(kind, 0.0))
    return function


def _of_vector(module: Any, of_one: Any, kind: Any, lanes: int, limit: float) -> Any:
    """Return the same for a vector of numbers."""
    vector, count = ir.VectorType(kind, lanes), ir.IntType(32)
    function = _function(module, f"{of_one.name}.v{lanes}", vector, "alwaysinline")
    start, slow, done = (function.append_basic_block(name) for name in ("start", "slow", "done"))
    (x,), zeros = function.args, ir.Constant(vector, [ir.Constant(kind, 0.0)] * lanes)
    builder = ir.IRBuilder(start)
    mask = builder.bitcast(_is_large(builder, x, limit, lanes), ir.IntType(lanes))
    builder.cbranch(builder.icmp_unsigned("!=", mask, mask.type(0)), slow, done).set_weights(_NEVER)
    builder.position_at_end(slow)
    place, so_far = builder.phi(count), builder.phi(vector)
    found = builder.call(of_one, [builder.extract_element(x, place)])
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


def _lanes(kind: Any) -> tuple[int, ...]:
    """Return the lengths of vectors that loops on this machine have."""
    wide = bool(llvmlite.binding.get_host_cpu_features().get("avx512f"))
    in_half = 4 if wide else 2
    return tuple(n * (2 if kind == ir.FloatType() else 1) for n in (in_half, 2 * in_half))


def _keep(module: Any, functions: list[Any]) -> None:
    """Say that functions are used, which nothing calls before loops are vectorised."""
    name = "llvm.compiler.used"
    if name in module.globals:
        functions = [*module.globals[name].initializer.constant, *functions]
        del module.globals[name]
    kind = ir.ArrayType(ir.PointerType(), len(functions))
    used = ir.GlobalVariable(module, kind, name)
    used.linkage, used.section = "appending", "llvm.metadata"
    used.initializer = ir.Constant(kind, functions)


def rarely(symbol: str, limit: float) -> Any:
    """Return a function that calls the C library where a number is large, and else returns 0.

    Parameters
    ----------
    symbol
        Of the C library's function of float64, such as ``"sin"``.
    limit
        Numbers are large from this on, and from its negative down; NaN is not.
    """

    @intrinsic
    def call(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            module, kind = builder.module, args[0].type
            narrow = kind == ir.FloatType()
            name = f"{_PREFIX}{symbol}{'f' if narrow else ''}"
            function = module.globals.get(name)
            if function is None:
                in_c = f"{symbol}f" if narrow else symbol
                function = _of_one(module, name, in_c, kind, limit)
                _keep(module, [_of_vector(module, function, kind, n, limit) for n in _lanes(kind)])
            found = builder.call(function, args)
            variants = [f"_ZGV_LLVM_N{n}v_{name}({name}.v{n})" for n in _lanes(kind)]
            set.add(found.attributes, f'"vector-function-abi-variant"="{",".join(variants)}"')
            return found

        return (x(x), generate) if isinstance(x, types.Float) else None

    return call


def inline_variants(library: Any) -> None:
    """Have one of numba's code libraries take the variants into its loops at the end."""
    optimize = library._optimize_final_module

    def optimize_and_inline() -> None:
        optimize()
        module = library._final_module
        if any(function.name.startswith(_PREFIX) for function in module.functions):
            options = llvmlite.binding.create_pipeline_tuning_options()
            builder = llvmlite.binding.create_pass_builder(library._codegen._tm, options)
            passes = llvmlite.binding.create_new_module_pass_manager()
            passes.add_always_inliner_pass()
            passes.run(module, builder)

    library._optimize_final_module = optimize_and_inline
