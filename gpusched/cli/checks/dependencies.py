"""Whether the installed dependencies are releases that gpusched was tested with."""

from __future__ import annotations

from gpusched.cli.checks.finding import Finding


def tested() -> Finding:
    """Compare the installed releases with the bounds of pyproject.toml."""
    from gpusched.adapters.tested_releases import outside

    found = list(outside())
    if not found:
        return Finding.ok("dask, distributed, numba and others are releases that were tested")
    text = "; ".join(map(str, found))
    remedy = " and ".join(each.remedy for each in found)
    if all(each.newer for each in found):
        return Finding.warning(text, f"{remedy}; or report what fails with these releases")
    return Finding.failure(text, remedy)
