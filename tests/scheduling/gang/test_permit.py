"""No member of a gang is bound before enough of them have all they need, and nobody waits for ever."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import Notifier
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.gang import permit
from dra_extender.scheduling.gang.members import GangSnapshot, take_snapshot
from dra_extender.scheduling.ports.cluster import RequestRejectedError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.controllers.claims import ClaimController

from tests.controlplane import objects
from tests.support.model.reading import pod_from
from tests.support.scheduling.adversity import edit
from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import DRIVER
from tests.support.turns import turns


@pytest.fixture
async def world() -> AsyncIterator[GangExtender]:
    made = GangExtender()
    made.cards("n1", 2)
    made.gang("g", 3, "half", "abc")
    async with made.watching():
        yield made


async def offered(world: GangExtender) -> None:
    assert await world.ask("abc", "n1") == {"a": ["n1"], "b": ["n1"], "c": ["n1"]}


async def test_claims_are_written_but_nobody_is_bound_before_enough_came(world: GangExtender) -> None:
    await offered(world)
    first = [asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"]
    await turns()
    assert not any(bind.done() for bind in first)
    assert world.devices("a")
    assert world.devices("b")
    assert not any(world.node_of(pod) for pod in "abc")
    await asyncio.gather(*first, world.bind("c", "n1"))
    assert all(world.node_of(pod) for pod in "abc")


@pytest.mark.parametrize("long_ago", [False, True])
async def test_a_gang_whose_members_are_all_replaced_meets_again(world: GangExtender, *, long_ago: bool) -> None:
    """As a Job does that starts its pods anew in the same PodGroup; `long_ago`: too many pods were deleted since."""
    await offered(world)
    await asyncio.gather(*(world.bind(pod, "n1") for pod in "abc"))
    for pod in "abc":
        world.delete(StoredKind.POD, pod)
    ClaimController(world.cluster.store).reconcile()
    world.sync()
    if long_ago:
        world.ledger.pods._deleted.clear()
    for pod in "def":
        world.member("g", pod, "half")
    assert await world.ask("def", "n1") == {"d": ["n1"], "e": ["n1"], "f": ["n1"]}
    first = [asyncio.create_task(world.bind(pod, "n1")) for pod in "de"]
    await turns()
    assert not any(bind.done() for bind in first)
    await asyncio.gather(*first, world.bind("f", "n1"))
    assert all(world.node_of(pod) for pod in "def")


async def test_a_member_whose_caller_has_hung_up_meets_the_others_in_its_next_bind(world: GangExtender) -> None:
    await offered(world)
    hung_up = asyncio.Event()
    first = asyncio.create_task(world.bind("a", "n1", hung_up))
    await turns()
    hung_up.set()
    with pytest.raises(RetryableError, match="nobody waits for the bind"):
        await first
    assert world.devices("a")
    again = asyncio.create_task(world.bind("a", "n1"))
    await turns()
    assert not again.done()
    await asyncio.gather(again, world.bind("b", "n1"), world.bind("c", "n1"))
    assert all(world.node_of(pod) for pod in "abc")


async def test_a_deleted_member_ends_its_own_wait_only(world: GangExtender) -> None:
    await offered(world)
    first = {pod: asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"}
    await turns()
    world.delete(StoredKind.POD, "a")
    with pytest.raises(RetryableError, match="does not exist any more"):
        await asyncio.wait_for(first["a"], 60)
    assert not first["b"].done()
    first["b"].cancel()


async def test_a_member_that_fails_before_it_is_bound_ends_its_own_wait_only(world: GangExtender) -> None:
    """Or it would be one of those with which the gang starts."""
    await offered(world)
    first = {pod: asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"}
    await turns()
    world.cluster.store.edit_unchecked(
        Key(StoredKind.POD, "default", "a"), lambda pod: pod["status"].update(phase="Failed")
    )
    await turns()
    last = asyncio.create_task(world.bind("c", "n1"))
    with pytest.raises(RetryableError, match="pod default/a is over already"):
        await asyncio.wait_for(first["a"], 5)
    await turns()
    assert not any(world.node_of(pod) for pod in "abc")
    for bind in (first["b"], last):
        bind.cancel()


async def test_too_few_members_give_up_in_words() -> None:
    world = GangExtender()
    world.options = world.short_binding()
    world.start()
    world.cards("n1", 2)
    world.gang("g", 2, "half", "ab")
    async with world.watching():
        await world.ask("ab", "n1")
        bind = asyncio.create_task(world.bind("a", "n1"))
        await turns()
        assert not bind.done()
        world.clock.seconds += world.options.binding_timeout_seconds
        with pytest.raises(RetryableError, match="PodGroup g: 1 of 2 members came to be bound within"):
            await asyncio.wait_for(bind, 60)
    assert not world.node_of("a")


async def test_a_claim_that_cannot_be_released_keeps_no_other_claim_and_hides_no_reason() -> None:
    world = GangExtender()
    world.options = world.short_binding()
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    world.cards("n1", 2)
    world.gang("g", 2)
    world.add_claim("first")
    world.add_claim("second")
    world.add_member("g", "a", "first", "second")
    async with world.watching():
        bind = asyncio.create_task(world.bind("a", "n1"))
        await turns()
        assert world.devices("first")
        assert world.devices("second")
        claims.before("update_status", RequestRejectedError("refused by a webhook"))
        world.clock.seconds += world.options.binding_timeout_seconds
        with pytest.raises(RetryableError, match="PodGroup g: 1 of 2 members came to be bound within"):
            await asyncio.wait_for(bind, 60)
    assert world.devices("first")
    assert not world.devices("second")


async def test_members_whose_group_is_gone_wait_for_nobody(world: GangExtender) -> None:
    await offered(world)
    first = asyncio.create_task(world.bind("a", "n1"))
    await turns()
    assert world.extender.permit.waiting_gang("g-uid") is not None
    sinks_of(world.ledger)["podgroups"].deleted("default", "g", "g-uid")
    assert world.extender.permit.waiting_gang("g-uid") is None
    first.cancel()


@pytest.mark.parametrize("claims", [(), ("card",)])
async def test_a_member_whose_group_the_watch_has_not_brought_is_not_bound_by_itself(claims: tuple[str, ...]) -> None:
    """Its gang would start with it, whether or not the others can come."""
    world = GangExtender()
    world.options = dataclasses.replace(world.options, pod_group_claims=False)
    world.start()
    world.cards("n1", 2)
    world.add_claim("card")
    world.silence("podgroups")
    world.add_group("late", 2)
    world.add_member("late", "member", *claims)
    with pytest.raises(RetryableError, match="PodGroup default/late is not known yet"):
        await world.bind("member", "n1")
    assert not world.node_of("member")


async def test_members_without_devices_wait_with_the_others(world: GangExtender) -> None:
    await offered(world)
    world.add_member("g", "plain")
    plain = asyncio.create_task(world.bind("plain", "n1"))
    await turns()
    assert not plain.done()
    await asyncio.gather(plain, world.bind("a", "n1"), world.bind("b", "n1"))
    assert all(world.node_of(pod) for pod in ("plain", "a", "b"))


async def test_members_at_the_gate_give_their_devices_back_when_the_others_do_not_fit(world: GangExtender) -> None:
    """Or two gangs of which each has some would wait for each other."""
    await offered(world)
    first = [asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"]
    await turns()
    assert world.devices("a")
    world.delete(StoredKind.SLICE, "n1-devices")
    world.sync()
    assert await world.ask("c", "n1") == {"c": []}
    for bind in first:
        with pytest.raises(RetryableError, match="PodGroup g: the other members do not fit at present"):
            await bind
    world.sync()
    assert not world.devices("a")
    assert not world.devices("b")


async def test_a_member_too_many_does_not_send_the_others_away(world: GangExtender) -> None:
    await offered(world)
    first = [asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"]
    await turns()
    world.member("g", "big", "whole")
    world.member("g", "bigger", "whole")
    world.sync()
    await world.ask(["big", "bigger"], "n1")
    assert not any(bind.done() for bind in first)
    await asyncio.gather(*first, world.bind("c", "n1"))
    assert all(world.node_of(pod) for pod in "abc")


async def test_judgements_of_many_gangs_take_a_small_share_of_time_and_leave_no_gang_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, judged = GangExtender(), Counter[str]()

    def costly_snapshot(group: PodGroup, ledger: Ledger, budget: CallBudget) -> GangSnapshot:
        judged[group.metadata.name] += 1
        world.clock.seconds += 0.01
        return take_snapshot(group, ledger, budget)

    monkeypatch.setattr(permit, "take_snapshot", costly_snapshot)
    recheck, waits = Notifier(), []
    for gang in range(50):
        world.gang(f"g{gang}", 2)
        for pod in "ab":
            world.member(f"g{gang}", f"{gang}-{pod}", "half")
        member = pod_from(world.pod(f"{gang}-a"))
        waits.append(asyncio.create_task(waited(world, member, recheck)))
    begun = world.clock.seconds
    for _ in range(30):
        world.clock.seconds += 2
        recheck.fire()
        await turns()
    elapsed = world.clock.seconds - begun
    assert 0.04 * elapsed < 0.01 * judged.total() < 0.06 * elapsed + 0.1
    assert set(judged.values()) <= {judged.total() // 50, judged.total() // 50 + 1}
    assert not any(wait.done() for wait in waits)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def nothing() -> None:
    """Find nothing that keeps a member from being bound."""


async def waited(world: GangExtender, member: Pod, recheck: Notifier) -> None:
    async with world.extender.permit.wait(member, 600.0, nothing, recheck):
        pass


async def test_a_member_that_loses_its_device_at_the_gate_is_not_counted(world: GangExtender) -> None:
    """Or its gang would start without it."""
    await world.extender.start()
    await offered(world)
    first = {pod: asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"}
    await turns()
    (device,) = world.devices("a")
    world.allocate_foreign(device.partition("/")[2])
    await turns()
    last = asyncio.create_task(world.bind("c", "n1"))
    await turns()
    with pytest.raises(RetryableError, match="another writer allocated"):
        await first["a"]
    assert not any(world.node_of(pod) for pod in "abc")
    for bind in (first["b"], last):
        bind.cancel()
    await world.extender.stop()


async def test_a_member_whose_claim_is_deallocated_at_the_gate_is_not_counted(world: GangExtender) -> None:
    await offered(world)
    first = {pod: asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"}
    await turns()
    edit(world, lambda claim: claim["status"].clear(), "a")()
    await turns()
    last = asyncio.create_task(world.bind("c", "n1"))
    with pytest.raises(RetryableError, match="claim default/a was deallocated while pod default/a waited for it"):
        await first["a"]
    await turns()
    assert not any(world.node_of(pod) for pod in "abc")
    for bind in (first["b"], last):
        bind.cancel()


def unlabel(world: GangExtender) -> None:
    world.update(
        StoredKind.NODE, {**world.cluster.store.get(Key(StoredKind.NODE, "", "n1")), "metadata": {"name": "n1"}}
    )


def shrink(world: GangExtender) -> None:
    raw = world.cluster.store.get(Key(StoredKind.SLICE, "", "labelled-counters"))
    for counter_set in raw["spec"]["sharedCounters"]:
        counter_set["counters"]["units"]["value"] = "0"
    world.update(StoredKind.SLICE, raw)


def move(world: GangExtender) -> None:
    edit(world, lambda claim: claim["status"]["allocation"].update(nodeSelector=objects.on_node("n2")), "a")()


def delete(world: GangExtender) -> None:
    edit(world, lambda claim: claim["metadata"].update(finalizers=[]), "a")()
    world.delete(StoredKind.CLAIM, "a")


def release(world: GangExtender) -> None:
    """Another member has begun to release the claim."""
    world.extender.binder.unreserve._releasing.add((world.known_claim("a").claim.metadata.uid, world.uid("a")))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (unlabel, "node n1 cannot be used any more"),
        (shrink, "less is published than was allocated"),
        (move, "node n1 cannot be used any more"),
        (delete, "was deallocated while"),
        (release, "was deallocated while"),
    ],
)
async def test_what_changes_between_two_looks_of_a_waiting_member_is_seen(
    change: Callable[[GangExtender], None], reason: str
) -> None:
    """A look in which nothing has changed since the one before looks at nothing."""
    world = GangExtender()
    world.create(StoredKind.NODE, {"metadata": {"name": "n1", "labels": {"rack": "r1"}}})
    in_rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    pool = {"name": "labelled", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": DRIVER, "pool": pool, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [in_rack]}]}}
    counters = [{"name": "card", "counters": {"units": {"value": "2"}}}]
    devices = [
        {"name": f"gpu-{index}", "consumesCounters": [{"counterSet": "card", "counters": {"units": {"value": "1"}}}]}
        for index in range(2)
    ]
    world.create(
        StoredKind.SLICE, {"metadata": {"name": "labelled-counters"}, "spec": {**spec, "sharedCounters": counters}}
    )
    world.create(StoredKind.SLICE, {"metadata": {"name": "labelled-devices"}, "spec": {**spec, "devices": devices}})
    world.gang("g", 2, members="ab")
    async with world.watching():
        assert await world.ask("ab", "n1") == {"a": ["n1"], "b": ["n1"]}
        first = asyncio.create_task(world.bind("a", "n1"))
        await turns()
        world.extender.binder.recheck()
        await turns()
        assert not first.done()
        change(world)
        await turns()
        world.extender.binder.recheck()
        with pytest.raises(RetryableError, match=reason):
            await asyncio.wait_for(first, 5)
    assert not world.node_of("a")


async def test_a_conflict_that_a_bound_pod_keeps_from_being_mended_is_mended_once_this_pod_is_gone(
    world: GangExtender,
) -> None:
    """Nothing about the claim has changed by then."""
    world.add_claim("shared", selector=f'device.attributes["{DRIVER}"].size == "half"')
    world.add_pod("other", "shared")
    await world.bind_through("other", "n1")
    (device,) = world.devices("shared")
    world.allocate_foreign(device.partition("/")[2])
    world.gang("h", 2)
    world.add_member("h", "x", "shared")
    world.add_member("h", "y", "shared")
    await turns()
    first = asyncio.create_task(world.bind("x", "n1"))
    await turns()
    assert not first.done()
    world.delete(StoredKind.POD, "other")
    await turns()
    world.extender.binder.recheck()
    with pytest.raises(RetryableError, match="another writer allocated"):
        await asyncio.wait_for(first, 5)


async def test_members_at_the_gate_meet_those_of_the_group_that_replaces_theirs(world: GangExtender) -> None:
    await offered(world)
    first = [asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"]
    await turns()
    world.gang("g", 3, uid="another")
    last = asyncio.create_task(world.bind("c", "n1"))
    world.extender.binder.recheck()
    await turns()
    again = []
    for pod, bind in zip("ab", first, strict=True):
        with pytest.raises(RetryableError, match="PodGroup default/g was replaced"):
            await asyncio.wait_for(bind, 5)
        again.append(asyncio.create_task(world.bind(pod, "n1")))
    await asyncio.gather(last, *again)
    assert all(world.node_of(pod) for pod in "abc")
