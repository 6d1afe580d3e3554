"""The job scripts in deploy/ are those that are submitted."""

from __future__ import annotations

import pytest

from tests.deploy.generated import FILES, printed
from tests.deploy.jobs import DEPLOY


@pytest.mark.parametrize("file", FILES)
def test_file_is_what_is_submitted(file: str) -> None:
    assert (DEPLOY / file).read_text() == printed(file), "run python -m tests.deploy.generated"
