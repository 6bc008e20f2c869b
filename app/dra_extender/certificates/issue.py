"""Makes keys and certificates, in PEM.  Times are aware datetimes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BEFORE: Final = timedelta(minutes=5)
"""Clocks of other machines may be behind."""
_LONGEST_COMMON_NAME: Final = 64
"""Characters (RFC 5280, ub-common-name)."""


class KeyPair(NamedTuple):
    """A certificate and its private key."""

    certificate: bytes
    key: bytes


def new_authority(name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """A certificate authority with a certificate of its own making."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = _usage(signs_certificates=True)
    built = (
        _blank(subject, subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(built.sign(key, hashes.SHA256()), key)


def new_server_certificate(authority: KeyPair, names: Sequence[str], now: datetime, lifetime: timedelta) -> KeyPair:
    """A certificate for a server with these DNS names and addresses; the first is its common name, if it is short enough for one.

    Raises:
        ValueError: the authority cannot be read, or a name is none.
    """
    others = x509.SubjectAlternativeName([_name(each) for each in names])
    common = names[0] if len(names[0]) <= _LONGEST_COMMON_NAME else ""
    return _leaf(authority, common, ExtendedKeyUsageOID.SERVER_AUTH, others, now, lifetime)


def new_client_certificate(authority: KeyPair, name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """A certificate for a client with this common name.

    Raises:
        ValueError: the authority cannot be read, or the name is none.
    """
    if not 0 < len(name) <= _LONGEST_COMMON_NAME:
        raise ValueError(f"expected a common name of 1 to {_LONGEST_COMMON_NAME} characters, got {name!r}")
    return _leaf(authority, name, ExtendedKeyUsageOID.CLIENT_AUTH, None, now, lifetime)


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """The certificates in a bundle.

    Raises:
        ValueError: there is none, or one that cannot be read.
    """
    return x509.load_pem_x509_certificates(pem)


def first_expiry(pem: bytes) -> datetime:
    """When the first of the certificates in a bundle expires.  Raises ValueError as `read_certificates`."""
    return min(each.not_valid_after_utc for each in read_certificates(pem))


def key_fits(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether this is the private key of the certificate, not encrypted."""
    try:
        found = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return found.public_key() == certificate.public_key()


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may issue others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def as_written(name: str) -> str:
    """A DNS name or an address as `names_in` finds it in a certificate."""
    return str(_name(name).value)


def names_in(certificate: x509.Certificate) -> set[str]:
    """The names of a certificate: DNS names and addresses, or its common name if it has none of these."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return {str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
    return {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}


def _leaf(
    authority: KeyPair,
    name: str,
    purpose: x509.ObjectIdentifier,
    others: x509.SubjectAlternativeName | None,
    now: datetime,
    lifetime: timedelta,
) -> KeyPair:
    issuer = read_certificates(authority.certificate)[0]
    signing = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError("expected an authority with an ECDSA key")  # noqa: TRY004 - it is the user's value
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    built = (
        _blank(subject, issuer.subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if others is not None:
        # RFC 5280, 4.2.1.6: it is critical if there is no other name.
        built = built.add_extension(others, critical=not name)
    return _pair(built.sign(signing, hashes.SHA256()), key)


def _blank(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + lifetime)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.GeneralName:
    if not text:
        raise ValueError("expected a DNS name or an address, got ''")
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private)
