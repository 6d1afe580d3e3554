"""What is measured, or why it could not be: a program does not end those after it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any


def or_error(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a row's figures, or the error that there was instead of them."""
    try:
        return measure()
    except Exception as error:  # noqa: BLE001  The report is about it.
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:300]}
