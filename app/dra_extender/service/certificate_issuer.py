"""Issues certificates where nobody else does: an authority, a certificate of the service, and one of kube-scheduler.

Each is in a Secret of the type kubernetes.io/tls; the latter two beside the authority, by which their owners check each other.
Keys are ECDSA on P-256: a handshake costs a fraction of one with RSA.  Certificates are in PEM.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
AUTHORITY_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=365)
_DUE: Final = 3
"""A certificate is due when this part of its lifetime is left."""
_CLOCK_SKEW: Final = timedelta(minutes=5)
_LONGEST_COMMON_NAME: Final = 64
"""Characters (RFC 5280, ub-common-name)."""

SecretData = Mapping[str, bytes]


class CertificateSubjects(NamedTuple):
    """The subjects of the certificates: the names and addresses of the service, and the common name of kube-scheduler."""

    names: Sequence[str]
    client: str


class Issued(NamedTuple):
    """The data of the three Secrets."""

    authority: SecretData
    server: SecretData
    client: SecretData


class KeyPair(NamedTuple):
    """A certificate and its private key."""

    certificate: bytes
    key: bytes


def renewed(
    authority: SecretData | None,
    server: SecretData | None,
    client: SecretData | None,
    subjects: CertificateSubjects,
    now: datetime,
) -> Issued:
    """Keep each certificate, unless it is missing, unreadable, for other names, or due.  A new authority renews all.

    Raises:
        ValueError: a name cannot be in a certificate.
    """
    issuer = _usable(authority, None, now)
    if issuer is None:
        issuer = new_authority("dra-extender", now, AUTHORITY_LIFETIME)
        server = client = None
    names = list(dict.fromkeys(str(_name(name).value) for name in subjects.names))
    served = _usable(server, names, now, issuer) or new_server_certificate(issuer, names, now, LIFETIME)
    called = _usable(client, [subjects.client], now, issuer) or new_client_certificate(
        issuer, subjects.client, now, LIFETIME
    )
    return Issued(_data(issuer, issuer), _data(served, issuer), _data(called, issuer))


def _usable(
    data: SecretData | None, names: Sequence[str] | None, now: datetime, issuer: KeyPair | None = None
) -> KeyPair | None:
    """Return the certificate and key in a Secret, or None if new ones are needed.  Without `issuer` it is an authority."""
    if not data or not data.get(CERTIFICATE) or not data.get(KEY):
        return None
    try:
        certificate = read_certificates(data[CERTIFICATE])[0]
        if issuer is not None:
            certificate.verify_directly_issued_by(read_certificates(issuer.certificate)[0])
        fits = key_fits(certificate, data[KEY]) and is_authority(certificate) == (issuer is None)
    except (ValueError, TypeError, InvalidSignature):
        return None
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    due = certificate.not_valid_after_utc - now < lifetime / _DUE or now < certificate.not_valid_before_utc
    if due or not fits or (names is not None and names_in(certificate) != set(names)):
        return None
    return KeyPair(data[CERTIFICATE], data[KEY])


def _data(pair: KeyPair, issuer: KeyPair) -> SecretData:
    return {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITY: issuer.certificate}


def new_authority(name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """Make a certificate authority that signs its own certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = (
        _certificate(subject, subject, key.public_key(), now, lifetime, signs_certificates=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(built, key, key)


def new_server_certificate(authority: KeyPair, names: Sequence[str], now: datetime, lifetime: timedelta) -> KeyPair:
    """Make a certificate for these DNS names and addresses; the first is its common name, if it is short enough for one.

    Raises:
        ValueError: the authority cannot be read, or a name is none.
    """
    alternative_names = x509.SubjectAlternativeName([_name(name) for name in names])
    common = names[0] if len(names[0]) <= _LONGEST_COMMON_NAME else ""
    return _leaf(authority, common, ExtendedKeyUsageOID.SERVER_AUTH, alternative_names, now, lifetime)


def new_client_certificate(authority: KeyPair, name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """Make a certificate for a client with this common name.

    Raises:
        ValueError: the authority cannot be read, or the name is none.
    """
    if not 0 < len(name) <= _LONGEST_COMMON_NAME:
        raise ValueError(f"expected a common name of 1 to {_LONGEST_COMMON_NAME} characters, got {name!r}")
    return _leaf(authority, name, ExtendedKeyUsageOID.CLIENT_AUTH, None, now, lifetime)


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """Read the certificates in a bundle.

    Raises:
        ValueError: there is none, or one that cannot be read.
    """
    return x509.load_pem_x509_certificates(pem)


def key_fits(certificate: x509.Certificate, key: bytes) -> bool:
    """Return whether this is the private key of the certificate, not encrypted."""
    try:
        private_key = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return private_key.public_key() == certificate.public_key()


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether it may issue others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def names_in(certificate: x509.Certificate) -> set[str]:
    """Return the DNS names and addresses of a certificate, or its common name if it has none of these."""
    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return {str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
    return {
        *alternative_names.get_values_for_type(x509.DNSName),
        *map(str, alternative_names.get_values_for_type(x509.IPAddress)),
    }


def _leaf(
    authority: KeyPair,
    name: str,
    purpose: x509.ObjectIdentifier,
    alternative_names: x509.SubjectAlternativeName | None,
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
        _certificate(subject, issuer.subject, key.public_key(), now, lifetime, signs_certificates=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if alternative_names is not None:
        # RFC 5280, 4.2.1.6: it is critical if there is no other name.
        built = built.add_extension(alternative_names, critical=not name)
    return _signed(built, signing, key)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
    *,
    signs_certificates: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
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
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(usage, critical=True)
    )


def _signed(
    built: x509.CertificateBuilder, signing: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
) -> KeyPair:
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(built.sign(signing, hashes.SHA256()).public_bytes(encoding), private)


def _name(text: str) -> x509.GeneralName:
    if not text:
        raise ValueError("expected a DNS name or an address, got ''")
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
