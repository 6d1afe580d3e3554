"""Certificates for the encrypted connections of one cluster.

All of a cluster's processes share one certificate: who holds it and its key may join, run code and
read data, and nobody else may. distributed checks that a peer's certificate comes from the
cluster's own authority (CA), and not under which name it is reached; other programs, such as
browsers and Prometheus, check the names too.
"""

from __future__ import annotations

import datetime
import importlib
import ipaddress
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distributed.security import Security

from gpusched import installing
from gpusched.files import write_whole

CA, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
ALWAYS = ("localhost", "127.0.0.1")
"""Names that every certificate holds."""

_LONGEST = 36500
_ROLES = ("client", "scheduler", "worker")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.IGNORECASE)


def create(
    folder: str | Path,
    hosts: Iterable[str] = (),
    days: int = 365,
    *,
    force: bool = False,
) -> Security:
    """Make an authority (CA), and a certificate of it for all processes of a cluster.

    The authority's key is thrown away: nobody can make further certificates that are accepted.
    Raises `ModuleNotFoundError` if the library ``cryptography`` is missing; `ValueError` if a host
    is not a name or address, or the days are out of range; `FileExistsError` if the folder holds
    certificates, and they are not to be replaced; `PermissionError` if others can enter a folder
    that holds files already.

    Parameters
    ----------
    folder
        Where ``ca.pem``, ``cert.pem`` and ``key.pem`` are written. It is made if there is none.
        The user alone can enter it, and read the key.
    hosts
        Names and IP addresses of the cluster's machines. ``localhost`` and ``127.0.0.1`` are added.
    days
        How long the certificates are valid.
    force
        Whether certificates in the folder are replaced. Processes that have read the old ones do
        not get on with those that read the new ones.

    Returns
    -------
    distributed.Security
        For schedulers, workers and clients; it refuses connections that are not encrypted.

    Examples
    --------
    >>> import os, tempfile
    >>> from gpusched.cluster import certificates
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     security = certificates.create(folder, hosts=["node1", "10.0.0.1"])
    ...     sorted(os.listdir(folder)), security.require_encryption
    (['ca.pem', 'cert.pem', 'key.pem'], True)
    """
    authority = _authority()
    names = host_names(hosts)
    if not 1 <= days <= _LONGEST:
        raise ValueError(f"certificates cannot be valid for {days} days: choose 1 to {_LONGEST}")
    place = Path(folder).absolute()
    _prepare(place, force)
    made = authority.issue(names, days)
    write_whole(place / KEY, made.key, 0o600)
    write_whole(place / CERTIFICATE, made.certificate, 0o644)
    write_whole(place / CA, made.ca, 0o644)
    return _security(place)


def load(folder: str | Path) -> Security:
    """Read the certificates that `create` has made.

    Parameters
    ----------
    folder
        Where ``ca.pem``, ``cert.pem`` and ``key.pem`` are.

    Returns
    -------
    distributed.Security
        For schedulers, workers and clients; it refuses connections that are not encrypted.

    Raises
    ------
    ModuleNotFoundError
        If the library ``cryptography`` is missing.
    FileNotFoundError
        If one of the files is missing.
    PermissionError
        If one of the files cannot be read.
    ValueError
        If a certificate is not valid now, is damaged, or does not belong to the others, or if every
        user of this machine can read the key.

    Examples
    --------
    >>> import tempfile
    >>> from gpusched.cluster import certificates
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = certificates.create(folder)
    ...     certificates.load(folder).require_encryption
    True
    """
    place = Path(folder).absolute()
    _check(place)
    return _security(place)


def settings(folder: str | Path) -> dict[str, str | bool]:
    """Return dask's settings that make all connections of a process use a folder's certificates.

    The files are not read: the folder may exist only where the process runs.

    Examples
    --------
    >>> from gpusched.cluster import certificates
    >>> found = certificates.settings("/shared/certificates")
    >>> found["distributed.comm.tls.client.cert"]
    '/shared/certificates/cert.pem'
    """
    place = Path(folder).absolute()
    found: dict[str, str | bool] = {
        "distributed.comm.require-encryption": True,
        "distributed.comm.default-scheme": "tls",
        "distributed.comm.tls.ca-file": str(place / CA),
    }
    for role in _ROLES:
        found[f"distributed.comm.tls.{role}.cert"] = str(place / CERTIFICATE)
        found[f"distributed.comm.tls.{role}.key"] = str(place / KEY)
    return found


def check_complete(folder: str | Path) -> None:
    """Refuse a folder that lacks one of the files of `create`.

    Raises `ValueError` if it does.
    """
    for name in (CA, CERTIFICATE, KEY):
        file = Path(folder, name)
        if not file.exists():
            raise ValueError(_no_file(file))


