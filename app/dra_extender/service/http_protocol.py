from asyncio import AbstractEventLoop, BaseTransport, Transport
from typing import Any, Final, Protocol, cast

import msgspec
import structlog
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from dra_extender.api.dispatch import ANSWER
from dra_extender.api.request_guard import RequestGuard
from dra_extender.service.http_connections import Connection, Connections

_LOG = structlog.get_logger(__name__)
_HEAD_BYTES: Final = 64 * 1024
_PIPELINE: Final = 16
_OVERHEAD: Final = 256 * 1024
"""Bytes beyond the limit of a body that a request may take on the wire: one read, and the marks between chunks."""


class Admission(Protocol):
    """Who may call over TLS, with the certificates of this moment."""

    @property
    def generation(self) -> int:
        """Grows when certificates are replaced."""
        ...

    def refusal(self, transport: BaseTransport) -> str:
        """Why the caller behind a connection may not call; empty if it may."""
        ...


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits for callers: time to send, size of the head, requests sent ahead, memory.

    uvicorn itself has none of these limits, and its `limit_concurrency` rejects probes as well.
    """

    def __init__(
        self,
        *,
        connections: Connections,
        guard: RequestGuard,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
        admission: Admission | None = None,
        handshake: Connection | None = None,
    ) -> None:
        """With TLS there is an `admission`, and the `handshake` whose place among the connections this one takes."""
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections
        self._guard = guard
        self._admission = admission
        self._handshake = handshake
        self._generation = admission.generation if admission is not None else 0
        self._forbidden = ""
        self._refused = False
        self._wire = 0
        self._body = 0
        self._head_complete = True
        self._extensions: dict[str, dict[object, object]] = {ANSWER: {ANSWER: self._answer}}
        self.host = ""
        self.held = 0
        self.served = self.busy = self.probes_only = False
        self.begun: float | None = None
        self.suspect: float | None = None
        self.idle_since = self.loop.time()

    def connection_made(self, transport: BaseTransport) -> None:
        """See asyncio.Protocol."""
        if self._handshake is not None:
            self._connections.closed(self._handshake)
        # uvloop's transports are no subclasses of asyncio's.
        super().connection_made(cast("Transport", transport))
        self.host = self.client[0] if self.client else ""
        if self._admission is not None:
            self._forbidden = self._admission.refusal(transport)
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._connections.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._refused:
            return
        super().data_received(data)
        if self.begun is None or self._refused:
            return
        self._wire += len(data)
        if not self._head_complete and self._wire > _HEAD_BYTES:
            self.refuse(431, "large_head", f"the head of the request has more than {_HEAD_BYTES} bytes")
        elif self._wire > self._connections.limits.body + _OVERHEAD:
            self.refuse(
                413, "large_body", f"the request takes more than {self._connections.limits.body + _OVERHEAD} bytes"
            )

    def on_message_begin(self) -> None:
        """See HttpToolsProtocol."""
        if self._refused:
            return
        self.begun, self._wire, self._body, self._head_complete = self.loop.time(), 0, 0, False
        super().on_message_begin()
        self.scope["extensions"] = self._extensions

    def on_headers_complete(self) -> None:
        """See HttpToolsProtocol."""
        if self._refused:
            return
        self._head_complete = True
        if self._forbidden:
            self.refuse(403, "forbidden", self._forbidden)
        elif len(self.pipeline) >= _PIPELINE:
            self.refuse(400, "pipeline", f"more than {_PIPELINE} requests were sent ahead")
        elif self.probes_only and self._connections.crowded and self.parser.get_method() != b"GET":
            self.refuse(503, "busy", "every connection is in use; this one is for probes")
        elif refusal := self._guard.refusal(self.parser.get_method(), self.headers):
            _LOG.warning("request refused", problem=refusal.sentence, caller=self.host)
            self.refuse(refusal.status, refusal.reason, refusal.sentence)
        else:
            super().on_headers_complete()
            if self._admission is not None and self._admission.generation != self._generation:
                # The caller's next connection is made with the certificates that are in use now.
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """See HttpToolsProtocol."""
        cycle = self.cycle
        if self._refused or cycle.response_complete:
            return
        size = len(body)
        self._body += size
        # The application reads `bytes(cycle.body)`, which copies nothing here: most bodies arrive in one piece.
        if not cycle.body:
            cycle.body = cast("bytearray", body)
        else:
            before = cast("bytes | bytearray", cycle.body)
            cycle.body = before if isinstance(before, bytearray) else bytearray(before)
            cycle.body += body
        if self._body > self._connections.limits.body:
            # Otherwise it is woken when the body is complete.
            cycle.message_event.set()
        self._connections.record_held(self, self.held + size)

    def on_message_complete(self) -> None:
        """See HttpToolsProtocol."""
        if self._refused:
            return
        self.begun = None
        super().on_message_complete()
        if not self.cycle.response_complete:
            self.busy = True
            self._connections.mark_busy(self)

    def on_response_complete(self) -> None:
        """See HttpToolsProtocol."""
        ahead = bool(self.pipeline)
        self.served = True
        super().on_response_complete()
        if self._refused or ahead:
            return
        self.busy = False
        self.idle_since = self.loop.time()
        if self.begun is not None:
            # Its bytes were not read while the request before was in progress.
            self.begun = self.idle_since
        self._connections.record_held(self, self.transport.get_write_buffer_size())
        self._connections.mark_idle(self)

    def unsent(self) -> int:
        """See Connection."""
        return self.transport.get_write_buffer_size()

    def refuse(self, status: int, reason: str, sentence: str) -> None:
        """See Connection."""
        self._leave()
        self._connections.count_closed(reason)
        if self._awaits_answer():
            body = msgspec.json.encode({"Error": sentence})
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def abort(self) -> None:
        """See Connection."""
        self._leave()
        self.transport.abort()

    def _answer(self, status: int, media_type: bytes, body: bytes) -> bool:
        """Send the whole response to the request in progress at once; False if the caller must send it through ASGI."""
        cycle = self.cycle
        needs_asgi = self.pipeline or not cycle.keep_alive or cycle.waiting_for_100_continue or self.flow.write_paused
        if self._refused or needs_asgi or cycle.response_started or cycle.disconnected:
            return False
        head = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            head += (name, b": ", value, b"\r\n")
        head += (b"content-type: ", media_type, b"\r\ncontent-length: %d\r\n\r\n" % len(body))
        cycle.response_started = cycle.response_complete = True
        self.transport.writelines((b"".join(head), body))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def _awaits_answer(self) -> bool:
        """Whether a response written now would belong to the request that is being received, or be the first of all."""
        if self.busy:
            return not self.cycle.response_started
        answered_early = self.served and self._head_complete and self.begun is not None
        return not answered_early

    def _leave(self) -> None:
        self._refused = True
        self._unset_keepalive_if_required()
        self._connections.closed(self)
