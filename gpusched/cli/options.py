"""Flags that several commands share: dask's own, adopted, and those that are gpusched's."""

from __future__ import annotations

import copy
import difflib
import math
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from gpusched.cli.types import DEVICE_MEMORY_LIMIT
from gpusched.files import why_not_written

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OURS = (
    click.option(
        "--gpus",
        metavar="N|all|0,2|UUID,...",
        help="The GPUs that get a worker each: a number of them, all, or a list; one that is "
        "named twice, as in 0,0,1,1, is shared by two workers. [default: all there are]",
    ),
    click.option("--cpu", is_flag=True, help="CPU workers, even where there are GPUs."),
    click.option(
        "--device-memory-limit",
        type=DEVICE_MEMORY_LIMIT,
        metavar="SIZE",
        help="What results may take of a GPU's memory before they are spilled: bytes, '10 GiB', "
        "a fraction, or 0 for no limit. Workers that share a GPU share it.",
    ),
    click.option(
        "--pool", metavar="none|cupy|async|rmm", help="Where each worker's GPU memory comes from."
    ),
    click.option("--pool-size", metavar="SIZE", help="The size of that pool, as in '8 GiB'."),
    click.option(
        "--pin/--no-pin",
        default=None,
        help="Whether workers are bound to cores: to those near their GPU, or CPU workers to a "
        "slice each. [default: GPU workers are]",
    ),
    click.option(
        "--fuse/--no-fuse",
        default=None,
        help="Whether dask.array is fused that tasks compute within a worker. Graphs from a "
        "client are fused there. [default: --fuse]",
    ),
)


_SPELLINGS = {"--nworkers": "--workers", "--nthreads": "--threads"}
"""How all commands of gpusched spell what dask's commands spell otherwise."""


def worker_flags(function: _Function) -> _Function:
    """Add the flags that say what gpusched's workers are given; a decorator.

    Examples
    --------
    >>> import click
    >>> from gpusched.cli.options import worker_flags
    >>> @click.command()
    ... @worker_flags
    ... def start(**flags):
    ...     pass
    >>> [parameter.name for parameter in start.params][:3]
    ['gpus', 'cpu', 'device_memory_limit']
    """
    for option in reversed(_OURS):
        function = option(function)
    return function


_TLS_FILES = ("tls_ca_file", "tls_cert", "tls_key")

tls_flag = click.option(
    "--tls",
    type=click.Path(exists=True, file_okay=False),
    help="A folder of certificates, made by gpusched certificates.",
)


def certificate_files(flags: dict[str, Any]) -> dict[str, Any]:
    """Return flags with the files of the folder that ``--tls`` names, and without that flag.

    Raises `ValueError` if files are named, too, or the folder lacks one.

    Examples
    --------
    >>> from gpusched.cli.options import certificate_files
    >>> certificate_files({"tls": None, "tls_key": "key.pem"})
    {'tls_key': 'key.pem'}
    """
    from gpusched.cluster.certificates import CA, CERTIFICATE, KEY, check_complete

    others = {name: value for name, value in flags.items() if name != "tls"}
    folder = flags.get("tls")
    if folder is None:
        return others
    if any(others.get(name) for name in _TLS_FILES):
        raise ValueError(
            f"--tls {folder} is a folder with the certificate and its key, so leave out "
            f"--tls-ca-file, --tls-cert and --tls-key"
        )
    check_complete(folder)
    files = (os.path.join(folder, name) for name in (CA, CERTIFICATE, KEY))
    return others | dict(zip(_TLS_FILES, files, strict=True))