def check_key(file: str | Path | None) -> None:
    """Refuse a private key that every user of this machine can read.

    Its group may, as in containers where secrets belong to one. Raises `ValueError` if they can.
    """
    if not file or not os.path.exists(file):
        return
    mode = stat.S_IMODE(os.stat(file).st_mode)
    if mode & 0o007:
        raise ValueError(
            f"{file} is a private key that every user of this machine can get at (mode {mode:04o}),"
            f" and with it join the cluster and run code: close it with `chmod 600 {file}`, and "
            "make new certificates if somebody may have read it"
        )


def host_names(hosts: Iterable[str]) -> list[str]:
    """Return the names that a certificate for some hosts holds, each once.

    Raises `ValueError` if one is neither a name nor an IP address.

    Examples
    --------
    >>> from gpusched.cluster.certificates import host_names
    >>> host_names(["node1", "10.0.0.1", "localhost"])
    ['localhost', '127.0.0.1', 'node1', '10.0.0.1']
    """
    names = [name.strip() for name in hosts]
    for name in names:
        if not (_is_address(name) or _is_name(name)):
            raise ValueError(
                f"{name!r} is neither a host's name nor an IP address: write names such as "
                f"node1, node1.example.org, *.example.org, 10.0.0.1 or fd00::1, without a port"
            )
    return list(dict.fromkeys([*ALWAYS, *names]))


def valid_until(folder: str | Path) -> datetime.datetime:
    """Return when the certificates in a folder expire, in UTC.

    Examples
    --------
    >>> import tempfile
    >>> from gpusched.cluster.certificates import create, valid_until
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = create(folder)
    ...     valid_until(folder).tzname()
    'UTC'
    """
    place = Path(folder).absolute()
    authority = _authority()
    found: list[datetime.datetime] = [
        authority.expiry(_read(place / name)) for name in (CA, CERTIFICATE)
    ]
    return min(found)


def _authority() -> Any:
    try:
        return importlib.import_module("gpusched.cluster.authority")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise ModuleNotFoundError(
            f"certificates take the library cryptography: {installing.command('tls')}",
            name="cryptography",
        ) from None


def _check(folder: Path) -> None:
    authority = _authority()
    check_key(folder / KEY)
    ca, certificate, key = (_read(folder / name) for name in (CA, CERTIFICATE, KEY))
    file = folder / CA
    try:
        authority.check_dates(ca)
        file = folder / CERTIFICATE
        authority.check_dates(certificate)
        if not authority.is_issued_by(certificate, ca):
            raise ValueError(f"does not come from the authority of {CA} beside it")
        file = folder / KEY
        if not authority.is_key_of(key, certificate):
            raise ValueError(f"is not the key of {CERTIFICATE} beside it")
    except ValueError as error:
        raise ValueError(
            f"{file} {error}: make new ones with `gpusched certificates {folder} --force`"
        ) from None


def _security(folder: Path) -> Security:
    files = {f"tls_{role}_cert": str(folder / CERTIFICATE) for role in _ROLES}
    files |= {f"tls_{role}_key": str(folder / KEY) for role in _ROLES}
    return Security(require_encryption=True, tls_ca_file=str(folder / CA), **files)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_name(name: str) -> bool:
    labels = name.removeprefix("*.").split(".")
    return (
        len(name) <= 253
        and all(_LABEL.fullmatch(label) for label in labels)
        # A number at the end is a mistyped address.
        and not labels[-1].isdecimal()
    )


def _prepare(folder: Path, force: bool) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(f"{folder} cannot be a folder: a file is in the way") from None
    except OSError as error:
        raise type(error)(f"cannot make the folder {folder}: {error.strerror}") from None
    there = [name for name in (CA, CERTIFICATE, KEY) if os.path.lexists(folder / name)]
    if there and not force:
        raise FileExistsError(
            f"{folder} holds {', '.join(there)} already: name another folder, or replace them "
            f"with --force (force=True)"
        )
    if any(folder.iterdir()) and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        # Not closed here: others may use what else is in it.
        raise PermissionError(
            f"others can enter {folder}: name a new folder, or close it with `chmod 700 {folder}`"
        )
    folder.chmod(0o700)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(_no_file(file)) from None
    except PermissionError:
        raise PermissionError(
            f"{file} cannot be read: its owner alone may (run as that user, or make other ones)"
        ) from None


def _no_file(file: Path) -> str:
    return (
        f"there is no {file}: make it with `gpusched certificates {file.parent}`, or copy the "
        f"folder from the machine where it was made"
    )
