"""Groups in `results[].compatibilityGroups`, over HTTP: written where the schema has the field, once, kept or not."""

import json
from typing import Any

import pytest
from dra_extender.kube.claims import KubeClaims
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery import Discovery, Support
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import (
    AllocationResult,
    ClaimPlacement,
    DeviceAllocation,
    DeviceHolding,
    DeviceResult,
)
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_claim import ConsumerReference
from dra_extender.scheduling.binding.reports import ClaimReports
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.served_fields import Served
from dra_extender.telemetry.metrics import Metrics

from tests.kube.discovery.test_discovery import GROUPS, SCHEMA, schema, serve
from tests.simulation.api_discovery import Release
from tests.simulation.api_server import ApiServer
from tests.simulation.faults import Faults

KEY = Key(StoredKind.CLAIM, "space", "claim")
LATER = 38
"""A release that is later than any that is known."""
DROPS, KEEPS = (Release(LATER, Served(frozen_groups=keeps)) for keeps in (False, True))
POD = ConsumerReference(resource="pods", name="pod", uid="pod-uid")


def placement() -> ClaimPlacement:
    entry = CounterConsumption(counter_set="s", counters=(("c", 5),), compatibility_groups=("mig",))
    result = DeviceResult(request="r", driver="d.example.com", pool="p", device="g")
    return ClaimPlacement(
        allocation=AllocationResult(
            devices=DeviceAllocation(results=(result,)), allocation_timestamp="2026-01-01T00:00:00Z"
        ),
        holdings=(DeviceHolding(driver="d.example.com", pool="p", device="g", consumption=(entry,)),),
    )


@pytest.fixture
def release() -> Release:
    """A server that keeps groups in allocations, and says so in its schema, unless a test says otherwise."""
    return KEEPS


async def allocated(server: ApiServer, transport: ApiTransport, settings: KubeSettings, metrics: Metrics) -> Ledger:
    """Allocate the claim as the service does: what the schema says, then the writes."""
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    server.store.create(KEY.kind, {"metadata": {"name": "claim", "namespace": "space", "uid": "u"}, "spec": spec})
    facts = await Discovery(transport, settings).facts()
    claims = KubeClaims(transport, settings, lambda: facts.allocation_groups is Support.KEPT)
    ledger = Ledger()
    ledger.claim_seen(server.store.read(KEY))
    record = ledger.claims.by_uid("u")
    assert record is not None
    await ClaimWriter(ledger, claims, metrics).allocate(record, placement(), POD)
    return ledger


def sent(faults: Faults) -> list[Any]:
    """The groups of each write of an allocation."""
    writes = [json.loads(each.body) for each in faults.requests("update", "resourceclaims/status")]
    return [each["status"]["allocation"]["devices"]["results"][0].get("compatibilityGroups") for each in writes]


async def test_groups_are_stored_in_the_allocation_where_the_api_has_the_field(
    server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings
) -> None:
    """And they count for a reader that has nothing else: another scheduler, or we after the annotation is gone."""
    metrics = Metrics()
    await allocated(server, transport, settings, metrics)
    assert sent(faults) == [{"s": ["mig"]}]
    assert b"stripped_fields_total{" not in await metrics.render()
    server.store.edit_unchecked(KEY, lambda claim: claim["metadata"].pop("annotations"))
    later = Ledger()
    later.claim_seen(server.store.read(KEY))
    (holding,) = later.claims.usage.pool(("d.example.com", "p"))["g"]
    assert [each.compatibility_groups for each in holding.drawn(None)] == [("mig",)]


@pytest.mark.parametrize("release", [DROPS])
async def test_groups_that_the_server_drops_are_written_once_and_the_annotation_counts(
    server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings
) -> None:
    """Its schema has the field and its gate is off."""
    serve(faults, {SCHEMA: schema(compatibilityGroups=GROUPS)})
    metrics = Metrics()
    ledger = await allocated(server, transport, settings, metrics)
    assert sent(faults) == [{"s": ["mig"]}]
    assert b'stripped_fields_total{field="compatibilityGroups"} 1.0' in await metrics.render()
    assert SNAPSHOT_ANNOTATION in server.store.get(KEY)["metadata"]["annotations"]
    (holding,) = ledger.claims.usage.pool(("d.example.com", "p"))["g"]
    assert holding == placement().holdings[0]


@pytest.mark.parametrize("page", [schema(), schema(compatibilityGroups={"type": "array"}), {}])
async def test_groups_are_kept_in_the_annotation_alone_where_the_api_has_no_such_field(
    server: ApiServer, faults: Faults, transport: ApiTransport, settings: KubeSettings, page: Json
) -> None:
    serve(faults, {SCHEMA: page})
    ledger = await allocated(server, transport, settings, Metrics())
    assert sent(faults) == [None]
    (holding,) = ledger.claims.usage.pool(("d.example.com", "p"))["g"]
    assert holding == placement().holdings[0]


async def test_groups_in_the_allocation_win_over_an_edited_annotation_and_that_is_counted(
    server: ApiServer, transport: ApiTransport, settings: KubeSettings
) -> None:
    def edit(claim: Json) -> None:
        annotations = claim["metadata"]["annotations"]
        annotations[SNAPSHOT_ANNOTATION] = annotations[SNAPSHOT_ANNOTATION].replace('"mig"', '"vgpu"')

    await allocated(server, transport, settings, Metrics())
    server.store.edit_unchecked(KEY, edit)
    ledger, metrics = Ledger(), Metrics()
    ClaimReports(ledger, MemoryCluster().events, metrics)
    ledger.claim_seen(server.store.read(KEY))
    (holding,) = ledger.claims.usage.pool(("d.example.com", "p"))["g"]
    assert [each.compatibility_groups for each in holding.drawn(None)] == [("mig",)]
    assert b"dra_extender_contradicted_snapshots 1.0" in await metrics.render()
    ledger.claim_gone("space", "claim", "u")
    assert b"dra_extender_contradicted_snapshots 0.0" in await metrics.render()
