"""A cluster's own certificate authority (CA): it signs one certificate, and checks it later.

Needs the library ``cryptography``, so nothing imports this file before certificates are asked for.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Machines whose clocks are behind by less than this accept new certificates.
_CLOCK_SKEW = datetime.timedelta(hours=1)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Issued:
    """An authority, and the one certificate that it has signed; all as PEM."""

    ca: bytes
    """The authority's certificate."""
    certificate: bytes
    """The certificate of the cluster's processes."""
    key: bytes
    """The key of that certificate."""


def issue(names: Sequence[str], days: int, now: datetime.datetime | None = None) -> Issued:
    """Make an authority and a certificate; nobody keeps the authority's key.

    Parameters
    ----------
    names
        Names and IP addresses that the certificate is for.
    days
        How long both are valid.
    now
        When that time begins. Default: now.

    Examples
    --------
    >>> from gpusched.cluster.authority import issue
    >>> issue(["localhost"], days=1).certificate.decode().splitlines()[0]
    '-----BEGIN CERTIFICATE-----'
    """
    begin = now or _now()
    dates = (begin - _CLOCK_SKEW, begin + datetime.timedelta(days=days))
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    # A name of its own for each, since issuers are looked up by name.
    issuer = _name(f"gpusched cluster CA {secrets.token_hex(8)}")
    ca = _builder(issuer, issuer, ca_key, dates, _ca_extensions())
    certificate = _builder(
        _name("gpusched cluster"), issuer, key, dates, _extensions(names, ca_key)
    )
    return Issued(
        ca=ca.sign(ca_key, hashes.SHA256()).public_bytes(_PEM),
        certificate=certificate.sign(ca_key, hashes.SHA256()).public_bytes(_PEM),
        key=_private(key),
    )


def expiry(certificate: bytes) -> datetime.datetime:
    """Return when a certificate expires, in UTC.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from gpusched.cluster.authority import expiry, issue
    >>> str(expiry(issue(["localhost"], 31, datetime(2030, 1, 1, tzinfo=UTC)).ca))
    '2030-02-01 00:00:00+00:00'
    """
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def check_dates(certificate: bytes) -> None:
    """Check that a certificate can be read and is valid now.

    Raises `ValueError` if not; the message is to follow the file's name.
    """
    try:
        read = x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise ValueError(f"cannot be read as a certificate ({error})") from None
    if _now() > read.not_valid_after_utc:
        raise ValueError(f"has expired on {read.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if _now() < read.not_valid_before_utc:
        raise ValueError(
            f"is not valid before {read.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and this "
            f"machine's clock says {_now():%Y-%m-%d %H:%M}"
        )


def is_issued_by(certificate: bytes, ca: bytes) -> bool:
    """Return whether an authority has signed a certificate.

    Examples
    --------
    >>> from gpusched.cluster.authority import is_issued_by, issue
    >>> one, other = issue(["localhost"], days=1), issue(["localhost"], days=1)
    >>> is_issued_by(one.certificate, one.ca), is_issued_by(one.certificate, other.ca)
    (True, False)
    """
    issuer = x509.load_pem_x509_certificate(ca)
    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_key_of(key: bytes, certificate: bytes) -> bool:
    """Return whether a private key belongs to a certificate.

    Raises `ValueError` if the key cannot be read; the message is to follow the file's name.

    Examples
    --------
    >>> from gpusched.cluster.authority import is_key_of, issue
    >>> one, other = issue(["localhost"], days=1), issue(["localhost"], days=1)
    >>> is_key_of(one.key, one.certificate), is_key_of(other.key, one.certificate)
    (True, False)
    """
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise ValueError(f"cannot be read as a private key ({error})") from None
    own: Any = private.public_key()
    return bool(own == x509.load_pem_x509_certificate(certificate).public_key())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    dates: tuple[datetime.datetime, datetime.datetime],
    extensions: Iterable[tuple[x509.ExtensionType, bool]],
) -> x509.CertificateBuilder:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dates[0])
        .not_valid_after(dates[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder


def _ca_extensions() -> list[tuple[x509.ExtensionType, bool]]:
    return [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(key_cert_sign=True, crl_sign=True), True),
    ]


def _extensions(
    names: Sequence[str], ca_key: ec.EllipticCurvePrivateKey
) -> list[tuple[x509.ExtensionType, bool]]:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    # Schedulers and workers accept connections and make them.
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(digital_signature=True), True),
        (x509.ExtendedKeyUsage(both), False),
        (x509.SubjectAlternativeName([_general(name) for name in names]), False),
        (issuer, False),
    ]


def _usage(**given: bool) -> x509.KeyUsage:
    usages = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{usage: given.get(usage, False) for usage in usages})


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
