"""Failed requests: what the API server said, and what a caller can do."""

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

from dra_extender.kube.client.protobuf import MAGIC
from dra_extender.scheduling.ports.cluster import (
    ClusterError,
    ConflictError,
    NotFoundError,
    RequestRejectedError,
    ServerUnavailableError,
)

MESSAGE_LIMIT = 256
_TRY_AGAIN: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GONE, HTTPStatus.TOO_MANY_REQUESTS})
"""410 refuses only the requested version, 408 and 429 ask the client to retry: another try may succeed."""


class _Cause(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: float | None = None


class ApiStatus(msgspec.Struct, frozen=True, gc=False):
    """The Status object with which an API server explains a refusal."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None

    @property
    def gone(self) -> bool:
        """Return whether a new list is needed: our version has expired (410), or the server has not reached it yet."""
        causes = self.details.causes if self.details else None
        return self.code == HTTPStatus.GONE or any(cause.reason == "ResourceVersionTooLarge" for cause in causes or ())

    @property
    def invalid_fields(self) -> frozenset[str]:
        """The fields of the object for which a write was refused as invalid (422), such as "spec"."""
        causes = self.details.causes if self.details and self.code == HTTPStatus.UNPROCESSABLE_ENTITY else None
        return frozenset(cause.field for cause in causes or ())


_STATUS = msgspec.json.Decoder(ApiStatus)


def read_status(code: int, body: bytes) -> ApiStatus:
    """Return the Status in the body of a response; where a proxy responded with text of its own, that text."""
    if body.startswith(MAGIC):
        return ApiStatus(code=code, message="(explained in protobuf)")
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ApiStatus(code=code, message=" ".join(body.decode(errors="replace").split()))
    return msgspec.structs.replace(status, code=status.code or code)


@dataclass(frozen=True, slots=True)
class RequestIntent:
    """What a request wants, for messages and counts: verb ("update"), resource ("resourceclaims/status"), "namespace/name"."""

    verb: str
    resource: str
    target: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.verb, self.resource, self.target) if part)


class ApiCallError(Exception):
    """A request did not succeed.  Adapters turn it into the errors of `scheduling.ports`; reflectors read its parts.

    `status` is None when there was no answer; `retry_after` is in seconds, 0 if the server did not ask for a pause.
    """

    def __init__(
        self, intent: RequestIntent, status: ApiStatus | None, problem: str = "", retry_after: float = 0.0
    ) -> None:
        self.intent = intent
        self.status = status
        self.retry_after = retry_after
        message = problem if status is None else status.message or status.reason or "no reason given"
        label = "no answer" if status is None else f"{status.code} {status.reason}".strip()
        super().__init__(f"{intent}: {label}: {cut(message)}")

    @property
    def code(self) -> int:
        """The HTTP status of the answer; 0 without an answer."""
        return self.status.code if self.status is not None else 0

    @property
    def gone(self) -> bool:
        return self.status is not None and self.status.gone

    @property
    def forbidden(self) -> bool:
        """Return whether the account lacks the right; an API server that is starting says so before it has loaded its roles."""
        return self.code == HTTPStatus.FORBIDDEN

    @property
    def kind_of_failure(self) -> str:
        """A short label: the HTTP status, "stalled" or "connection"."""
        if self.status is not None:
            return str(self.status.code)
        return "stalled" if isinstance(self.__cause__, TimeoutError) else "connection"

    def as_cluster_error(self) -> ClusterError:
        """Return the error of `scheduling.ports` that says what the caller can do."""
        code = self.code
        error: type[ClusterError] = ServerUnavailableError
        if code == HTTPStatus.FORBIDDEN:
            error = ForbiddenError
        elif code == HTTPStatus.NOT_FOUND:
            error = NotFoundError
        elif code == HTTPStatus.CONFLICT:
            error = ConflictError
        elif 400 <= code < 500 and code not in _TRY_AGAIN:  # noqa: PLR2004 - HTTP's own numbers
            error = RequestRejectedError
        return error(str(self))


class ForbiddenError(RequestRejectedError):
    """The account lacks a right; the message names verb and resource."""


class WriteBlockedError(aiohttp.ClientError):
    """A write that was not sent because the write guard refused it; the text says why."""


class ResponseTooLongError(ApiCallError):
    """The answer is longer than the caller can take; the rest of it was not read."""


class StreamSilentError(ApiCallError):
    """A stream brought no data for a while: the connection is dead, or there were no events."""


def no_answer(intent: RequestIntent, problem: BaseException, seconds: float) -> ApiCallError:
    """Return a request that got no usable answer, with a sentence; `seconds` is how long one was ready to wait."""
    sentence = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
    if isinstance(problem, asyncio.TimeoutError):
        sentence = f"the API server was silent for {seconds:g} s"
    elif isinstance(problem, WriteBlockedError):
        sentence = f"not sent: {problem}"
    elif isinstance(problem, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        sentence = f"the API server's certificate is not trusted: {problem}"
    elif isinstance(problem, aiohttp.ClientConnectorError):
        sentence = f"cannot connect to {problem.host}:{problem.port}: {_network_reason(problem.os_error)}"
    return ApiCallError(intent, None, sentence)


def _network_reason(problem: OSError) -> str:
    """Return the system's words; asyncio's own repeat the address, and the numbers of TLS and of name servers are no errno."""
    if isinstance(problem, ssl.SSLError | socket.gaierror) or not problem.errno:
        return problem.strerror or str(problem)
    return os.strerror(problem.errno)


def cut(text: str, limit: int = MESSAGE_LIMIT) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
