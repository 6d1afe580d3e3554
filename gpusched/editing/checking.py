"""Whether a user's version of a kernel gives what the original does, on samples."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

from gpusched.backends import cache
from gpusched.backends.complaints import complaint
from gpusched.editing.samples import INNERMOST, Sample, sample
from gpusched.emit import editions, generate, hostloops
from gpusched.emit.editions import EditionError
from gpusched.emit.kernel import JOINED, MOMENTS, Access, Kernel, Output, unchecked
from gpusched.emit.operations import named
from gpusched.emit.parsing import parse, register

SHORT = 17
"""Iterations of the innermost loop in plain Python."""
REORDERED = 64
"""Units in the last place of the sum of its terms' sizes that a reduction may differ by, because
its loops join them in another order."""


class MismatchError(ValueError):
    """A user's version of a kernel gives other results than the original."""


@dataclass(frozen=True)
class Round:
    """One comparison."""

    special: bool
    innermost: int
    reference: bool = False
    """Whether the version runs in plain Python."""


# In plain Python first, where an element that is in no array is an error, and not a crash.
_MAPS = (Round(True, SHORT, True), Round(False, INNERMOST), Round(True, INNERMOST),
         Round(True, 1))  # fmt: skip
_REDUCTIONS = (Round(False, SHORT, True), Round(False, INNERMOST), Round(False, 1))


def check_tolerance(tolerance: Any) -> None:
    """Raise `ValueError` for what is neither None nor a relative difference.

    Examples
    --------
    >>> from gpusched.editing.checking import check_tolerance
    >>> check_tolerance(1e-6)
    >>> check_tolerance("small")
    Traceback (most recent call last):
    ...
    ValueError: tolerance 'small' is not a relative difference of 0 or more
    """
    if tolerance is not None and not (isinstance(tolerance, Real) and float(tolerance) >= 0):
        raise ValueError(f"tolerance {tolerance!r} is not a relative difference of 0 or more")


def check(original: Kernel, version: Kernel, tolerance: float | None, filename: str) -> int:
    """Compare a version of a kernel with the original, and return how many numbers were equal.

    A reduction is compared twice: the values that are joined, and what they are joined to.

    Parameters
    ----------
    original
        The generated kernel.
    version
        The user's.
    tolerance
        Largest relative difference of floating-point numbers; None for the distance from NumPy's
        result that the original is allowed itself. Other numbers must be equal.
    filename
        The file of the user's source.

    Raises
    ------
    MismatchError
        If they differ; the message has inputs, expected and found.
    EditionError
        If the version does not compile, or fails in plain Python, with the user's line.
    """
    compile_check(version, filename)
    compared = 0
    if version.edition is not None and editions.has_loops(version.edition, "cuda"):
        compared = _check_cuda(original, version, tolerance, filename)
    rounds = [(original, version, each) for each in (_REDUCTIONS if original.reduces else _MAPS)]
    if original.reduces and _has_point(version):
        rounds = [*((joined(original), joined(version), each) for each in _MAPS), *rounds]
    return compared + sum(_compare(*each, tolerance, filename) for each in rounds)


def compile_check(version: Kernel, filename: str) -> None:
    """Raise `EditionError` with the user's line if a version does not compile for the CPU."""
    import numba

    from gpusched.backends import cpu

    text = hostloops.source(version)
    what = f"your version of kernel {version.original.name if version.original else version.name}"
    if version.edition is not None:
        if not Path(filename).exists():
            register(filename, text)
        _check_arguments(version, filename)
        _check_functions(version, filename)
        defined = generate.defined_functions(version)
        editions.check_names(text, filename, {*cpu.namespace(text), *defined})
    try:
        cpu.compile_code(version, text, filename)
    except numba.core.errors.NumbaError as error:
        raise EditionError(complaint(what, error, filename)) from error


def _check_arguments(version: Kernel, filename: str) -> None:
    """Raise `EditionError` unless `kernel` and `point` take as many arguments as they are given."""
    assert version.edition is not None
    from gpusched.emit.skeleton.source_lines import EXTRAS

    extras = len(EXTRAS) if version.edition.target == "cuda" else 0
    values = len(version.inputs) + len(version.parameters)
    wanted = {"kernel": len(generate.arguments(version)) + extras, "point": values}
    found = editions.functions(version.edition.text, filename)
    for name, count in wanted.items():
        node = found.get(name)
        if name == "point" and editions.has_loops(version.edition, "cpu"):
            continue  # The user's own loops call it.
        if node is not None and len(node.args.args) != count:
            raise EditionError(
                f"{filename}:{node.lineno}: {name} takes {len(node.args.args)} arguments, and is "
                f"given {count}: leave the arguments as they were"
            )


