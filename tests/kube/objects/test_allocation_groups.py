"""Groups in `results[].compatibilityGroups`, over HTTP: written where the schema has the field, once, kept or not."""

import json
from typing import Any

import pytest
from aiohttp import web
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery.discovery import Discovery
from dra_extender.kube.discovery.server_features import Support
from dra_extender.kube.objects.claims import KubeClaims
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import (
    AllocationResult,
    ClaimPlacement,
    DeviceAllocation,
    DeviceHolding,
    DeviceResult,
)
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_claim import ConsumerReference
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.reports import ClaimReports
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.telemetry.metrics import Metrics

from tests.kube.discovery.test_discovery import GROUPS, SCHEMA, group, resources, schema, version
from tests.support.kube.fake_api_server import FakeApiServer, Object

CLAIM = "/apis/resource.k8s.io/v1/namespaces/space/resourceclaims/claim"
POD = ConsumerReference(resource="pods", name="pod", uid="pod-uid")


class StoredClaim:
    """A claim as an API server keeps it: `keeps` tells whether groups stay in results of allocations (the gate is on)."""

    def __init__(self, server: FakeApiServer, *, keeps: bool) -> None:
        self.stored: Object = {
            "metadata": {"name": "claim", "namespace": "space", "uid": "u", "resourceVersion": "1"},
            "spec": {"devices": {"requests": [{"name": "r"}]}},
        }
        self._keeps = keeps
        for method, path, answer in (
            ("GET", CLAIM, self._read),
            ("PATCH", CLAIM, self._patch),
            ("PUT", f"{CLAIM}/status", self._put),
        ):
            server.intervene(method, path, answer, times=9)

    @property
    def raw(self) -> bytes:
        return json.dumps(self.stored).encode()

    def results(self) -> list[Object]:
        found: list[Object] = self.stored["status"]["allocation"]["devices"]["results"]
        return found

    async def _read(self, _: web.Request) -> web.Response:
        return web.json_response(self.stored)

    async def _patch(self, request: web.Request) -> web.Response:
        change = json.loads(await request.read())["metadata"]
        self.stored["metadata"] |= {name: change[name] for name in ("annotations", "finalizers") if name in change}
        return self._next()

    async def _put(self, request: web.Request) -> web.Response:
        self.stored["status"] = json.loads(await request.read())["status"]
        for each in self.results() if not self._keeps else ():
            each.pop("compatibilityGroups", None)
        return self._next()

    def _next(self) -> web.Response:
        metadata = self.stored["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        return web.json_response(self.stored)


def placement() -> ClaimPlacement:
    entry = CounterConsumption(counter_set="s", counters=(("c", 5),), compatibility_groups=("mig",))
    result = DeviceResult(request="r", driver="d.example.com", pool="p", device="g")
    return ClaimPlacement(
        allocation=AllocationResult(
            devices=DeviceAllocation(results=(result,)), allocation_timestamp="2026-01-01T00:00:00Z"
        ),
        holdings=(DeviceHolding(driver="d.example.com", pool="p", device="g", consumption=(entry,)),),
    )


async def allocated(
    server: FakeApiServer, transport: ApiTransport, settings: KubeSettings, claim: StoredClaim, metrics: Metrics
) -> Ledger:
    """Allocate the claim as the service does: what the schema says, then the writes."""
    facts = await Discovery(transport, settings).facts()
    claims = KubeClaims(transport, settings, lambda: facts.allocation_groups is Support.KEPT)
    ledger = Ledger()
    ledger.claim_seen(claim.raw)
    record = ledger.claims.by_uid("u")
    assert record is not None
    await ClaimWriter(ledger, claims, metrics).allocate(record, placement(), POD)
    return ledger


@pytest.fixture
def serving(server: FakeApiServer) -> FakeApiServer:
    server.pages |= {
        "/version": version("38"),
        "/apis/resource.k8s.io": group("v1"),
        "/apis/resource.k8s.io/v1": resources("resourceclaims"),
    }
    return server


def puts(server: FakeApiServer) -> list[Any]:
    sent = [json.loads(each.body) for each in server.requests("PUT", f"{CLAIM}/status")]
    return [each["status"]["allocation"]["devices"]["results"][0].get("compatibilityGroups") for each in sent]


async def test_groups_are_stored_in_the_allocation_where_the_api_has_the_field(
    serving: FakeApiServer, transport: ApiTransport, settings: KubeSettings
) -> None:
    """And they count for a reader that has nothing else: another scheduler, or we after the annotation is gone."""
    serving.pages[SCHEMA] = schema(compatibilityGroups=GROUPS)
    claim, metrics = StoredClaim(serving, keeps=True), Metrics()
    await allocated(serving, transport, settings, claim, metrics)
    assert puts(serving) == [{"s": ["mig"]}]
    assert claim.results()[0]["compatibilityGroups"] == {"s": ["mig"]}
    assert b"stripped_fields_total{" not in await metrics.render()
    del claim.stored["metadata"]["annotations"]
    later = Ledger()
    later.claim_seen(claim.raw)
    (holding,) = later.claims.usage.pool(("d.example.com", "p"))["g"]
    assert [each.compatibility_groups for each in holding.drawn(None)] == [("mig",)]


async def test_groups_that_the_server_drops_are_written_once_and_the_annotation_counts(
    serving: FakeApiServer, transport: ApiTransport, settings: KubeSettings
) -> None:
    """Its schema has the field and its gate is off."""
    serving.pages[SCHEMA] = schema(compatibilityGroups=GROUPS)
    claim, metrics = StoredClaim(serving, keeps=False), Metrics()
    ledger = await allocated(serving, transport, settings, claim, metrics)
    assert puts(serving) == [{"s": ["mig"]}]
    assert b'stripped_fields_total{field="compatibilityGroups"} 1.0' in await metrics.render()
    assert SNAPSHOT_ANNOTATION in claim.stored["metadata"]["annotations"]
    (holding,) = ledger.claims.usage.pool(("d.example.com", "p"))["g"]
    assert holding == placement().holdings[0]


@pytest.mark.parametrize("page", [schema(), schema(compatibilityGroups={"type": "array"}), {}])
async def test_groups_are_kept_in_the_annotation_alone_where_the_api_has_no_such_field(
    serving: FakeApiServer, transport: ApiTransport, settings: KubeSettings, page: Object
) -> None:
    """Although the release is later than any that is known."""
    serving.pages[SCHEMA] = page
    claim = StoredClaim(serving, keeps=True)
    ledger = await allocated(serving, transport, settings, claim, Metrics())
    assert puts(serving) == [None]
    (holding,) = ledger.claims.usage.pool(("d.example.com", "p"))["g"]
    assert holding == placement().holdings[0]


async def test_groups_in_the_allocation_win_over_an_edited_annotation_and_that_is_counted(
    serving: FakeApiServer, transport: ApiTransport, settings: KubeSettings
) -> None:
    serving.pages[SCHEMA] = schema(compatibilityGroups=GROUPS)
    claim = StoredClaim(serving, keeps=True)
    await allocated(serving, transport, settings, claim, Metrics())
    annotations = claim.stored["metadata"]["annotations"]
    annotations[SNAPSHOT_ANNOTATION] = annotations[SNAPSHOT_ANNOTATION].replace('"mig"', '"vgpu"')
    ledger, metrics = Ledger(), Metrics()
    ClaimReports(ledger, MemoryCluster().events, metrics)
    ledger.claim_seen(claim.raw)
    (holding,) = ledger.claims.usage.pool(("d.example.com", "p"))["g"]
    assert [each.compatibility_groups for each in holding.drawn(None)] == [("mig",)]
    assert b"dra_extender_contradicted_snapshots 1.0" in await metrics.render()
    ledger.claim_gone("space", "claim", "u")
    assert b"dra_extender_contradicted_snapshots 0.0" in await metrics.render()
