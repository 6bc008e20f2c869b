"""Shares of one device (KEP-5075) between pods: each share has a name of its own, and together they take no more than there is."""

import asyncio

import pytest
from dra_extender.model.fields import Gate
from dra_extender.model.resource_claim import claim_from
from dra_extender.model.resource_slice import SliceReader
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, StoredKind
from dra_extender.simulator.apiserver.served_fields import Served

from tests.support.audit.raw_objects import audit
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import DRIVER, InMemoryExtender
from tests.support.turns import turns

LIMIT = {"memory": {"value": "8Gi"}}


WANTED = {"requests": {"memory": "3Gi"}}


@pytest.fixture
def world() -> InMemoryExtender:
    world = InMemoryExtender()
    for node in ("n1", "n2"):
        world.node(node)
        world.slice(node, [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": LIMIT}])
    world.device_class()
    for index in range(3):
        world.add_claim(f"c{index}", capacity=WANTED)
        world.add_pod(f"p{index}", f"c{index}")
    return world


def result(world: InMemoryExtender, claim: str) -> Json:
    found: Json = world.claim(claim)["status"]["allocation"]["devices"]["results"][0]
    return found


def held_shares(world: InMemoryExtender) -> list[str | None]:
    pools = world.ledger.holds.held_usage
    return [each.share_id for node in ("n1", "n2") for each in pools.pool((DRIVER, node)).get("gpu-0", ())]


async def test_replicas_that_share_a_device_get_different_share_ids(world: InMemoryExtender) -> None:
    """Although both are given the same remembered answer."""
    async with world.watching():
        for pod in ("p0", "p1"):
            assert "n1" in (await world.filter(pod, "n1")).fitting
        shares = held_shares(world)
        assert len(set(shares)) == len(shares) == 2
        assert None not in shares
        await asyncio.gather(world.bind("p0", "n1"), world.bind("p1", "n1"))

    first, second = result(world, "c0"), result(world, "c1")
    assert first["device"] == second["device"] == "gpu-0"
    assert first["consumedCapacity"] == second["consumedCapacity"] == {"memory": "3Gi"}
    assert first["shareID"] != second["shareID"]
    assert first["shareID"] in shares
    assert findings(world) == []


async def test_one_pod_has_another_share_id_on_each_node_it_is_offered(world: InMemoryExtender) -> None:
    await world.filter("p0", "n1", "n2")
    assert len(set(held_shares(world))) == 2


async def test_held_shares_count_against_the_capacity(world: InMemoryExtender) -> None:
    for pod in ("p0", "p1"):
        await world.filter(pod, "n1")
    answer = await world.filter("p2", "n1")
    assert list(answer.fitting) == []
    assert list((await world.filter("p2", "n1", "n2")).fitting) == ["n2"]


async def test_share_in_a_pool_that_every_node_reaches_is_held_once(world: InMemoryExtender) -> None:
    """Two fit into the device beside each other, though each is offered two nodes; a third does not."""
    for node in ("n1", "n2"):
        world.delete(StoredKind.SLICE, f"{node}-devices")
    world.fabric({"name": "gpu-0", "allowMultipleAllocations": True, "capacity": LIMIT})
    for pod in ("p0", "p1"):
        assert set((await world.filter(pod, "n1", "n2")).fitting) == {"n1", "n2"}
    assert list((await world.filter("p2", "n1", "n2")).fitting) == []
    async with world.watching():
        await asyncio.gather(world.bind("p0", "n1"), world.bind("p1", "n2"))
    assert findings(world) == []


async def test_bind_without_a_hold_names_its_share(world: InMemoryExtender) -> None:
    async with world.watching():
        await world.bind("p0", "n1")
        await world.bind("p1", "n1")
        with pytest.raises(
            RetryableError, match="capacity does not suffice: gpu-0 has 2Gi of memory left, 3Gi would be needed"
        ):
            await world.bind("p2", "n1")
    assert result(world, "c0")["shareID"] != result(world, "c1")["shareID"]
    assert findings(world) == []


def findings(world: InMemoryExtender) -> list[str]:
    store, reader = world.cluster.store, SliceReader()
    claims = [claim_from(each) for each in store.all(StoredKind.CLAIM)]
    slices = [reader.convert(each) for each in store.all(StoredKind.SLICE)]
    return [str(each) for each in audit(claims, slices, [], []) if each.rule != "reservation of nobody"]


@pytest.mark.parametrize("field", ["shareID", "consumedCapacity"])
async def test_share_that_the_server_does_not_keep_is_taken_back(world: InMemoryExtender, field: str) -> None:
    """Without its id the share would hold the device whole; without its amounts others would be given too much."""

    class Forgetful(Served, frozen=True):
        def strip(self, kind: StoredKind, thing: Json) -> None:
            for each in thing.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
                each.pop(field, None)

    world.cluster.store._served = Forgetful()
    async with world.watching():
        with pytest.raises(
            RetryableError, match=f"does not keep {field} of a share .* device gpu.example.com/n1/gpu-0"
        ):
            await world.bind("p0", "n1")
    claim = world.claim("c0")
    assert "allocation" not in claim["status"]
    assert not claim["status"].get("reservedFor")
    assert not world.ledger.usage().pool((DRIVER, "n1"))
    assert not world.node_of("p0")


async def test_share_that_the_server_did_not_keep_is_taken_back_even_if_the_answer_was_lost(
    world: InMemoryExtender,
) -> None:
    world.cluster.store._served = Served(off=frozenset({Gate.CONSUMABLE_CAPACITY}))
    restart(world, claims=Seam(world.cluster.claims).after("update_status", ServerUnavailableError("connection lost")))
    async with world.watching():
        await world.cluster.watch.caught_up()
        with pytest.raises(RetryableError, match="does not keep shareID"):
            await world.bind("p0", "n1")
    assert "allocation" not in world.claim("c0")["status"]


@pytest.mark.parametrize(("memory", "yields"), [("5Gi", False), ("6Gi", True)])
async def test_share_yields_when_another_writer_has_given_away_too_much(
    world: InMemoryExtender, *, memory: str, yields: bool
) -> None:
    """The foreign write is stored first, but our watch brings it only after we decided."""
    stored = world.claim("c2")
    foreign: Json = {
        "request": "req",
        "driver": DRIVER,
        "pool": "n1",
        "device": "gpu-0",
        "shareID": "00000000-0000-4000-8000-000000000001",
        "consumedCapacity": {"memory": memory},
    }
    stored["status"] = {"allocation": {"devices": {"results": [foreign]}}}
    world.cluster.store.update_status(StoredKind.CLAIM, stored)  # not delivered to our watch yet
    bind = asyncio.create_task(world.bind("p0", "n1"))
    await turns()
    async with world.watching():
        if yields:
            with pytest.raises(
                RetryableError, match="another writer allocated capacity gpu\\.example\\.com/n1/gpu-0 first"
            ):
                await bind
        else:
            await bind
    assert ("allocation" not in world.claim("c0").get("status", {})) is yields


async def test_a_share_that_claims_to_have_less_than_nothing_leaves_others_no_more_than_there_is(
    world: InMemoryExtender,
) -> None:
    """API servers do not look at consumedCapacity, and some users write the status of their claims."""
    for name, amount, number in (("forged", "-1000Gi", 1), ("honest", "6Gi", 2)):
        world.add_claim(name, capacity=WANTED)
        share = {"shareID": f"00000000-0000-4000-8000-00000000000{number}", "consumedCapacity": {"memory": amount}}
        found = {"request": "req", "driver": DRIVER, "pool": "n1", "device": "gpu-0", **share}
        allocated = world.claim(name) | {"status": {"allocation": {"devices": {"results": [found]}}}}
        world.cluster.store.update_status(StoredKind.CLAIM, allocated)
    world.sync()

    answer = await world.filter("p0", "n1")

    assert answer.unresolvable == {"n1": 'node(s): claim "c0", request "req": capacity does not suffice'}
