"""The certificates of a listener, read again when their files change: cert-manager, a Job and kubelet replace them in place.

A new connection gets the context made from the latest files that fit together.  Connections made before keep theirs; their next
response asks the caller to open a new connection, so that no call fails and a removed authority is soon without callers.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self

import structlog

from dra_extender.config.listener_settings import TlsSettings
from dra_extender.model.metadata import time_text
from dra_extender.runtime.installation import is_installed
from dra_extender.service.policy_reloader import Fingerprint, fingerprint
from dra_extender.service.server_context import CertificateError, said, server_context

SERVER: Final = "server"
CLIENT_CA: Final = "client-ca"
_MOST_BYTES: Final = 1 << 20
_MOST_NAMED: Final = 4
_LOG = structlog.get_logger(__name__)


class CertificateObserver(Protocol):
    """Learns of the certificates in use."""

    def certificates_read(self, outcome: str) -> None:
        """Changed files were taken or refused."""
        ...

    def certificate_expires(self, which: str, seconds: float) -> None:
        """A certificate in use expires at this time, in seconds since the epoch; of several, the first."""
        ...


class Validity(NamedTuple):
    """When the first certificate in a file is valid, and when the first of all of them expires; seconds since the epoch."""

    path: Path
    since: float
    until: float
    first_expiry: float

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises CertificateError."""
        if not is_installed("cryptography"):
            raise CertificateError(f"{path}: cryptography is not installed here, which reads certificates")
        from cryptography import x509  # noqa: PLC0415 - it is not there on every platform

        try:
            with path.open("rb") as file:
                found = x509.load_pem_x509_certificates(file.read(_MOST_BYTES))
        except (OSError, ValueError) as problem:
            raise CertificateError(f"{path}: {said(problem)}") from problem
        ends = [each.not_valid_after_utc.timestamp() for each in found]
        return cls(path, found[0].not_valid_before_utc.timestamp(), ends[0], min(ends))

    def problem(self, now: float) -> str:
        """Why callers refuse the first certificate; empty if it is valid."""
        if self.since <= now <= self.until:
            return ""
        word, moment = ("expired at", self.until) if now > self.until else ("not valid before", self.since)
        return f"{self.path}: {word} {time_text(moment)}"


class Certificates:
    """The SSL contexts of the listeners.  `load` at the start, then `run`; `notes` for the readiness page."""

    def __init__(
        self, settings: TlsSettings, observer: CertificateObserver, now: Callable[[], float] = time.time
    ) -> None:
        """`now`: seconds since the epoch."""
        self._settings = settings
        self._observer = observer
        self._now = now
        self._valid: Mapping[str, Validity] = {}
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
        """Why changed files are not in use, or the certificate in use is of no use."""
        if self.problem:
            return {"certificates": f"the last valid ones are in use; {self.problem}"}
        ours = self._valid.get(SERVER)
        problem = ours.problem(self._now()) if ours else ""
        return {"certificates": problem} if problem else {}

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
        valid = {SERVER: Validity.of(given.cert_file)}
        probes = server_context(given.cert_file, given.private_key_file)
        verbs = None
        if given.client_ca_file is not None:
            valid[CLIENT_CA] = Validity.of(given.client_ca_file)
            verbs = server_context(given.cert_file, given.private_key_file, given.client_ca_file)
        now, ours = self._now(), self._valid.get(SERVER)
        problem = valid[SERVER].problem(now)
        if problem and ours and not ours.problem(now):
            raise CertificateError(problem)
        self._probes, self._verbs, self._valid = probes, verbs, valid
        self.generation += 1
        for which, each in valid.items():
            self._observer.certificate_expires(which, each.first_expiry)


def names_of(peer: Mapping[str, object]) -> tuple[str, ...]:
    """The common names and DNS names in a caller's certificate, as `SSLSocket.getpeercert` returns it."""
    subject, others = peer.get("subject", ()), peer.get("subjectAltName", ())
    common = [value for part in subject for name, value in part if name == "commonName"]  # type: ignore[attr-defined]
    return (*common, *(value for kind, value in others if kind == "DNS"))  # type: ignore[attr-defined]


def _loaded(context: ssl.SSLContext | None) -> ssl.SSLContext:
    if context is None:
        raise CertificateError("no certificate is loaded")
    return context
