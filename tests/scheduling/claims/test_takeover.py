"""A new process takes the snapshots off claims that have no allocation, and no tenant or webhook can keep it from deciding."""

import asyncio

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.writer import MOST_SECONDS, ClaimWriter
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.seam import Seam
from tests.support.scheduling.world import InMemoryExtender

pytestmark = pytest.mark.virtual_time


def prepared(world: InMemoryExtender, name: str, namespace: str = "default") -> None:
    world.create(
        StoredKind.CLAIM,
        {
            "metadata": {"name": name, "namespace": namespace, "annotations": {SNAPSHOT_ANNOTATION: "{}"}},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
        },
    )


def left(world: InMemoryExtender) -> list[str]:
    claims = (each["metadata"] for each in world.cluster.store.all(StoredKind.CLAIM))
    return sorted(meta["name"] for meta in claims if SNAPSHOT_ANNOTATION in meta.get("annotations", {}))


async def test_a_claim_without_allocation_loses_its_snapshot_and_an_allocated_one_keeps_it() -> None:
    world = InMemoryExtender().furnish(n1=1, p="allocated")
    await world.bind_through("p", "n1")
    prepared(world, "open")
    world.start()

    await ClaimWriter(world.ledger, world.cluster.claims, world.metrics).withdraw_snapshots()

    assert left(world) == ["allocated"]


async def test_a_write_without_an_answer_is_made_again() -> None:
    world = InMemoryExtender()
    prepared(world, "open")
    claims = Seam(world.cluster.claims).before("update", ServerUnavailableError("away"), ServerUnavailableError("away"))

    await ClaimWriter(world.ledger, claims, world.metrics).withdraw_snapshots()

    assert left(world) == []


async def test_claims_of_one_namespace_do_not_keep_those_of_others_waiting() -> None:
    world = InMemoryExtender()
    for number in range(100):
        prepared(world, f"forged-{number:03}", "hostile")
    prepared(world, "open")
    claims = Seam(world.cluster.claims)
    claims.before("update", *[None] * 16, *[asyncio.Event().wait] * 100)
    began = asyncio.get_running_loop().time()

    await ClaimWriter(world.ledger, claims, world.metrics).withdraw_snapshots()

    assert asyncio.get_running_loop().time() - began == pytest.approx(MOST_SECONDS)
    assert "open" not in left(world)
    assert len(left(world)) == 101 - 16
