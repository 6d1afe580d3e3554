"""What can be chosen for a kernel on a CPU and on a GPU, and which values make sense."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from gpusched.config import ChoiceError
from gpusched.emit import hostloops
from gpusched.emit.kernel import Kernel, Options
from gpusched.emit.policy import WIDEST

TARGETS = ("cpu", "cuda")
SENSIBLE: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {
        "block": (64, 128, 256, 512, 1024, 2048, 4096),
        "vector": (128, 256, 512),
    },
    "cuda": {
        "block": (32, 64, 128, 256, 512, 1024),
        "vector": (1, 2, 4, 8, 16),
        "unroll": (1, 2, 4, 8),
    },
}
"""Values by target and name; see `gpusched.emit.kernel.Options` for what they mean."""


def possible(kernel: Kernel, target: str) -> dict[str, tuple[int, ...]]:
    """Return what can be chosen for a kernel; nothing else would change its machine code.

    Examples
    --------
    >>> from gpusched.emit.choices import possible
    >>> from gpusched.emit.kernel import Access, Input, Output
    >>> one = (Access.UNIT,)
    >>> copy = Kernel((Input("float64", one),), (), (), (Output(0, "float64", one),), ("map",))
    >>> possible(copy, "cuda")["vector"], list(possible(copy, "cpu"))
    ((1, 2), ['vector'])
    """
    found = SENSIBLE[target]
    return {name: found[name] for name in _names(kernel, target)} | _vectors(kernel, target)


def _names(kernel: Kernel, target: str) -> tuple[str, ...]:
    if target == "cpu":
        return ("vector", "block") if kernel.reduces_innermost else ("vector",)
    if kernel.scanned:
        return ("block",)
    if "reduce" in kernel.loops:
        return ("block", "vector", "unroll") if kernel.reduces_innermost else ("block", "unroll")
    return ("block", "vector", "unroll") if len(kernel.loops) == 1 else ("block", "vector")


def _vectors(kernel: Kernel, target: str) -> dict[str, tuple[int, ...]]:
    if target == "cpu" or "vector" not in _names(kernel, target):
        return {}
    from gpusched.emit.skeleton.source_lines import widest

    return {"vector": tuple(n for n in SENSIBLE["cuda"]["vector"] if n <= widest(kernel))}


def defaults(kernel: Kernel, target: str) -> Options:
    """Return what the compiler chooses, in words that can be chosen.

    Examples
    --------
    >>> from gpusched.emit.choices import defaults
    >>> from gpusched.emit.kernel import Access, Input, Output
    >>> one = (Access.UNIT,)
    >>> copy = Kernel((Input("float64", one),), (), (), (Output(0, "float64", one),), ("map",))
    >>> defaults(copy, "cuda")
    Options(block=256, vector=2, unroll=4)
    """
    plain = replace(kernel, options=Options())
    if target == "cpu":
        values = {"vector": vector_bits(plain), "block": hostloops.block(plain)}
    else:
        from gpusched.emit.skeleton import source_lines
        from gpusched.emit.skeleton.reduction import rows_at_once

        rows = "reduce" in kernel.loops and not kernel.reduces_innermost
        repeated = rows_at_once(plain) if rows else source_lines.unroll(plain)
        values = {
            "block": source_lines.threads(plain),
            "vector": source_lines.width(plain),
            "unroll": repeated,
        }
    return Options(**{name: values[name] for name in _names(kernel, target)})


def interleave(kernel: Kernel) -> int:
    """Return how many vectors a kernel's loop computes at once.

    Where one takes hundreds of instructions that wait for each other, as those of `exp` do, the
    processor does not look far enough ahead to begin the next one by itself: without,
    ``log(exp(a) + 1) * sin(a)`` takes 1.13 times as long (AMD EPYC).
    """
    return 4 if hostloops.is_heavy(kernel) else 0


def vector_bits(kernel: Kernel) -> int:
    """Return the bits of the vectors that a kernel's loop uses.

    Sums of light expressions wait for memory, which gives more when it is asked for half as much
    at a time: a tenth, measured on a processor with 512 bits. Those that compute in wider numbers
    than they read are not light.
    """
    if kernel.options.vector:
        return kernel.options.vector
    adds = bool(kernel.outputs) and all(output.combine == "add" for output in kernel.outputs)
    light = adds and not hostloops.is_heavy(kernel) and not _widens(kernel)
    return WIDEST // 2 if light else WIDEST


def _widens(kernel: Kernel) -> bool:
    read = [np.dtype(each.dtype).itemsize for each in kernel.inputs]
    made = [np.dtype(each.dtype).itemsize for each in kernel.statements]
    return max(made, default=0) > min(read, default=0)


def applied(kernel: Kernel, options: Options, target: str) -> Options:
    """Return of some choices those that make a difference to a kernel."""
    if options == Options():
        return options
    names = _names(kernel, target)
    return Options(**{name: value for name, value in asdict(options).items() if name in names})


def check_value(target: str, name: str, value: Any, values: tuple[int, ...], of: str) -> None:
    """Raise `ChoiceError` unless a value is one of some."""
    if type(value) is not int or value not in values:
        allowed = ", ".join(map(str, values))
        raise ChoiceError(f"{name}={value!r} for {of} on {target}: say one of {allowed}")


def check_names(kernel: Kernel, target: str, names: Any) -> None:
    """Raise `ChoiceError` for a name of what cannot be chosen."""
    if target not in TARGETS:
        raise ChoiceError(f"target {target!r}: say 'cpu' or 'cuda'")
    known = possible(kernel, target)
    for name in names:
        if name not in known:
            raise ChoiceError(
                f"{name} makes no difference to kernel {kernel.name} on {target}: there is "
                f"{', '.join(known)} to choose"
            )


def configured(setting: Any) -> dict[str, Options]:
    """Return what the configuration chooses for all kernels, by target.

    Parameters
    ----------
    setting
        ``gpusched.tuning.options``.

    Raises
    ------
    ChoiceError
        If it names what is no choice.

    Examples
    --------
    >>> from gpusched.emit.choices import configured
    >>> configured({"cuda": {"block": 128}})
    {'cuda': Options(block=128, vector=None, unroll=None)}
    """
    if not setting:
        return {}
    where = "gpusched.tuning.options"
    if not isinstance(setting, dict) or not setting.keys() <= set(TARGETS):
        raise ChoiceError(f"{where} is {setting!r}: say such as {{cuda: {{block: 128}}}}")
    for each, values in setting.items():
        for name, value in (values or {}).items():
            if name not in SENSIBLE[each]:
                known = ", ".join(SENSIBLE[each])
                raise ChoiceError(f"{where} has {name!r} for {each}: there is {known} to choose")
            check_value(each, name, value, SENSIBLE[each][name], where)
    return {target: Options(**values) for target, values in setting.items() if values}


def words(options: Options) -> str:
    """Return choices in words.

    Examples
    --------
    >>> from gpusched.emit.choices import words
    >>> words(Options(block=128, vector=4))
    'block 128, vector 4'
    """
    return ", ".join(f"{name} {value}" for name, value in asdict(options).items() if value)
