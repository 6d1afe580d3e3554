"""What the tests of explanations share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from gpusched import enable


@pytest.fixture(autouse=True)
def everything_fuses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Record every chunk however small, with call sites noted and the profile kept aside."""
    folder: Path = tmp_path_factory.getbasetemp() / "cache"
    settings = {
        "gpusched.fusion.minimum-elements": 0,
        "gpusched.fusion.strict": True,
        "gpusched.fusion.cache-directory": str(folder),
    }
    with dask.config.set(settings), enable():
        yield