def _check_functions(version: Kernel, filename: str) -> None:
    """Raise `EditionError` for a function that has the name of one that generated loops call."""
    assert version.edition is not None
    if editions.has_loops(version.edition, "cpu"):
        return
    for name, node in editions.functions(version.edition.text, filename).items():
        if name in hostloops.CALLED and not _is_ours(name, node):
            raise EditionError(
                f"{filename}:{node.lineno}: gpusched's loops call a function {name} of their own: "
                "give yours another name, or keep kernel in the text"
            )


def _is_ours(name: str, node: ast.FunctionDef) -> bool:
    """Return whether a function is one of those that generated sources have, unchanged."""
    return generate.is_helper(name) and ast.dump(node) == ast.dump(
        parse(generate.helper(name)).body[0]
    )


WHOLE = 4112
"""Iterations of the innermost loop that fill whole vectors and tiles of a GPU, and some more."""


def _check_cuda(original: Kernel, version: Kernel, tolerance: float | None, filename: str) -> int:
    """Compare a version's loops for GPUs by a simulator; compile them where there is a compiler."""
    try:
        from gpusched.backends.cuda.simulator import Simulator, namespace
    except ImportError as error:
        raise EditionError(f"loops for CUDA cannot be checked here: {error}") from error
    from gpusched.backends.cuda.kernel_launch import CudaKernel

    assert version.edition is not None
    text = version.edition.text
    editions.check_names(text, filename, {*namespace(), *generate.defined_functions(version)})
    _compile_cuda(version, text, filename)
    calls = CudaKernel(original, Simulator()), CudaKernel(version, Simulator(filename))
    special = not original.reduces
    samples = (
        sample(original, special, WHOLE, gaps=False),
        sample(original, special, SHORT, gaps=not original.reduces),
    )
    pair = original, version
    with _told_where(version, filename, filename):
        return sum(_compare_calls(*pair, made, calls, tolerance) for made in samples)


def _compile_cuda(version: Kernel, text: str, filename: str) -> None:
    """Raise `EditionError` if loops for GPUs do not compile; without a compiler, do nothing."""
    from gpusched.backends.cuda import compiler, runtime

    try:
        compiler.require()
    except compiler.CompilerMissingError:
        return  # What it would find on a GPU stops the task there.
    import numba

    assert version.original is not None
    try:
        runtime.compile_text(version, text, filename, (9, 0))
    except numba.core.errors.NumbaError as error:
        what = f"your version of kernel {version.original.name}"
        raise EditionError(complaint(what, error, filename)) from error


def _has_point(version: Kernel) -> bool:
    return version.edition is None or "point" in editions.functions(version.edition.text)


def joined(kernel: Kernel) -> Kernel:
    """Return the kernel that writes the values that a reduction joins.

    Examples
    --------
    >>> from gpusched.editing.checking import joined
    >>> from gpusched.emit.kernel import Input
    >>> one, still = (Access.UNIT,), (Access.BROADCAST,)
    >>> output = Output(0, "float64", still, "add", "float32")
    >>> total = Kernel((Input("float32", one),), (), (), (output,), ("reduce",))
    >>> joined(total).outputs[0]
    Output(value=0, dtype='float32', access=(<Access.UNIT: 'unit'>,), combine=None, value_dtype='')
    """
    last = len(kernel.loops) - 1
    access = tuple(Access.UNIT if k == last else Access.STRIDED for k in range(last + 1))
    outputs = tuple(Output(o.value, o.value_dtype, access) for o in kernel.outputs)
    edition = kernel.edition
    if edition is not None:
        # The loops are those that are generated.
        edition = replace(edition, target="none")
    loops = ("map",) * len(kernel.loops)
    return replace(unchecked(kernel), outputs=outputs, loops=loops, edition=edition)


def _compare(
    original: Kernel, version: Kernel, each: Round, tolerance: float | None, filename: str
) -> int:
    made = sample(original, each.special, each.innermost)
    # Both in the same way: other loops join values in another order.
    run = cache.reference if each.reference else cache.kernels.get
    calls = run(original).call, run(version).call
    with _told_where(version, cache.source_name(version), filename):
        try:
            return _compare_calls(original, version, made, calls, tolerance)
        except (OverflowError, ZeroDivisionError, ValueError) as error:
            # Functions of `math` and Python's numbers raise where compiled code has NaN or
            # infinity, which later rounds compare. Loops have to come to their end first: they
            # could write where no array is.
            own_loops = version.edition and editions.has_loops(version.edition, "cpu")
            if isinstance(error, MismatchError) or own_loops or not each.reference:
                raise
            return 0


@contextmanager
def _told_where(version: Kernel, run: str, filename: str) -> Iterator[None]:
    """Raise `EditionError` with the user's line for what a user's loops do wrong as they run.

    Parameters
    ----------
    version
        The user's.
    run
        What tracebacks call its source.
    filename
        The file of the user's source.
    """
    try:
        yield
    except (MismatchError, MemoryError):
        raise
    except Exception as error:
        lines = [line for at, line in walk_tb(error.__traceback__) if at.f_code.co_filename == run]
        if version.edition is None or not lines:
            raise
        text = version.edition.text.splitlines()[lines[-1] - 1 :][:1]
        raise EditionError(
            f"{filename}:{lines[-1]}: {type(error).__name__}: {error}\n    {''.join(text).strip()}"
        ) from error


