"""Giving back what a claim has, for whoever no longer uses it: nothing else goes, whatever happened meanwhile."""

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.world import DRIVER, InMemoryExtender

KEY = Key(StoredKind.CLAIM, "default", "c1")


@pytest.fixture
async def world() -> InMemoryExtender:
    world = InMemoryExtender().furnish(n1=2, p1="c1", p2="c1")
    for pod in ("p1", "p2"):
        await world.bind_through(pod, "n1")
    return world


def writing(world: InMemoryExtender) -> ClaimWriter:
    return ClaimWriter(world.ledger, world.cluster.claims, world.metrics)


async def test_allocation_and_snapshot_go_with_the_last_reservation_and_the_finalizer_stays(
    world: InMemoryExtender,
) -> None:
    assert await writing(world).release(world.known_claim("c1"), (world.uid("p1"), world.uid("p2")))
    claim = world.claim("c1")
    assert "allocation" not in claim["status"]
    assert not claim["status"].get("reservedFor")
    assert SNAPSHOT_ANNOTATION not in claim["metadata"]["annotations"]
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert not world.ledger.claims.usage.pool((DRIVER, "n1"))


@pytest.mark.parametrize("consumers", [(), ("somebody",)])
async def test_nothing_is_written_for_those_who_have_nothing(
    world: InMemoryExtender, consumers: tuple[str, ...]
) -> None:
    version = world.cluster.store.version
    assert not await writing(world).release(world.known_claim("c1"), consumers)
    assert world.cluster.store.version == version


async def test_what_was_reserved_meanwhile_is_seen_and_kept(world: InMemoryExtender) -> None:
    """The release was decided about an older state of the claim."""
    known = world.known_claim("c1")
    later = {"resource": "pods", "name": "p3", "uid": "later"}
    world.cluster.store.edit_unchecked(KEY, lambda claim: claim["status"]["reservedFor"].append(later))
    assert not await writing(world).release(known, (world.uid("p1"), world.uid("p2")))
    assert [each["uid"] for each in world.claim("c1")["status"]["reservedFor"]] == ["later"]
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_another_allocation_than_the_one_that_was_looked_at_stays(world: InMemoryExtender) -> None:
    known = world.known_claim("c1")

    def again(claim: Json) -> None:
        claim["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-1"

    world.cluster.store.edit_unchecked(KEY, again)
    assert not await writing(world).release(known, (world.uid("p1"), world.uid("p2")))
    assert world.devices("c1") == ["n1/gpu-1"]


async def test_claim_that_is_gone_has_nothing_left_to_release(world: InMemoryExtender) -> None:
    known = world.known_claim("c1")
    world.cluster.store.edit_unchecked(KEY, lambda claim: claim["metadata"].pop("finalizers"))
    world.cluster.store.delete(KEY)
    assert await writing(world).release(known, (world.uid("p1"),))
