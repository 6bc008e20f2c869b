"""The SSL context of a listener: what it sends, and of whom it asks a certificate.

What a handshake costs is decided here.  Neither side resumes sessions, because Go's HTTP client keeps none.  OpenSSL builds the
chain that it sends anew in each handshake, and verifies it, where a file has the certificate alone and the context knows its
issuer as an authority of callers; the context gets the same chain once, when it is made.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_extender.config.settings import InvalidSettingsError
from dra_extender.runtime.installation import is_installed


class CertificateError(InvalidSettingsError):
    """A certificate, a key or an authority cannot be used; the message names the file."""


def server_context(cert_file: Path, key_file: Path, client_ca_file: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 or later with this certificate; with authorities, callers must have a certificate of one of them.

    Raises:
        CertificateError: a file cannot be read, or they do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # kube-scheduler never resumes a session: tickets would cost both sides work for nothing.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    authorities = b"" if client_ca_file is None else _trust(context, client_ca_file)
    try:
        with _readable(chain_to_send(cert_file.read_bytes(), authorities), cert_file) as chain:
            context.load_cert_chain(chain, key_file, password=_no_password)
    except (OSError, ValueError) as problem:
        raise CertificateError(f"{cert_file} with {key_file}: {said(problem)}") from problem
    return context


def chain_to_send(certificates: bytes, authorities: bytes) -> bytes:
    """The certificates of a file, in PEM, with the issuer of a single one behind it if it is among these authorities."""
    if not authorities or not is_installed("cryptography"):
        return certificates
    from cryptography import x509  # noqa: PLC0415 - it is not there on every platform
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    try:
        found, known = x509.load_pem_x509_certificates(certificates), x509.load_pem_x509_certificates(authorities)
    except ValueError:
        return certificates  # OpenSSL says what is wrong with them
    issuers = [each for each in known if len(found) == 1 and _is_issued_by(found[0], each)]
    if not issuers:
        return certificates
    return b"%s\n%s" % (certificates.rstrip(), issuers[0].public_bytes(Encoding.PEM))


def said(problem: Exception) -> str:
    """The words of an error of the system or of OpenSSL."""
    return str(getattr(problem, "strerror", None) or getattr(problem, "reason", None) or problem)


def _trust(context: ssl.SSLContext, client_ca_file: Path) -> bytes:
    """Ask callers for a certificate of these authorities; returns the file's bytes."""
    context.verify_mode = ssl.CERT_REQUIRED
    # As Go has it: a certificate in the bundle is trusted, whether or not its own issuer is in there.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cafile=client_ca_file)
        return client_ca_file.read_bytes()
    except (OSError, ValueError) as problem:
        raise CertificateError(f"{client_ca_file}: {said(problem)}") from problem


def _is_issued_by(certificate: object, authority: object) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - it is not there on every platform

    try:
        certificate.verify_directly_issued_by(authority)  # type: ignore[attr-defined]
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


@contextmanager
def _readable(chain: bytes, cert_file: Path) -> Iterator[Path]:
    """A path that has these bytes inside the block: OpenSSL reads files, and the root of the container is read-only."""
    if not hasattr(os, "memfd_create"):
        yield cert_file
        return
    descriptor = os.memfd_create("chain")
    try:
        os.write(descriptor, chain)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _no_password() -> str:
    raise ValueError("the private key is encrypted; expected one without a password")