def adopted(
    command: click.Command, leave_out: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> list[click.Parameter]:
    """Return copies of another command's parameters.

    Parameters
    ----------
    command
        The other command.
    leave_out
        Names of parameters that are not taken over.
    defaults
        Default values that differ here, by name.

    Examples
    --------
    >>> from distributed.cli.dask_worker import main
    >>> from gpusched.cli.options import adopted
    >>> len(main.params) - len(adopted(main, ["dashboard_prefix"]))
    1
    """
    taken = [copy.copy(one) for one in command.params if one.name not in leave_out]
    for parameter in taken:
        if parameter.name in (defaults or {}):
            parameter.default = (defaults or {})[parameter.name]
        _respell(parameter)
        if parameter.name == "preload_argv":
            parameter.callback = _check_preloads
        if parameter.name == "scheduler":
            parameter.callback = _check_scheduler
    return taken


def _respell(parameter: click.Parameter) -> None:
    parameter.opts = [_SPELLINGS.get(spelling, spelling) for spelling in parameter.opts]
    if isinstance(parameter, click.Option) and parameter.help:
        for theirs, ours in _SPELLINGS.items():
            parameter.help = parameter.help.replace(theirs, ours)


def _check_preloads(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    from distributed.preloading import validate_preload_argv

    names = ", ".join(context.params.get("preload") or ())
    try:
        return validate_preload_argv(context, parameter, value)
    except click.UsageError as error:
        # distributed writes its message with a place that it leaves empty.
        if "%r" not in error.message:
            raise
        raise click.UsageError(
            f"{' '.join(value)!r} cannot be arguments of --preload {names}, which has no click "
            "command dask_setup: leave them out, or check how options are spelled",
            context,
        ) from None
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except Exception as error:  # noqa: BLE001
        # Whatever the module raises as it is imported.
        raise click.UsageError(f"cannot load --preload {names}: {_where(error)}") from None


def _where(error: Exception) -> str:
    """Return an error in words, with the line that raised it where the words have none."""
    if isinstance(error, OSError | ImportError):
        return str(error)
    told = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return told
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{told} ({last.filename}, line {last.lineno})"


def _check_scheduler(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse an option with a spelling error, which click gives to the first argument there is."""
    if isinstance(value, str) and value.startswith("-"):
        name = value.partition("=")[0]
        known = [spelling for each in context.command.params for spelling in each.opts]
        near = difflib.get_close_matches(name, known, n=1)
        raise click.NoSuchOption(name, possibilities=near, ctx=context)
    return value


def read_gpus(text: str | None, cpu: bool = False) -> Any:
    """Return what ``--gpus`` and ``--cpu`` ask for, as `gpusched.cluster.allocation` takes it.

    Raises `ValueError` if the text cannot be read, or the flags contradict each other.

    Examples
    --------
    >>> from gpusched.cli.options import read_gpus
    >>> read_gpus("0,2"), read_gpus(None), read_gpus(None, cpu=True)
    ([0, 2], None, 0)
    """
    from gpusched.workers.visible_gpus import parse_request

    if cpu and text is not None:
        raise ValueError("--cpu and --gpus exclude each other")
    if text is None:
        return 0 if cpu else None
    request = parse_request(text)
    if request == 0:
        raise ValueError("--gpus 0 asks for no GPU: use --cpu")
    return request


def check_worker_flags(flags: Mapping[str, Any]) -> None:
    """Check the flags of `worker_flags` as far as that takes no GPU.

    Raises `ValueError` if one cannot be read, or contradicts another.
    """
    from gpusched import config
    from gpusched.workers.pool import read_request

    of_gpus = ("device_memory_limit", "pool", "pool_size")
    given = [name for name in of_gpus if flags[name] is not None]
    if flags["cpu"] and given:
        flag = f"--{given[0].replace('_', '-')}"
        raise ValueError(f"{flag} {flags[given[0]]} has no meaning for CPU workers: leave it out")
    read_request(flags["pool"] or config.get("worker.pool"), flags["pool_size"])


def read_resources(text: str | None) -> dict[str, float] | None:
    """Read ``--resources``, such as ``"GPU=2 MEM=10e9"``.

    Raises `ValueError` if the text cannot be read.

    Examples
    --------
    >>> from gpusched.cli.options import read_resources
    >>> read_resources("GPU=2 MEM=10e9")
    {'GPU': 2.0, 'MEM': 10000000000.0}
    """
    if not text:
        return None
    found = {}
    for pair in text.replace(",", " ").split():
        name, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        # No task could ever have what is not a number, nor less than nothing.
        if not name or not 0 <= number < math.inf:
            raise ValueError(
                f"cannot read {pair!r} in --resources: write names and numbers, such as "
                f"'GPU=2 MEM=10e9'"
            )
        found[name] = number
    return found


def check_ports(flag: str, text: str | None) -> None:
    """Check a port, or a range of them such as ``"3000:3026"``.

    Raises `ValueError` if the text cannot be read.
    """
    from distributed.utils import parse_ports

    try:
        valid = all(port is None or 0 <= port < 2**16 for port in parse_ports(text))
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(
            f"cannot read {flag} {text!r}: write a port up to 65535, 0 for any, or a range such "
            f"as '3000:3026'"
        )


def check_written(flag: str, path: str | None) -> None:
    """Refuse a file that a command could not write, before it starts.

    Raises `ValueError` if it could not; an empty path names no file.
    """
    problem = why_not_written(path) if path else ""
    if problem:
        raise ValueError(f"cannot write {flag} {path}: {problem}")


_UCX = ("ucx", "ucxx")
_HOW_TO_UCX = "it comes with pip install distributed-ucxx-cu13 (or -cu12), on all machines"


def check_network(interface: str | None, protocol: str | None) -> None:
    """Check that the machine has the network interfaces, and distributed the protocols.

    Raises `ValueError` if it has not; the message names those there are.
    """
    from distributed.comm.registry import get_backend
    from distributed.utils import get_ip_interface

    for name in interface.split(",") if interface else ():
        get_ip_interface(name)
    for name in protocol.split(",") if protocol else ():
        scheme = name.removesuffix("://")
        try:
            get_backend(scheme)
        except ValueError as error:
            if scheme not in _UCX:
                raise
            raise ValueError(f"{error}: {_HOW_TO_UCX}") from error
