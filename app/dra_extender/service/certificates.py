"""The certificates of a listener, read again when their files change: cert-manager, a Job and kubelet replace them in place.

A new connection gets the context made from the latest files that fit together.  Connections made before keep theirs; their next
response asks the caller to open a new connection, so that no call fails and a removed authority is soon without callers.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from dra_extender.api.browser_guard import RequestRefusal
from dra_extender.config.service_settings import TlsSettings
from dra_extender.config.settings import InvalidSettingsError
from dra_extender.model.metadata import time_text
from dra_extender.runtime.installation import is_installed
from dra_extender.service.policy_reloader import Fingerprint, fingerprint
from dra_extender.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from cryptography import x509

SERVER: Final = "server"
CLIENT_CA: Final = "client-ca"
_MOST_BYTES: Final = 1 << 20
_MOST_NAMED: Final = 4
_LOG = structlog.get_logger(__name__)


class CertificateError(InvalidSettingsError):
    """A certificate, a key or an authority cannot be used; the message names the file."""


class Validity(NamedTuple):
    """The validity of the first certificate in a file, and the first expiry of all of them; seconds since the epoch."""

    path: Path
    since: float
    until: float
    first_expiry: float

    def problem(self, now: float) -> str:
        """Return why callers refuse the first certificate; empty if it is valid."""
        if self.since <= now <= self.until:
            return ""
        word, moment = ("expired at", self.until) if now > self.until else ("not valid before", self.since)
        return f"{self.path}: {word} {time_text(moment)}"


class Certificates:
    """The SSL contexts of the listeners.  `load` at the start, then `keep_reloading`; `notes` for the readiness page."""

    def __init__(self, settings: TlsSettings, metrics: Metrics, now: Callable[[], float] = time.time) -> None:
        """`now`: seconds since the epoch."""
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._valid: Mapping[str, Validity] = {}
        self._last_fingerprints: Sequence[Fingerprint | None] = ()
        self._verbs: ssl.SSLContext | None = None
        self._probes: ssl.SSLContext | None = None
        self.generation = 0
        """Grows each time that certificates are taken up."""
        self.problem: str | None = None
        """Why changed files are not in use."""

    def load(self) -> None:
        """Read the files for the first time.

        Raises:
            CertificateError: they cannot be used.
        """
        self._last_fingerprints = self._fingerprints()
        self._take_up()

    async def keep_reloading(self) -> None:
        """Take up changed files until cancelled; return at once without any."""
        while self._settings.cert_file is not None:
            await asyncio.sleep(self._settings.check_seconds)
            self.check()

    def check(self) -> None:
        """Take up the files if they have changed and fit together; else keep what is in use, and try again next time."""
        fingerprints = self._fingerprints()
        if fingerprints == self._last_fingerprints and self.problem is None:
            return
        try:
            self._take_up()
        except CertificateError as problem:
            if str(problem) != self.problem:
                _LOG.warning("certificates refused, the last ones stay in use", problem=str(problem))
                self._metrics.certificate_reads.labels("refused").inc()
            self.problem = str(problem)
            return
        self._last_fingerprints, self.problem = fingerprints, None
        self._metrics.certificate_reads.labels("taken").inc()
        _LOG.info("certificates taken up", cert_file=str(self._settings.cert_file))

    def notes(self) -> Mapping[str, str]:
        """Say why changed files are not in use, or the certificate in use is of no use."""
        if self.problem:
            return {"certificates": f"the last valid ones are in use; {self.problem}"}
        ours = self._valid.get(SERVER)
        problem = ours.problem(self._now()) if ours else ""
        return {"certificates": problem} if problem else {}

    def verbs(self) -> ssl.SSLContext:
        """Return the context for a new connection to the verbs: callers need a certificate."""
        return _loaded(self._verbs)

    def probes(self) -> ssl.SSLContext:
        """Return the context for a new connection to probes and metrics: callers need no certificate."""
        return _loaded(self._probes)

    def refusal(self, peer_certificate: Mapping[str, object]) -> RequestRefusal | None:
        """Return why a caller with this certificate may not call the verbs; None if it may."""
        allowed = self._settings.allowed_names
        names = names_of(peer_certificate)
        if not allowed or any(name in allowed for name in names):
            return None
        shown = ", ".join(map(repr, names[:_MOST_NAMED])) or "nobody"
        _LOG.warning("caller refused", names=shown)
        return RequestRefusal(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            f"the client certificate is that of {shown}; expected one of {', '.join(allowed)} (setting tls.allowed_names)",
        )

    def _fingerprints(self) -> Sequence[Fingerprint | None]:
        settings = self._settings
        return [
            fingerprint(file)
            for file in (settings.cert_file, settings.private_key_file, settings.client_ca_file)
            if file
        ]

    def _take_up(self) -> None:
        settings = self._settings
        if settings.cert_file is None or settings.private_key_file is None:
            return
        valid = {SERVER: _validity(settings.cert_file)}
        probes = server_context(settings.cert_file, settings.private_key_file)
        verbs = None
        if settings.client_ca_file is not None:
            valid[CLIENT_CA] = _validity(settings.client_ca_file)
            verbs = server_context(settings.cert_file, settings.private_key_file, settings.client_ca_file)
        now, ours = self._now(), self._valid.get(SERVER)
        problem = valid[SERVER].problem(now)
        if problem and ours and not ours.problem(now):
            raise CertificateError(problem)
        self._probes, self._verbs, self._valid = probes, verbs, valid
        self.generation += 1
        for which, validity in valid.items():
            self._metrics.certificate_expiration_timestamp_seconds.labels(which).set(validity.first_expiry)


def names_of(peer: Mapping[str, object]) -> tuple[str, ...]:
    """Return the common names and DNS names in a caller's certificate, as `SSLSocket.getpeercert` returns it."""
    subject, alternative_names = peer.get("subject", ()), peer.get("subjectAltName", ())
    common = [value for part in subject for name, value in part if name == "commonName"]  # type: ignore[attr-defined]
    return (*common, *(value for kind, value in alternative_names if kind == "DNS"))  # type: ignore[attr-defined]


