"""Spans that are sent over OTLP, by OpenTelemetry's SDK.  Nothing imports this module unless tracing is on (an optional extra).

The SDK reads its own environment variables: OTEL_EXPORTER_OTLP_ENDPOINT and _HEADERS, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and
others.  Spans are sent from a thread in batches; when the receiver does not keep up, spans are dropped and no call waits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanKind, Status, StatusCode

from dra_extender.runtime.installation import build_version
from dra_extender.telemetry.spans import Attempts, Spans, trace_id

_SEND_SECONDS: Final = 5.0
_TRACE: Final[ContextVar[int]] = ContextVar("trace", default=0)
_LONGEST: Final = 1024
"""Characters of an attribute or of a reason; names and reasons come from tenants."""


class _DerivedIds(RandomIdGenerator):
    """The trace ID of the attempt that runs; span IDs are random."""

    def generate_trace_id(self) -> int:
        return _TRACE.get() or super().generate_trace_id()


class OtlpSpans(Spans):
    """Sends spans in batches."""

    def __init__(self, endpoint: str | None = None) -> None:
        """`endpoint`: the URL that takes traces (`http://collector:4318/v1/traces`); None: what the environment says."""
        resource = Resource.create({SERVICE_NAME: "dra-extender", SERVICE_VERSION: build_version()})
        self._provider = TracerProvider(resource=resource, id_generator=_DerivedIds(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_SEND_SECONDS)))
        self._tracer = self._provider.get_tracer("dra_extender")
        self._attempts = Attempts()

    @contextmanager
    def call(self, verb: str, pod_uid: str, **attributes: str | int) -> Iterator[None]:
        attempt = self._attempts.number(verb, pod_uid)
        token = _TRACE.set(trace_id(pod_uid, attempt))
        span_attributes = {"k8s.pod.uid": pod_uid, "dra_extender.attempt": attempt, **attributes}
        try:
            with self._span(verb, SpanKind.SERVER, span_attributes):
                yield
        finally:
            _TRACE.reset(token)

    @contextmanager
    def step(self, name: str, **attributes: str | int) -> Iterator[None]:
        with self._span(name, SpanKind.INTERNAL, attributes):
            yield

    def stop(self) -> None:
        self._provider.shutdown()

    @contextmanager
    def _span(self, name: str, kind: SpanKind, attributes: dict[str, str | int]) -> Iterator[None]:
        short = {key: _sent(value) if isinstance(value, str) else value for key, value in attributes.items()}
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=short, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except BaseException as problem:
                span.set_status(Status(StatusCode.ERROR, _sent(f"{type(problem).__name__}: {problem}")))
                raise


def _sent(text: str) -> str:
    """Return the text as it is sent: one text with half a surrogate would lose the whole batch."""
    return text[:_LONGEST].encode(errors="replace").decode()
