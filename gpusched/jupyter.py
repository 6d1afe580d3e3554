"""What ``%load_ext gpusched`` brings to Jupyter and IPython: two magics."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from gpusched.files import why_not_written


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%gpusched_profile`` and ``%gpusched_explain``; called by ``%load_ext gpusched``."""

    def gpusched_profile(line: str, cell: str | None = None) -> Any:
        """Run the cell, and show one timeline of all that it did.

        ``%%gpusched_profile -n found -o profile.html`` also names the profile, and writes it as
        HTML, or as a trace for Perfetto where the file ends in .json.
        """
        return _profile(shell, line, cell)

    def gpusched_explain(line: str) -> Any:
        """Explain the arrays that an expression gives, without computing them.

        ``%gpusched_explain (x + 1).mean()``
        """
        return _explain(shell, line)

    shell.register_magic_function(gpusched_profile, "line_cell")
    shell.register_magic_function(gpusched_explain, "line")


def _profile(shell: Any, line: str, cell: str | None) -> Any:
    """Run a cell, or a line, and return its profile, which is shown."""
    import gpusched

    options, code = _options(line) if cell is not None else (_Options(), line)
    if cell is not None and code:
        raise _usage(
            f"%%gpusched_profile takes no {code!r}: write the code below it, and a name for the "
            f"profile as -n {code}"
        )
    with gpusched.profile() as found:
        # An error is shown by the shell.
        ran = shell.run_cell(cell if cell is not None else code, store_history=False)
    if options.name:
        shell.user_ns[options.name] = found
    problem = _write(found, options.output) if options.output else ""
    if not ran.success:
        problem = "the profiled cell failed; its profile is of what ran until then"
    if problem:
        from IPython.display import display

        display(found)
        raise _usage(problem)
    return found


class _Options(argparse.Namespace):
    output: str = ""
    name: str = ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise _usage(f"%%gpusched_profile: {message}")


def _options(line: str) -> tuple[_Options, str]:
    parser = _Parser(prog="%%gpusched_profile", add_help=False)
    parser.add_argument("-o", "--output", default="")
    parser.add_argument("-n", "--name", default="")
    try:
        words = shlex.split(line)
    except ValueError as error:
        parser.error(f"cannot read {line}: {error}")
    options, rest = parser.parse_known_args(words, namespace=_Options())
    unknown = next((word for word in rest if word.startswith("-")), None)
    if unknown is not None:
        parser.error(f"there is no option {unknown}; there are -n NAME and -o FILE")
    if options.name and not options.name.isidentifier():
        parser.error(f"-n {options.name} is not the name of a variable")
    problem = why_not_written(options.output, (".html", ".json")) if options.output else ""
    if problem:
        parser.error(f"-o {options.output}: {problem}")
    return options, " ".join(rest)


def _write(found: Any, path: str) -> str:
    """Write a profile; return why that cannot be done, or nothing."""
    try:
        found.write(path)
    except OSError as error:
        return f"the profile cannot be written to {path}: {error.strerror}"
    return ""


def _explain(shell: Any, line: str) -> Any:
    """Explain the arrays that an expression gives."""
    import gpusched

    line = line.strip()
    if not line:
        raise _usage("%gpusched_explain takes an expression, such as %gpusched_explain x.sum()")
    # As a cell of its own, so that the explanation can show the line.
    file = shell.compile.cache(line, shell.execution_count)
    code = compile(line, file, "eval")
    return gpusched.explain(eval(code, shell.user_global_ns, shell.user_ns))


def _usage(message: str) -> Exception:
    from IPython.core.error import UsageError

    return UsageError(message)
