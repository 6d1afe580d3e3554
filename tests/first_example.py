"""Run README's first example with another Python, and compare what it prints.

``python tests/first_example.py PYTHON``; `make wheels` runs it with the Python of an environment
that holds nothing but the wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```output\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main(python: str) -> None:
    """Exit with an error that shows both outputs if they differ."""
    found = _EXAMPLE.search(README.read_text())
    if found is None:
        sys.exit(f"{README} has no Python block that is followed by an output block")
    code, expected = found.groups()
    with tempfile.TemporaryDirectory() as folder:
        # Isolated and elsewhere, so that nothing is imported from the checkout.
        done = subprocess.run(
            [Path(python).absolute(), "-I", "-c", code],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    if done.stdout != expected:
        sys.exit(f"README's first example printed\n{done.stdout}instead of\n{expected}")


if __name__ == "__main__":
    main(*sys.argv[1:])
