"""The lists of tests that are the processor's name tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.placing.host_only import COUNTED, LEFT_OUT
from tests.placing.on_gpu import is_count

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("name", [*LEFT_OUT, *COUNTED])
def test_it_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    function = function.partition("[")[0]
    text = (TESTS / file).read_text("utf-8")
    assert f"def {function}" in text or f"class {function}" in text


def test_counts_are_what_is_asserted_or_unpacked_and_no_other_errors() -> None:
    for wrong in ([], [1, 2]):
        with pytest.raises(ValueError, match="unpack") as unpacked:
            (_,) = wrong
        assert is_count(unpacked.value)
    assert is_count(AssertionError())
    assert not is_count(ValueError("operands could not be broadcast together"))
