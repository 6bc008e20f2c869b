import asyncio
import json

from dra_extender.kube.client.backoff import SleepAndJitter
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.endpoint_publisher import EndpointPublisher, ServiceEndpoint

from tests.simulation.api_server import Fault
from tests.simulation.faults import Faults
from tests.support.kube.recording import Sleeper
from tests.support.turns import until


def publisher(
    transport: ApiTransport, settings: KubeSettings, sleeper: Sleeper, address: str = "192.0.2.7"
) -> EndpointPublisher:
    return EndpointPublisher(
        transport,
        settings,
        ServiceEndpoint("space", "extender", address, {"verbs": 8080, "http": 8081}),
        chance=SleepAndJitter(sleep=sleeper),
    )


async def test_the_service_gets_one_ready_endpoint_that_replaces_whatever_was_there(
    faults: Faults, transport: ApiTransport, settings: KubeSettings
) -> None:
    """By an apply that makes or changes the EndpointSlice, again and again."""
    sleeper = Sleeper(limit=3)
    task = asyncio.create_task(publisher(transport, settings, sleeper).keep_publishing())
    await until(lambda: len(sleeper.pauses) == 3)
    task.cancel()
    seen = faults.requests("patch", "endpointslices")
    assert len(seen) == 3
    assert seen[0].headers["content-type"] == "application/apply-patch+yaml"
    assert seen[0].query["force"] == "true"
    body = json.loads(seen[0].body)
    assert body["metadata"]["labels"]["kubernetes.io/service-name"] == "extender"
    assert (body["addressType"], body["endpoints"]) == (
        "IPv4",
        [{"addresses": ["192.0.2.7"], "conditions": {"ready": True}}],
    )
    assert body["ports"] == [
        {"name": "verbs", "port": 8080, "protocol": "TCP"},
        {"name": "http", "port": 8081, "protocol": "TCP"},
    ]


async def test_a_refusal_is_said_and_tried_again(
    faults: Faults, transport: ApiTransport, settings: KubeSettings
) -> None:
    faults.plan("patch", "endpointslices", Fault(refuse=403, message="you may not"), times=2)
    sleeper = Sleeper(limit=2)
    made = publisher(transport, settings, sleeper, "2001:db8::7")
    task = asyncio.create_task(made.keep_publishing())
    await until(lambda: len(sleeper.pauses) == 2)
    assert made.last_error == "apply endpointslices space/extender: 403 Forbidden: you may not"
    assert max(sleeper.pauses) < 1
    assert json.loads(faults.requests("patch", "endpointslices")[0].body)["addressType"] == "IPv6"
    task.cancel()
