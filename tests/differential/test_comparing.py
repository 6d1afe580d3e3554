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


def test_missing_and_additional_warnings_are_differences() -> None:
    warned = frozenset([("RuntimeWarning", "divide by zero encountered in divide")])
    case = Case("functions", 0, "def main(observe):\n    b = 0\n", "sync")
    plain, silent = (Run({"result": Outcome(1.0, warned=w)}, {}) for w in (warned, frozenset()))
    assert differences(case, plain, silent)
    assert differences(case, silent, plain)
    assert not differences(case, plain, plain)


def test_the_masked_constant_is_compared_by_its_mask() -> None:
    masked, given = run(np.ma.masked, LARGE), run(np.ma.masked_array(1.0, mask=False), LARGE)
    assert not differences(LOOSE, masked, masked)
    assert differences(LOOSE, masked, given)
