"""Files that other processes read while they are written."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds the whole of it or none; for one writer at a time.

    Examples
    --------
    >>> import tempfile
    >>> from gpusched.files import write_whole
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "code"), "0")
    ...     [path.name for path in Path(folder).iterdir()]
    ['code']
    """
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)
