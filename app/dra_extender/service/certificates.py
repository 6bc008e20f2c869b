"""The certificates of a listener, read again when their files change: cert-manager, a Job and kubelet replace them in place.

A new connection gets the context made from the latest files that fit together.  Connections made before keep theirs; their next
response asks the caller to open a new connection, so that no call fails and a removed authority is soon without callers.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import structlog

from dra_extender.config.listener_settings import TlsSettings
from dra_extender.config.settings import InvalidSettingsError
from dra_extender.runtime.installation import is_installed
from dra_extender.service.policy_reloader import Fingerprint, fingerprint

SERVER: Final = "server"
CLIENT_CA: Final = "client-ca"
_MOST_BYTES: Final = 1 << 20
_MOST_NAMED: Final = 4
_LOG = structlog.get_logger(__name__)


class CertificateError(InvalidSettingsError):
    """A certificate, a key or an authority cannot be used; the message names the file."""


class CertificateObserver(Protocol):
    """Learns of the certificates in use."""

    def certificates_read(self, outcome: str) -> None:
        """Changed files were taken or refused."""
        ...

    def certificate_expires(self, which: str, seconds: float) -> None:
        """A certificate in use expires at this time, in seconds since the epoch; of several, the first."""
        ...


class Certificates:
    """The SSL contexts of the listeners.  `load` at the start, then `run`; `notes` for the readiness page."""

    def __init__(self, settings: TlsSettings, observer: CertificateObserver) -> None:
        self._settings = settings
        self._observer = observer
        self._seen: Sequence[Fingerprint | None] = ()
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
        self._seen = self._states()
        self._take()

    async def run(self) -> None:
        """Take up changed files until cancelled; returns at once without any."""
        while self._settings.cert_file is not None:
            await asyncio.sleep(self._settings.check_seconds)
            self.check()

    def check(self) -> None:
        """Take up the files if they have changed and fit together; else keep what is in use, and try again next time."""
        found = self._states()
        if found == self._seen and self.problem is None:
            return
        try:
            self._take()
        except CertificateError as problem:
            if str(problem) != self.problem:
                _LOG.warning("certificates refused, the last ones stay in use", problem=str(problem))
                self._observer.certificates_read("refused")
            self.problem = str(problem)
            return
        self._seen, self.problem = found, None
        self._observer.certificates_read("taken")
        _LOG.info("certificates taken up", cert_file=str(self._settings.cert_file))

    def notes(self) -> Mapping[str, str]:
        """Why changed files are not in use."""
        return {"certificates": f"the last valid ones are in use; {self.problem}"} if self.problem else {}

    def verbs(self) -> ssl.SSLContext:
        """The context for a new connection to the verbs: callers need a certificate."""
        return _loaded(self._verbs)

    def probes(self) -> ssl.SSLContext:
        """The context for a new connection to probes and metrics: callers need no certificate."""
        return _loaded(self._probes)

    def refusal(self, transport: asyncio.BaseTransport) -> str:
        """Why the caller behind a connection may not call the verbs; empty if it may."""
        allowed = self._settings.allowed_names
        names = names_of(transport.get_extra_info("peercert") or {})
        if not allowed or any(each in allowed for each in names):
            return ""
        shown = ", ".join(map(repr, names[:_MOST_NAMED])) or "nobody"
        _LOG.warning("caller refused", names=shown)
        return f"the client certificate is that of {shown}; expected one of {', '.join(allowed)} (setting tls.allowed_names)"

    def _states(self) -> Sequence[Fingerprint | None]:
        given = self._settings
        return [fingerprint(each) for each in (given.cert_file, given.private_key_file, given.client_ca_file) if each]

    def _take(self) -> None:
        given = self._settings
        if given.cert_file is None or given.private_key_file is None:
            return
        expires = {SERVER: _expiry(given.cert_file)}
        probes = server_context(given.cert_file, given.private_key_file)
        verbs = None
        if given.client_ca_file is not None:
            expires[CLIENT_CA] = _expiry(given.client_ca_file)
            verbs = server_context(given.cert_file, given.private_key_file, given.client_ca_file)
        self._probes, self._verbs = probes, verbs
        self.generation += 1
        for which, seconds in expires.items():
            self._observer.certificate_expires(which, seconds)


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
    try:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except (OSError, ValueError) as problem:
        raise CertificateError(f"{cert_file} with {key_file}: {_said(problem)}") from problem
    if client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        # As Go has it: a certificate in the bundle is trusted, whether or not its own issuer is in there.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cafile=client_ca_file)
        except (OSError, ValueError) as problem:
            raise CertificateError(f"{client_ca_file}: {_said(problem)}") from problem
    return context


def names_of(peer: Mapping[str, object]) -> tuple[str, ...]:
    """The common names and DNS names in a caller's certificate, as `SSLSocket.getpeercert` returns it."""
    subject, others = peer.get("subject", ()), peer.get("subjectAltName", ())
    common = [value for part in subject for name, value in part if name == "commonName"]  # type: ignore[attr-defined]
    return (*common, *(value for kind, value in others if kind == "DNS"))  # type: ignore[attr-defined]


def _expiry(path: Path) -> float:
    """When the first of the certificates in a file expires, in seconds since the epoch.  Raises CertificateError."""
    if not is_installed("cryptography"):
        raise CertificateError(f"{path}: cryptography is not installed here, which reads certificates")
    from cryptography import x509  # noqa: PLC0415 - it is not there on every platform

    try:
        with path.open("rb") as file:
            found = x509.load_pem_x509_certificates(file.read(_MOST_BYTES))
        return min(each.not_valid_after_utc.timestamp() for each in found)
    except (OSError, ValueError) as problem:
        raise CertificateError(f"{path}: {_said(problem)}") from problem


def _loaded(context: ssl.SSLContext | None) -> ssl.SSLContext:
    if context is None:
        raise CertificateError("no certificate is loaded")
    return context


def _no_password() -> str:
    raise ValueError("the private key is encrypted; expected one without a password")


def _said(problem: Exception) -> str:
    return str(getattr(problem, "strerror", None) or getattr(problem, "reason", None) or problem)
