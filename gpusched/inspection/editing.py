"""`ExplainedKernel.edit`: a kernel's source in a file of the user's."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpusched.editing.edited import Edited, edited_file

if TYPE_CHECKING:
    from gpusched.inspection.kernel_listings import ExplainedKernel


class EditorError(RuntimeError):
    """An editor was asked for, and there is none to open; the message says what to do."""


def edit(kernel: ExplainedKernel, path: str | Path | None, target: str, editor: bool,
         tolerance: float | None, overwrite: bool) -> Edited:  # fmt: skip
    """Do what `ExplainedKernel.edit` says."""
    sources = {"cpu": "source", "cuda": "cuda_source"}
    if target not in sources:
        raise ValueError(f"target {target!r}: say 'cpu' or 'cuda'")
    command = _command() if editor else []
    file = Path(path or f"{kernel.name}{'.cuda' * (target == 'cuda')}.py").absolute()
    if file.exists() and not overwrite:
        raise FileExistsError(
            f"{file} is there already: gpusched.override(kernel, {str(file)!r}) takes it as it is; "
            "give another path, or overwrite=True"
        )
    found = edited_file(kernel.kernel.original or kernel.kernel, file, target, tolerance)
    file.write_text(getattr(kernel, sources[target]))
    if command:
        subprocess.run([*command, str(file)], check=True)
        found.apply()
    return found


def _command() -> list[str]:
    """Return the user's editor, as words of a command.

    Raises `EditorError` if none is set, or there is no terminal to open it in.
    """
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        raise EditorError("neither VISUAL nor EDITOR is set: set one, or leave out editor=True")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise EditorError(
            "no terminal to open an editor in: leave out editor=True, change the file at .path, "
            "and call .apply()"
        )
    return command
