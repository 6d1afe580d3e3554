"""What to change where fusion stopped, by the reason."""

from __future__ import annotations

import re
from collections.abc import Callable

_RULES: list[tuple[str, str]] = [
    (r"^on the host: its kernels are not compiled yet$",
     "nothing: the next tasks find them, or set gpusched.fusion.compile to wait"),
    (r"^on the host: (small chunks|copying the chunks)",
     "nothing, or make chunks larger: the host is done sooner"),
    (r"^on the host: it hands chunks to the program",
     "nothing: chunks leave the workers there"),
    (r"^on the host: ",
     "call functions that kernels have (docs/reference/gpu.md), or convert the chunks for them"),
    (r"^small chunks$",
     "make chunks larger, or lower gpusched.fusion.minimum-elements"),
    (r"^nothing to fuse it with$",
     "nothing: one NumPy call on so few elements, or on a GPU, is as good as a kernel"),
    (r"^no array among the inputs$",
     "nothing: the array is made here"),
    (r"^dtype (complex\w*|float16|object|.*[<>]?[SU]\d+.*)",
     "convert with astype to a dtype that kernels have: bool, integers, float32, float64"),
    (r"^dtype ",
     "this function has no kernel for that dtype: convert with astype first"),
    (r"^chunks of type ",
     "give plain NumPy or CuPy chunks, as with map_blocks(np.asarray)"),
    (r"^chunks on several devices$",
     "move all inputs to one device with to_backend"),
    (r"^a collection whose graph no hook sees$",
     "compute the arrays that it is made of by themselves, or have it call dask.array's optimize"),
    (r"^an argument that cannot be compared$",
     "pass numbers, strings or arrays to the function rather than objects"),
    (r"^numpy\.\w+ is not NumPy's",
     "put NumPy's own function back, and call another one by a name of its own"),
    (r"^your function assigns to elements",
     "build the result with np.where instead of assigning to elements"),
    (r"^your function changes an array in place",
     "write x = x + y instead of x += y for what the function has been given"),
    (r"^your function handles exceptions",
     "handle them outside of the function, or mark it with @gpusched.fusible if none is of NumPy"),
    (r"^your function (decides by|loops over|asks whether|formats)",
     "keep to NumPy calls: use np.where instead of if, and slices instead of loops over an array"),
    (r"^your function calls [\w.]+, which is not recorded",
     "call NumPy functions that kernels have (docs/reference/operations.md), or split it there"),
    (r"^your function calls \w+ with ",
     "leave that argument out, or apply it in a call of its own"),
    (r"^your function uses \.\w+",
     "replace that attribute or method, or mark the function with @gpusched.fusible"),
    (r"^your function (calls|uses|is) ",
     "pass what it needs as numbers or arrays, or mark it with @gpusched.fusible if it is safe"),
    (r"^your function ",
     "use NumPy calls and plain expressions only, or mark the function with @gpusched.fusible"),
    (r"^may change an array that another call",
     "have the function return a new array instead of changing the one it is given"),
    (r"^a model that ",
     "nothing: NumPy calls before and after it are fused, each side by itself"),
    (r"^no kernel for this function$",
     "nothing, or call it before or after the chain rather than in its middle"),
    (r"^a method no kernel has$",
     "use the NumPy function of operations that kernels have (docs/reference/operations.md)"),
    (r"^(option |arguments that no kernel honours)",
     "leave the option out, or apply it in a call of its own"),
    (r"^an index that is not a slice", "index with slices, or use np.where with a mask"),
    (r"^a reduction's result is needed",
     "nothing: the chunk is read again. Where it is large, make chunks that fit the cache"),
    (r"^more operations than one kernel may hold$",
     "raise gpusched.fusion.maximum-operations"),
    (r"^(a chunk's values were asked for|converts a chunk|reads the attribute)",
     "keep to NumPy calls, without float(), bool(), if or np.asarray of a chunk: the task is "
     "recorded anew for each chunk"),
    (r" gave something else than arrays$",
     "convert to a dtype that kernels have: what follows is called as NumPy has it, and the task "
     "is recorded anew for each chunk"),
    (r"^(assigns to elements|changes a chunk in place|iterates over a chunk|calls )",
     "return a new array instead of changing one, and use slices instead of loops over an array"),
    (r"^reduction of an empty array$", "nothing: the chunk is empty"),
    (r"^recording failed", "if the program runs without gpusched, please report this"),
    (r"^signed and unsigned operands$|^integer power", "convert one operand with astype"),
    (r"^operand of type ", "pass arrays and numbers"),
]  # fmt: skip

_COMPILED: list[tuple[Callable[[str], object], str]] = [
    (re.compile(pattern).search, remedy) for pattern, remedy in _RULES
]


def remedy_for(reason: str) -> str:
    """Return what to change where fusion stopped for that reason.

    Examples
    --------
    >>> from gpusched.inspection.remedies import remedy_for
    >>> remedy_for("small chunks")
    'make chunks larger, or lower gpusched.fusion.minimum-elements'
    """
    for applies, remedy in _COMPILED:
        if applies(reason):
            return remedy
    return "see docs/reference/operations.md for what kernels can do"