def _compare_calls(
    original: Kernel, version: Kernel, made: Sample, calls: tuple[Any, Any],
    tolerance: float | None,
) -> int:  # fmt: skip
    expected = made.call(calls[0])
    found = replace(made, kernel=version).call(calls[1])
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        unit = _unit(original, made, number, one)
        wrong = differs(one, other, tolerance, unit)
        if wrong.any():
            raise MismatchError(_told(version, made, number, one, other, wrong))
    return sum(one.size for one in expected)


_ROUNDED = frozenset(["add", "multiply", MOMENTS, JOINED])
"""How outputs are joined whose value depends on the order of joining."""


def _unit(original: Kernel, made: Sample, number: int, expected: np.ndarray) -> np.ndarray | None:
    """Return how far floating-point results may be from the original's; None for exact ones."""
    output = original.outputs[number]
    if expected.dtype.kind not in "fc":
        return None
    allowed = float(sum(named(s.operation).ulp for s in original.statements))
    with np.errstate(all="ignore"):
        if output.combine not in _ROUNDED:
            return np.asarray(allowed * np.spacing(np.abs(expected)))
        values = _joined_values(made, number)
        precision = np.finfo(output.value_dtype).eps
        axes = tuple(k for k, a in enumerate(output.access) if a is Access.BROADCAST)
        scale = np.abs(values).astype(np.float64).sum(axis=axes, keepdims=True)
        if output.combine == "multiply":
            scale = values.size * np.abs(expected)
        elif output.combine != "add":
            # What the mean of moments is off by is in the two others, too.
            scale = scale + np.abs(expected)
        return np.asarray((REORDERED + allowed) * precision * scale)


def _joined_values(made: Sample, number: int) -> np.ndarray:
    kernel = joined(made.kernel)
    return replace(made, kernel=kernel).call(cache.kernels.get(kernel).call)[number]


def differs(
    expected: np.ndarray, found: np.ndarray, tolerance: float | None, unit: Any = None
) -> np.ndarray:
    """Return where numbers differ by more than is allowed; NaN is equal to NaN.

    Parameters
    ----------
    expected, found
        Arrays of one dtype.
    tolerance
        Largest relative difference of floating-point numbers.
    unit
        Largest difference, where there is no tolerance; None for none.

    Examples
    --------
    >>> from gpusched.editing.checking import differs
    >>> differs(np.array([1.0, np.nan]), np.array([1.001, np.nan]), 0.01).tolist()
    [False, False]
    """
    if expected.dtype.kind not in "fc":
        return np.asarray(expected != found)
    with np.errstate(all="ignore"):
        limit = unit if tolerance is None else tolerance * np.abs(expected)
    if expected.dtype.kind == "f":
        return _apart(expected, found, limit)
    return _apart(expected.real, found.real, limit) | _apart(expected.imag, found.imag, limit)


def _apart(expected: np.ndarray, found: np.ndarray, limit: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        same = (expected == found) | (np.isnan(expected) & np.isnan(found))
        if limit is None:
            return np.asarray(~same)
        close = np.isfinite(expected) & (np.abs(found - expected) <= limit)
    return np.asarray(~(same | close))


def _told(version: Kernel, made: Sample, number: int, expected: np.ndarray, found: np.ndarray,
          wrong: np.ndarray) -> str:  # fmt: skip
    where = tuple(int(k) for k in np.argwhere(wrong)[0])
    assert version.original is not None
    names = generate.input_names(version), generate.parameter_names(version)
    given = [
        f"{name} = {operand.values[where].item()!r}"
        for name, operand in zip(names[0], made.inputs, strict=True)
    ]
    given += [f"{n} = {v.item()!r}" for n, v in zip(names[1], made.parameters, strict=True)]
    with np.errstate(all="ignore"):
        rounded = expected.dtype.kind in "fc"
        relative = np.abs((found - expected) / expected)[wrong] if rounded else 0
    largest = float(np.max(relative))
    name = generate.output_names(version)[number]
    told = f"a tolerance of {largest:.2g} or more (it is relative), or " if 0 < largest < 1 else ""
    whole = " of a reduction that begins with" if version.reduces else " for"
    return (
        f"your version of kernel {version.original.name} gives other results than the original in "
        f"{int(wrong.sum()):,} of {wrong.size:,} samples. The first,{whole} {', '.join(given)}: "
        f"{name} is {found[where].item()!r}, expected {expected[where].item()!r}. If that is what "
        f"you want, give {told}check=False"
    )
