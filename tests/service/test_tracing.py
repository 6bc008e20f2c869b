"""Traces of calls as a receiver of OTLP gets them, and nothing of all that while tracing is off."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from dra_extender.config.service_settings import ServerSettings, TracingSettings
from dra_extender.config.settings import InvalidSettingsError, Settings
from dra_extender.kube.client.errors import ApiCallError, ApiStatus
from dra_extender.kube.client.objects import RESOURCE_CLAIMS, ApiObjects
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.ledger.sinks import EventSink
from dra_extender.service import tracing
from dra_extender.service.server import listen
from dra_extender.service.tracing import spans_of, stop_tracing, traced
from dra_extender.service.wiring import assemble
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.telemetry import otlp
from dra_extender.telemetry.metrics import Metrics
from dra_extender.telemetry.spans import NO_SPANS, trace_id

from tests.controlplane import objects
from tests.support.api.tls import NO_AUTHORITY
from tests.support.observe.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.support.turns import until_async

LOOPBACK = ServerSettings(host="127.0.0.1", port=0, stop_seconds=10)


class Watched(MemoryCluster):
    """A cluster in memory that is watched as a real one is."""

    async def start(self, feeds: Mapping[str, EventSink]) -> None:
        self.watch.attach(feeds)
        self._task = asyncio.create_task(self.watch.keep_delivering())

    async def wait_synced(self) -> None:
        return

    async def stop(self) -> None:
        self._task.cancel()


def cluster() -> Watched:
    """A node with a device, and a pod that asks for one."""
    made = Watched()
    made.store.create(StoredKind.NODE, objects.node("n1"))
    made.store.create(StoredKind.CLASS, objects.device_class("gpu", f'device.driver == "{objects.DRIVER}"'))
    made.store.create(StoredKind.SLICE, objects.resource_slice("s1", node="n1", devices=[objects.device("gpu-0")]))
    made.store.create(StoredKind.CLAIM, objects.resource_claim("c1", "default", objects.request("gpu", "gpu")))
    made.store.create(StoredKind.POD, objects.pod("p1", "default", claims={"gpu": "c1"}))
    return made


@asynccontextmanager
async def serving(made: Watched, settings: TracingSettings) -> AsyncIterator[httpx.AsyncClient]:
    """The service over the cluster, ready; it has stopped when the context is left."""
    stop = asyncio.Event()
    service = assemble(Settings(server=LOOPBACK), made, Metrics(), spans=spans_of(settings))
    with listen(LOOPBACK.host, LOOPBACK.port) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=base, verify=NO_AUTHORITY, timeout=30) as client:
            running = asyncio.create_task(service.serve(stop, listener))

            async def is_ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await until_async(is_ready)
            yield client
            stop.set()
            await running


async def attempt(client: httpx.AsyncClient, pod: Mapping[str, Any], *, node: str = "n1") -> None:
    """What kube-scheduler asks about a pod that it then binds."""
    asked = {"Pod": pod, "NodeNames": ["n1"]}
    await client.post("/filter", json=asked)
    await client.post("/prioritize", json=asked)
    meta = pod["metadata"]
    binding = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": node}
    await client.post("/bind", json=binding)


async def attempted(receiver: OtlpReceiver, *nodes: str) -> tuple[str, list[ReceivedSpan]]:
    """The UID of the pod, and the spans of as many attempts."""
    made = cluster()
    (pod,) = made.store.all(StoredKind.POD)
    async with serving(made, TracingSettings(enabled=True, endpoint=receiver.endpoint)) as client:
        for node in nodes:
            await attempt(client, pod, node=node)
    return pod["metadata"]["uid"], receiver.spans


async def test_calls_of_one_attempt_are_in_one_trace_that_follows_from_the_pod() -> None:
    with otlp_receiver() as receiver:
        uid, spans = await attempted(receiver, "n1")
    calls = {each.name: each for each in spans if not each.parent}
    assert sorted(calls) == ["bind", "filter", "prioritize"]
    assert {each.trace for each in spans} == {f"{trace_id(uid, 1):032x}"}
    assert {each.attributes["k8s.pod.uid"] for each in calls.values()} == {uid}
    assert calls["bind"].attributes["k8s.node.name"] == "n1"
    assert receiver.services == {"dra-extender"}


async def test_a_bind_shows_what_it_wrote_and_what_it_waited_for() -> None:
    with otlp_receiver() as receiver:
        _, spans = await attempted(receiver, "n1")
    (bind,) = [each for each in spans if each.name == "bind"]
    steps = [each.name for each in spans if each.parent == bind.span]
    assert steps == [
        "decide",
        "write claims",
        "wait for the watch",
        "wait for binding conditions",
        "wait for the permit, and bind",
    ]


async def test_a_request_to_the_api_server_is_a_span_with_its_retries() -> None:
    class Answering(ApiTransport):
        tries = 0

        async def send(self, call: ApiCall) -> bytes:
            self.tries += 1
            if self.tries == 1:
                raise ApiCallError(call.intent, ApiStatus(code=429), retry_after=0.001)
            return b"{}"

    with otlp_receiver() as receiver:
        traces = spans_of(TracingSettings(enabled=True, endpoint=receiver.endpoint))
        transport = Answering(KubeSettings(), spans=traces)
        requests = ApiObjects(transport, KubeSettings())
        await requests.perform(requests.call("update", RESOURCE_CLAIMS, "ns", "c1", b"{}", subresource="status"))
        await stop_tracing(traces)
    assert transport.tries == 2
    assert [each.name for each in receiver.spans] == ["update resourceclaims/status"]


async def test_a_further_filter_call_begins_a_trace_of_its_own_and_failures_are_marked() -> None:
    with otlp_receiver() as receiver:
        uid, spans = await attempted(receiver, "missing", "n1")
    calls = [each for each in spans if not each.parent]
    first, second = (f"{trace_id(uid, number):032x}" for number in (1, 2))
    assert [each.trace for each in calls] == [first] * 3 + [second] * 3
    (failed, bound) = [each for each in calls if each.name == "bind"]
    assert "missing" in failed.failed
    assert bound.failed == ""


@pytest.mark.real_time(reason="the exporter tries again in a thread of its own, with its own clock")
async def test_a_receiver_that_is_away_costs_no_call_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_SEND_SECONDS", 0.3)
    made = cluster()
    (pod,) = made.store.all(StoredKind.POD)
    async with serving(made, TracingSettings(enabled=True, endpoint="http://127.0.0.1:9/v1/traces")) as client:
        await attempt(client, pod)
    (after,) = made.store.all(StoredKind.POD)
    assert after["spec"]["nodeName"] == "n1"


async def test_texts_of_tenants_are_cut_and_lose_no_batch() -> None:
    with otlp_receiver() as receiver:
        traces = spans_of(TracingSettings(enabled=True, endpoint=receiver.endpoint))
        with pytest.raises(OSError, match="broken"), traces.call("filter", "u-\ud800", text="x" * 5000):
            raise OSError("broken \udfff" + "y" * 5000)
        await stop_tracing(traces)
    (span,) = receiver.spans
    assert span.attributes["k8s.pod.uid"] == "u-?"
    assert len(span.attributes["text"]) == 1024
    assert span.failed.startswith("OSError: broken ?y")
    assert len(span.failed) == 1024


def test_nothing_is_wrapped_and_nothing_is_imported_while_tracing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside `import_module` nobody imports it: pyproject.toml has the contract."""
    monkeypatch.setattr(tracing, "import_module", None)
    made: Any = object()
    assert traced(made, spans_of(TracingSettings())) is made


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ModuleNotFoundError("No module named 'opentelemetry.sdk'", name="opentelemetry.sdk")

    monkeypatch.setattr(tracing, "import_module", missing)
    with pytest.raises(
        InvalidSettingsError, match=r"tracing.enabled .*opentelemetry.sdk is not installed.*dra-extender\[tracing\]"
    ):
        spans_of(TracingSettings(enabled=True))


async def test_a_stop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "STOP_SECONDS", 0.0)
    await stop_tracing(NO_SPANS)
