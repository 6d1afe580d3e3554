"""Choices between numbers by vectors' comparisons are those of the numbers, and raise no error."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from gpusched.backends import scalar_choices, silent_nans
from gpusched.emit.floatingpoint import HAS_FLAGS, IS_X86, take
from tests.backends.test_silent_nans import COMPARISONS, NUMBERS, TYPES, called, raises
from tests.record.recording import check

CONDITIONS = {
    "%p": "",
    "%both": "%both = and i1 %p, %q",
    "%either": "%either = or i1 %q, %p",
    "%apart": "%apart = xor i1 %p, %q",
    "%not": "%not = xor i1 %p, true",
    "%chosen": "%chosen = select i1 %p, i1 true, i1 %q",
    "%joined": "%joined = select i1 %q, i1 %p, i1 false",
    "%other": "%other = and i1 %p, %flag",
    "%deep": "%inner = or i1 %q, %flag\n      %deep = select i1 %inner, i1 %p, i1 false",
}
"""Lines that make a condition of two comparisons and a flag, by its name."""


def module(comparison: str, kind: str, condition: str, result: str) -> str:
    """Return a function of two numbers to choose by, and of one, into a choice and a conversion."""
    return str(llvm.parse_assembly(f"""
    define void @call(ptr %xs, ptr %ys, ptr %out) {{
      %second = getelementptr {kind}, ptr %xs, i64 1
      %x = load {kind}, ptr %xs, align 4
      %y = load {kind}, ptr %second, align 4
      %a = load {result}, ptr %ys, align 4
      %flag = fcmp oeq {result} %a, 3.0
      %p = fcmp {comparison} {kind} %x, %y
      %q = fcmp uno {kind} %x, %y
      {CONDITIONS[condition]}
      %number = select i1 {condition}, {result} %a, {result} 0.5
      %conversion = uitofp i1 {condition} to {result}
      %next = getelementptr {result}, ptr %out, i64 1
      store {result} %number, ptr %out, align 1
      store {result} %conversion, ptr %next, align 1
      ret void
    }}
    """))  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("result", ["float", "double"])
def test_choices_are_those_of_single_numbers(kind: str, result: str, condition: str) -> None:
    numbers = np.array([*NUMBERS, -0.0], TYPES[kind])
    for comparison in COMPARISONS:
        text = module(comparison, kind, condition, result)
        changed = scalar_choices.as_vectors(text)
        assert f"select i1 {condition}, {result}" not in changed
        assert "uitofp" not in changed
        assert f"%p = fcmp {comparison}" not in changed
        silent = silent_nans.replaced(changed)
        one, other = called(text), called(silent)
        for pair in itertools.product(numbers, numbers):
            for chosen in (np.nan, -0.0, 3.0):
                given = np.array(pair), np.array([chosen], TYPES[result]), 2, TYPES[result]
                assert other(*given).tobytes() == one(*given).tobytes(), (text, pair)
                assert not (IS_X86 and raises(other, *given)), (text, pair)


@pytest.mark.parametrize("comparison", ["oeq", "une", "ord", "uno"])
def test_choices_by_what_raises_nothing_stay(comparison: str) -> None:
    for condition in CONDITIONS:
        text = module(comparison, "double", condition, "double")
        assert scalar_choices.as_vectors(text) == text


def test_a_condition_that_something_else_needs_is_kept() -> None:
    text = module("olt", "double", "%both", "double")
    needing = "  %kept = zext i1 %both to i8\n  store i8 %kept, ptr %out\n  ret void"
    changed = scalar_choices.as_vectors(text.replace("  ret void", needing))
    assert "%both = and i1 %p, %q" in changed
    assert "%p = fcmp olt double" in changed
    assert "fcmp olt <2 x double>" in changed


def test_names_of_one_function_are_not_those_of_another() -> None:
    one = module("olt", "double", "%p", "double")
    other = module("oeq", "double", "%p", "double").replace("@call", "@other")
    other = other.partition("define")[2]
    changed = scalar_choices.as_vectors(one + "\ndefine" + other)
    first, second = changed.split("\ndefine")[-2:]
    assert "select i1 %p" not in first
    assert second == other


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "chosen": lambda a: np.where(a * 2 > 0.5, a, 1 - a),
    "chosen by two": lambda a: np.where((a * 2 > 0.5) & (a <= 1), a, a * a),
    "chosen by either": lambda a: np.where((a * 2 > 0.5) | ~(a >= -1), a, a * a),
    "converted": lambda a: (a * 2 > 0.5).astype(a.dtype) + (a < 1),
    "limited": lambda a: np.clip(a * 2, -1.0, 1.0),
    "greater": lambda a: np.maximum(a * 2, 0.5),
    "less": lambda a: np.fmin(a * 2, 0.25),
    "of another dtype": lambda a: np.where(a * 2 > 0.5, np.float64(3.5), np.float64(-0.0)),
    "signs": lambda a: np.sign(a * 2),
    "running": lambda a: np.maximum.accumulate(a * 2, axis=-1),
    "between points": lambda a: np.maximum(np.interp(a * 2, [-1.0, 0.0, 1.0], [2.0, 0.0, 1.0]), a),
    "placed": lambda a: np.searchsorted([-1.0, 0.0, 0.0, 1.0], a * 2, "right"),
}
"""What kernels compute one number at a time where elements are not beside each other."""


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_choose_as_numpy_and_report_no_nan(dtype: str, name: str) -> None:
    numbers = np.array([*NUMBERS, -0.0, 0.25, 0.5, 7.0], dtype)
    array = np.random.default_rng(5).choice(numbers, (3, 140))[:, 1::2]
    take()
    check(FUNCTIONS[name], array, errors="warn")
    assert not take()


@pytest.mark.skipif(not HAS_FLAGS, reason="a processor whose flags are not read")
def test_kernels_that_choose_report_overflow() -> None:
    array = np.array([1.0, np.nan, 1e308, 2.0] * 9)[::2]
    take()
    check(FUNCTIONS["greater"], array, errors="warn")
    assert take()