def server_context(cert_file: Path, key_file: Path, client_ca_file: Path | None = None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later with this certificate; with authorities, callers need a certificate of one of them.

    Neither side resumes sessions, because Go's HTTP client keeps none.

    Raises:
        CertificateError: a file cannot be read, or they do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # kube-scheduler never resumes a session: tickets would cost both sides work for nothing.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    authorities = b""
    if client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        # As Go has it: a certificate in the bundle is trusted, whether or not its own issuer is in there.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cafile=client_ca_file)
            authorities = client_ca_file.read_bytes()
        except (OSError, ValueError) as problem:
            raise CertificateError(f"{client_ca_file}: {_words(problem)}") from problem
    try:
        with _file_with(chain_to_send(cert_file.read_bytes(), authorities), cert_file) as chain:
            context.load_cert_chain(chain, key_file, password=_no_password)
    except (OSError, ValueError) as problem:
        raise CertificateError(f"{cert_file} with {key_file}: {_words(problem)}") from problem
    return context


def chain_to_send(certificates: bytes, authorities: bytes) -> bytes:
    """Return the certificates of a file, in PEM, with the issuer of a single one behind it if it is among these authorities.

    OpenSSL would otherwise build and verify that chain anew in each handshake.
    """
    if not authorities or not is_installed("cryptography"):
        return certificates
    from cryptography import x509  # noqa: PLC0415 - it is not there on every platform
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    try:
        sent, trusted = x509.load_pem_x509_certificates(certificates), x509.load_pem_x509_certificates(authorities)
    except ValueError:
        return certificates  # OpenSSL says what is wrong with them
    issuers = [authority for authority in trusted if len(sent) == 1 and _is_issued_by(sent[0], authority)]
    return b"%s\n%s" % (certificates.rstrip(), issuers[0].public_bytes(Encoding.PEM)) if issuers else certificates


def _is_issued_by(certificate: "x509.Certificate", authority: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - it is not there on every platform

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


@contextmanager
def _file_with(chain: bytes, cert_file: Path) -> Iterator[Path]:
    """Yield a path that has these bytes inside the block: OpenSSL reads files, and the root of the container is read-only."""
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


def _validity(path: Path) -> Validity:
    if not is_installed("cryptography"):
        raise CertificateError(f"{path}: cryptography is not installed here, which reads certificates")
    from cryptography import x509  # noqa: PLC0415 - it is not there on every platform

    try:
        with path.open("rb") as file:
            certificates = x509.load_pem_x509_certificates(file.read(_MOST_BYTES))
    except (OSError, ValueError) as problem:
        raise CertificateError(f"{path}: {_words(problem)}") from problem
    ends = [certificate.not_valid_after_utc.timestamp() for certificate in certificates]
    return Validity(path, certificates[0].not_valid_before_utc.timestamp(), ends[0], min(ends))


def _words(problem: Exception) -> str:
    """Return the words of an error of the system or of OpenSSL."""
    return str(getattr(problem, "strerror", None) or getattr(problem, "reason", None) or problem)


def _loaded(context: ssl.SSLContext | None) -> ssl.SSLContext:
    if context is None:
        raise CertificateError("no certificate is loaded")
    return context
