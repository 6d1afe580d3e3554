"""Tables of text."""

from __future__ import annotations

import pytest

from gpusched.rendering import text


def test_columns_are_aligned_and_nothing_follows_the_last() -> None:
    told = text.aligned([("a", "1", "x"), ("bb", "22", "")], right=(1,))
    assert told == "a    1  x\nbb  22"


def test_cells_are_one_line_that_every_terminal_can_show() -> None:
    told = text.aligned([("a\nb\udcff", "ö")])
    assert told == "a\\nb\\udcff  ö"
    told.encode()


def test_rows_must_be_equally_long() -> None:
    with pytest.raises(ValueError, match="shorter"):
        text.aligned([("a", "b"), ("c",)])


def test_tables_have_titles_and_fold_long_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_WIDTH", 20)
    told = text.titled(("One", ("n", "what"), [("1", 30 * "x")]), ("Two", ("m",), [("[b]",)]))
    assert told.splitlines()[0] == "One"
    assert "".join(told.split()).count("x") == 30
    assert max(map(len, told.splitlines())) <= 20
    assert "[b]" in told
