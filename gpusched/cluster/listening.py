"""Where servers of this machine listen: checked by listening there, before anything starts."""

from __future__ import annotations

import errno
import socket
from typing import Any

from distributed.comm.addressing import parse_host_port
from distributed.core import collect_causes
from distributed.utils import clean_dashboard_address, parse_ports


class PortError(RuntimeError):
    """A port is taken, or this user may not listen on it."""


def check_host(what: str, host: str | None) -> None:
    """Refuse an address that this machine cannot listen on.

    Raises `ValueError` if it is empty, which would be all of this machine's, cannot be read, or is
    not an address of this machine.

    Parameters
    ----------
    what
        The argument or the option, for the message.
    host
        A name or an address, perhaps with a protocol before and a port behind it. None is the
        default.

    Examples
    --------
    >>> from gpusched.cluster.listening import check_host
    >>> check_host("host", "127.0.0.1")
    >>> check_host("host", "")
    Traceback (most recent call last):
        ...
    ValueError: the host to listen on is empty, as an unset variable may be: name an address such \
as 127.0.0.1, or 0.0.0.0 to let every machine of the network connect
    """
    if host is None:
        return
    if not host.strip():
        raise ValueError(
            "the host to listen on is empty, as an unset variable may be: name an address such as "
            "127.0.0.1, or 0.0.0.0 to let every machine of the network connect"
        )
    try:
        name, _ = parse_host_port(host, 0)
    except ValueError:
        problem = "write HOST or HOST:PORT; IPv6 takes brackets, as in [::1]"
    else:
        problem = _problem(name, 0)
    if problem:
        raise ValueError(
            f"{what} cannot be {host!r} ({problem}): name an address of this machine, such as "
            "127.0.0.1, or 0.0.0.0 for all of them"
        )


def check_dashboard_address(what: str, address: Any) -> None:
    """Refuse what is not an address to show a dashboard at.

    Raises `ValueError` if it cannot be read, or this machine cannot listen there. Where another
    process does, distributed takes another port.

    Parameters
    ----------
    what
        The argument or the option, for the message.
    address
        A port, a string such as ``"127.0.0.1:8787"``, or a list of those.

    Examples
    --------
    >>> from gpusched.cluster.listening import check_dashboard_address
    >>> check_dashboard_address("dashboard_address", "127.0.0.1:8787")
    >>> check_dashboard_address("dashboard_address", "127.0.0.1:dashboard")
    Traceback (most recent call last):
        ...
    ValueError: dashboard_address cannot be '127.0.0.1:dashboard' (its port is not a whole number)\
: write an address such as ':8787' or '127.0.0.1:8787'
    """
    problem = ""
    try:
        for each in clean_dashboard_address(address):
            if not 0 <= each["port"] < 2**16:
                problem = "its port is not one from 0 to 65535"
            else:
                problem = problem or _problem(each["address"], each["port"], taken=False)
    except (NameError, TypeError, ValueError):  # A name that distributed has not assigned.
        bracket = "[" in str(address)
        problem = "IPv6 is not read here" if bracket else "its port is not a whole number"
    if problem:
        raise ValueError(
            f"{what} cannot be {address!r} ({problem}): write an address such as ':8787' "
            "or '127.0.0.1:8787'"
        )


def check_free(flag: str, ports: str | int | None, host: str | None) -> None:
    """Check that a server could listen on a port, or on one of a range.

    Raises `PortError` if not.

    Parameters
    ----------
    flag
        The argument or the option that names the ports, for the message.
    ports
        A port, a range such as ``"3000:3026"``, or None for any that is free.
    host
        The address, as `check_host` takes it.

    Examples
    --------
    >>> import socket
    >>> from gpusched.cluster.listening import check_free
    >>> with socket.create_server(("127.0.0.1", 0)) as server:
    ...     check_free("--worker-port", server.getsockname()[1], "127.0.0.1")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    gpusched.cluster.listening.PortError: port ... of 127.0.0.1 is taken: choose another by \
--worker-port (0 for any that is free)
    """
    name = parse_host_port(host, 0)[0] if host else ""
    for port in parse_ports(ports):
        error = _refused(name, port or 0)
        if error is None:
            return
        problem = _port_problem(error, str(ports), host, flag) or _words(error, name)
    raise PortError(problem) from error


def why_not_started(error: BaseException, port: str, host: str | None) -> str:
    """Return why a scheduler did not start: the first cause, or what is wrong with its port.

    Parameters
    ----------
    error
        What starting it raised.
    port, host
        What it was to listen on; the port is empty where it is not known, or 0.

    Examples
    --------
    >>> import errno, os
    >>> from gpusched.cluster.listening import why_not_started
    >>> error = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    >>> why_not_started(error, "9000", "127.0.0.1")
    'port 9000 of 127.0.0.1 is taken: choose another by --port (0 for any that is free)'
    """
    causes = [error, *collect_causes(error)]
    known = port not in ("", "0")
    told = (_port_problem(each, port, host, "--port") for each in causes if known)
    found = next(filter(None, told), "")
    return found or str(causes[-1]) or type(causes[-1]).__name__


def _port_problem(error: BaseException, port: str, host: str | None, flag: str) -> str:
    """Return what is wrong with a port, and the remedy; empty where the error is another one."""
    where = f"port {port.replace(',', ' or ')}" + (f" of {host}" if host else "")
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            doctor = "; gpusched doctor says which process has it"
            known = doctor if port in ("8786", "8787") else ""
            return f"{where} is taken: choose another by {flag} (0 for any that is free){known}"
        case errno.EACCES:
            return (
                f"this user may not listen on {where}: choose another by {flag} (from 1024, or 0 "
                "for any that is free)"
            )
    return ""


def _problem(host: str, port: int, taken: bool = True) -> str:
    """Return why this machine cannot listen at an address; empty if it can."""
    error = _refused(host, port)
    if error is None or (error.errno == errno.EADDRINUSE and not taken):
        return ""
    return _words(error, host)


def _words(error: OSError, host: str) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine"
    if error.errno == errno.EACCES:
        return "this user may not listen on its port; those from 1024 are for all users"
    return str(error.strerror)


def _refused(host: str, port: int) -> OSError | None:
    """Return what the system says to a server at an address; None if one could be there."""
    try:
        places = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        return error
    except UnicodeError:
        return OSError(errno.EINVAL, "it cannot be the name of a machine")
    errors = [_bind(place[0], place[4]) for place in places]
    # Of a name's addresses, servers leave out those that this machine does not have.
    return None if None in errors else errors[0]


def _bind(family: int, place: Any) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            # As servers do it, so that connections that have ended do not keep a port.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(place)
    except OSError as error:
        return error
    return None
