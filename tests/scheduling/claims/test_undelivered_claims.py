"""A claim that exists is not called missing because the watch has not brought it yet; what pods may have asked is limited."""

import asyncio
from typing import Any

import pytest
from dra_extender.scheduling.claims.live_reads import QUESTIONS_BURST, UndeliveredClaims
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.time_slices import TimeSlices
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.model.reading import pod_from
from tests.support.scheduling.seam import Seam
from tests.support.scheduling.world import InMemoryExtender

MISSING = 'node(s): claim "c" does not exist'


def prepared(seconds: float = 5.0) -> tuple[InMemoryExtender, Seam]:
    """A node with two devices, and the calls to the API server's claims."""
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, new_claim_wait_seconds=seconds))
    seam: Any = Seam(world.cluster.claims)
    world.claims = seam
    world.start()
    return world.furnish(n0=2), seam


def create_unwatched(world: InMemoryExtender, name: str = "c") -> None:
    """A claim that the API server has and the watch has not brought."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    world.cluster.store.create(StoredKind.CLAIM, {"metadata": {"name": name}, "spec": spec})


async def test_a_pod_gets_its_node_when_the_watch_brings_its_claims_a_moment_later() -> None:
    world, seam = prepared()
    world.add_pod("p", "a", "b")
    for name in ("a", "b"):
        create_unwatched(world, name)
    seam.after("read", world.sync)
    answer = await world.filter("p", "n0")
    assert list(answer.fitting) == ["n0"]
    assert world.messages("p") == []
    assert seam.calls == ["read"]


async def test_the_filter_waits_for_the_watch() -> None:
    world, seam = prepared()
    world.add_pod("p", "c")
    create_unwatched(world)
    seam.after("read", lambda: asyncio.get_running_loop().call_later(0.03, world.sync))
    assert list((await world.filter("p", "n0")).fitting) == ["n0"]


async def test_a_claim_that_does_not_come_in_time_is_no_reason_to_call_the_pod_unschedulable() -> None:
    world, _ = prepared(seconds=0.02)
    world.add_pod("p", "c")
    create_unwatched(world)
    with pytest.raises(RetryableError, match="claim default/c is not known yet: the watch has not brought it within"):
        await world.filter("p", "n0")
    assert world.messages("p") == []
    assert not world.extender.unschedulable.uids


async def test_an_api_server_that_cannot_be_asked_is_no_reason_to_call_the_pod_unschedulable() -> None:
    world, seam = prepared()
    world.add_pod("p", "c")
    seam.before("read", ServerUnavailableError("no answer"))
    with pytest.raises(RetryableError, match="claim default/c is not known yet: no answer"):
        await world.filter("p", "n0")


async def test_an_api_server_that_does_not_answer_holds_the_scheduler_up_for_no_longer_than_the_wait() -> None:
    world, seam = prepared(seconds=0.02)
    world.add_pod("p", "c")
    seam.before("read", asyncio.Event().wait)
    with pytest.raises(RetryableError, match="is not known yet"):
        await world.filter("p", "n0")


async def test_a_claim_that_does_not_exist_is_missing_at_once() -> None:
    world, seam = prepared()
    world.add_pod("p", "c")
    answer = await world.filter("p", "n0")
    assert set(answer.unresolvable.values()) == {MISSING}
    assert world.messages("p") == [
        '1 of 1 nodes: claim "c" does not exist: default/c (on n0). More: kubectl dra why p -n default'
    ]
    assert seam.calls == ["read"]


async def test_the_pods_of_a_namespace_cause_so_many_questions_and_no_more() -> None:
    world, seam = prepared()
    world.add_pod("p", "c")
    for _ in range(int(QUESTIONS_BURST) + 5):
        assert (await world.filter("p", "n0")).unresolvable
    assert len(seam.calls) == QUESTIONS_BURST


async def test_without_the_wait_nobody_is_asked() -> None:
    world, seam = prepared(seconds=0.0)
    world.add_pod("p", "c")
    create_unwatched(world)
    assert (await world.filter("p", "n0")).unresolvable
    assert seam.calls == []


async def test_a_namespace_that_has_waited_for_more_than_its_share_of_time_waits_no_more() -> None:
    world, seam = prepared(seconds=0.02)
    world.add_pod("p", "c")
    world.add_pod("q", "c")
    create_unwatched(world)

    def late() -> None:
        world.clock.seconds += 5.0

    seam.after("read", late)
    with pytest.raises(RetryableError, match="is not known yet"):
        await world.filter("p", "n0")
    assert (await world.filter("q", "n0")).unresolvable
    assert seam.calls == ["read"]


async def test_nothing_is_evaluated_again_for_a_pod_that_lacks_no_claim() -> None:
    """As where the claim of another member of its gang is missing, or its PodGroup declares no claim of the wanted name."""
    world, seam = prepared()
    world.add_claim("c")
    world.add_pod("p", "c")
    pod = pod_from(world.pod("p"))
    slices = TimeSlices(world.clock, world.options, world.metrics, world.ledger.pods)
    undelivered = UndeliveredClaims(world.ledger, world.claims or world.cluster.claims, slices, world.options)
    assert not await undelivered.wait_for_delivery(pod, slices.begin(pod, 4.0))
    assert seam.calls == []
