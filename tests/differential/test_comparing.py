"""What a difference is, and what is rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.differential import programs
from tests.differential.case import Case
from tests.differential.comparing import differences
from tests.differential.running import Outcome, Run

LOOSE = Case("programs", 0, "", "sync", loose=True)
LARGE = np.array([2.0**63, -(2.0**63), 1, 2])


def run(value: Any, given: np.ndarray) -> Run:
    return Run({"result": Outcome(value)}, {"input a": given})


@pytest.mark.parametrize(
    ("case", "given", "close"),
    [(LOOSE, LARGE, True), (LOOSE, LARGE[2:], False), (replace(LOOSE, loose=False), LARGE, False)],
)
def test_sums_that_cancel_round_as_their_terms_do(
    case: Case, given: np.ndarray, close: bool
) -> None:
    one, other = run(np.float32(0.75), given), run(np.float32(0), given)
    assert (not differences(case, one, other)) == close


def test_the_largest_integers_are_not_added_up_as_floats_where_sums_must_be_exact() -> None:
    case = programs.generate(7123)
    assert not case.loose
    assert "iinfo('i8')" in case.source
    assert "mean(b" not in case.source


def test_warnings_of_values_that_nothing_uses_may_be_missing_but_no_others() -> None:
    head = "def main(observe):\n    b = 0\n\n\ndef f(x):\n    t = 1 / x\n    return "
    warned = frozenset([("RuntimeWarning", "divide by zero encountered in divide")])
    for returned, allowed in (("x", True), ("t", False)):
        case = Case("functions", 0, head + returned, "sync")
        plain, silent = (Run({"result": Outcome(1.0, warned=w)}, {}) for w in (warned, frozenset()))
        assert (not differences(case, plain, silent)) == allowed
        assert differences(case, silent, plain)
