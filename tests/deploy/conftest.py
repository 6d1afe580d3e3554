"""What the tests of deploy/ share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.jobs import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Give a folder for jobs; afterwards nothing may be left of them."""
    site = Site(tmp_path)
    yield site
    assert site.left() == []
