"""What others do to pods, claims, nodes and the API server while a bind is at work: it ends well or in words, nothing is lost."""

import asyncio
from collections.abc import Callable

import pytest

from app.model.resource_claim import FINALIZER
from app.model.snapshot import SNAPSHOT_ANNOTATION
from app.scheduling.answers import TryAgain
from app.scheduling.options import Options
from app.scheduling.ports import Conflict, Refused, Unavailable
from app.simulator.objects import Json, Key, Kind
from app.simulator.served import Served
from tests.scheduling.grouped import NAMED, GroupWorld
from tests.scheduling.seam import Seam, restart
from tests.scheduling.world import DRIVER, World

LAG = 0.05


@pytest.fixture
def world() -> World:
    """Node n1 with two devices, n2 with two that have to be attached; pods p1 and p2 that share claim c1."""
    world = World(Options(settle_wait_seconds=0.0, watch_lag_seconds=LAG, reclaim_pause_seconds=0.0))
    for name in ("n1", "n2"):
        world.node(name)
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    world.gpus("n1", 2)
    world.slice("n2", [{"name": f"gpu-{index}", **conditions} for index in range(2)])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    world.add_pod("p2", "c1")
    return world


def edit(world: World, change: Callable[[Json], None], name: str = "c1") -> Callable[[], None]:
    """What somebody else does to the claim, when it is called."""
    return lambda: void(world.cluster.store.replace(Key(Kind.CLAIM, "default", name), change))


def void(_: object) -> None:
    """Nothing."""


def report(world: World, condition: str, claim: str = "c1") -> None:
    """The driver says this of the devices of the claim, and nothing else any more."""
    stored = world.claim(claim)
    said = {"type": condition, "status": "True", "reason": "Test", "message": ""}
    stored["status"]["devices"] = [
        {**{key: each[key] for key in ("driver", "pool", "device")}, "conditions": [said]}
        for each in stored["status"]["allocation"]["devices"]["results"]
    ]
    world.cluster.store.update_status(Kind.CLAIM, stored)


async def waiting(world: World, pod: str = "p1") -> asyncio.Task[None]:
    """A bind to n2 that waits for its device."""
    bind = asyncio.create_task(world.bind(pod, "n2"))
    await asyncio.sleep(0.05)
    assert not bind.done()
    return bind


def node_of(world: World, pod: str = "p1") -> str:
    return str(world.pod(pod)["spec"].get("nodeName", ""))


async def test_no_bind_goes_past_a_watch_that_is_behind_however_often_it_is_repeated(world: World) -> None:
    """Another writer may have allocated the same before; only the watch would tell."""
    for _ in range(3):
        with pytest.raises(TryAgain, match="the claim watch is behind"):
            await world.bind("p1", "n1")
    with pytest.raises(TryAgain, match="the claim watch is behind"):
        await world.bind("p2", "n1")
    assert (node_of(world), node_of(world, "p2")) == ("", "")

    async with world.watching():
        await asyncio.gather(world.bind("p1", "n1"), world.bind("p2", "n1"))
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_a_watch_that_comes_back_brings_the_allocation_to_which_a_repeated_bind_gives_way(world: World) -> None:
    world.add_claim("foreign")
    raw = world.claim("foreign")
    result = {"request": "req", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    raw["status"] = {"allocation": {"devices": {"results": [result]}}}
    world.cluster.store.update_status(Kind.CLAIM, raw)
    with pytest.raises(TryAgain, match="the claim watch is behind"):
        await world.bind("p1", "n1")
    async with world.watching():
        with pytest.raises(TryAgain, match="another writer allocated device"):
            await world.bind("p1", "n1")
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-1"]


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_pod_made_anew_under_its_name_gets_nothing_of_the_bind_of_the_first(world: World, step: str) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    first = world.pod("p1")["metadata"]["uid"]

    def replace() -> None:
        world.cluster.store.delete(Key(Kind.POD, "default", "p1"))
        world.add_pod("p1", "c1")

    claims.before(step, replace)
    async with world.watching():
        with pytest.raises(TryAgain, match="does not exist any more"):
            await world.bind("p1", "n1")
        assert node_of(world) == ""
        await world.bind("p1", "n1")

    uids = [each["uid"] for each in world.claim("c1")["status"]["reservedFor"]]
    assert world.pod("p1")["metadata"]["uid"] in uids
    assert first != world.pod("p1")["metadata"]["uid"]


async def test_a_pod_made_anew_before_the_watch_tells_is_not_bound_by_the_uid_of_the_first(world: World) -> None:
    pods = Seam(world.cluster.pods)
    restart(world, pods=pods)
    uid = world.pod("p1")["metadata"]["uid"]

    def replace() -> None:
        world.cluster.store.delete(Key(Kind.POD, "default", "p1"))
        world.cluster.store.create(
            Kind.POD,
            {
                "metadata": {"name": "p1"},
                "spec": {"containers": [{"name": "main", "image": "pause"}], "resourceClaims": []},
            },
        )

    pods.before("bind", replace)
    async with world.watching():
        with pytest.raises(TryAgain, match="UID"):
            await world.extender.bind("default", "p1", uid, "n1", asyncio.Event())

    assert node_of(world) == ""


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_claim_made_anew_under_its_name_is_not_given_what_was_decided_for_the_first(
    world: World, step: str
) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)

    def replace() -> None:
        edit(world, lambda claim: claim["metadata"].update(finalizers=[]))()
        world.cluster.store.delete(Key(Kind.CLAIM, "default", "c1"))
        spec = {"devices": {"requests": [{"name": "req", "exactly": {"deviceClassName": "gpu", "count": 1}}]}}
        world.cluster.store.create(Kind.CLAIM, {"metadata": {"name": "c1"}, "spec": spec})

    claims.before(step, replace)
    async with world.watching():
        with pytest.raises(TryAgain, match="replaced by another of the same name"):
            await world.bind("p1", "n1")
        assert world.devices("c1") == []
        assert "finalizers" not in world.claim("c1")["metadata"]
        await world.cluster.watch.caught_up()
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-0"]
    assert world.claim("c1")["metadata"]["finalizers"] == [FINALIZER]


async def test_a_finalizer_that_is_taken_off_between_the_two_writes_is_put_back(world: World) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before("update_status", edit(world, lambda claim: claim["metadata"].update(finalizers=[])))
    async with world.watching():
        await world.bind("p1", "n1")

    assert world.claim("c1")["metadata"]["finalizers"] == [FINALIZER]
    assert world.devices("c1") == ["n1/gpu-0"]


def strip(claim: Json) -> None:
    """Takes off what protects an allocation and says what it froze."""
    claim["metadata"]["finalizers"] = []
    del claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]


def is_whole(world: World) -> bool:
    metadata = world.claim("c1")["metadata"]
    return metadata["finalizers"] == [FINALIZER] and SNAPSHOT_ANNOTATION in metadata["annotations"]


async def test_finalizer_and_snapshot_that_are_taken_off_during_the_wait_are_put_back_before_the_binding(
    world: World,
) -> None:
    """Without the finalizer the claim could be deleted under the running pod."""
    async with world.watching():
        bind = await waiting(world)
        edit(world, strip)()
        report(world, "Attached")
        await bind

    assert is_whole(world)
    assert node_of(world) == "n2"


async def test_conditions_that_only_the_snapshot_has_are_waited_for_even_if_somebody_takes_it_off(world: World) -> None:
    """An API server that stores no binding conditions: without the snapshot the device seems to be ready."""
    world.cluster.store._served = Served(conditions=False)
    async with world.watching():
        bind = await waiting(world)
        assert "bindingConditions" not in world.claim("c1")["status"]["allocation"]["devices"]["results"][0]
        edit(world, strip)()
        with pytest.raises(TryAgain, match=r"not ready any more: device .*/n2/gpu-0 waits for Attached"):
            await bind
        assert is_whole(world)
        again = await waiting(world)
        report(world, "Attached")
        await again

    assert node_of(world) == "n2"


async def test_slices_that_change_or_vanish_during_the_wait_change_nothing_of_what_is_allocated(world: World) -> None:
    async with world.watching():
        bind = await waiting(world)
        world.delete(Kind.SLICE, "n2-devices")
        world.slice("n2", [{"name": "gpu-0"}])
        await asyncio.sleep(0.02)
        assert not bind.done()
        report(world, "Attached")
        await bind

    assert world.devices("c1") == ["n2/gpu-0"]
    assert node_of(world) == "n2"


async def test_a_node_that_goes_away_ends_the_wait_at_once_and_its_devices_are_given_back(world: World) -> None:
    async with world.watching():
        bind = await waiting(world)
        world.delete(Kind.NODE, "n2")
        with pytest.raises(TryAgain, match="node n2 does not exist any more"):
            await asyncio.wait_for(bind, 5.0)
        await world.extender.reclaim.sweep()
        world.clock.seconds += world.options.reclaim_unfit_seconds
        await world.extender.reclaim.sweep()
        assert world.devices("c1") == []
        await world.cluster.watch.caught_up()
        await world.bind("p1", "n1")

    assert node_of(world) == "n1"


async def test_no_pod_is_bound_to_a_node_that_went_away_while_its_claim_was_written(world: World) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before("update_status", lambda: world.delete(Kind.NODE, "n1"))
    async with world.watching():
        with pytest.raises(TryAgain, match="node n1 does not exist any more"):
            await world.bind("p1", "n1")

    assert node_of(world) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), "does not exist any more"),
        (lambda pod: pod["spec"].update(nodeName="n1"), "is bound to node n1 already"),
    ],
)
async def test_a_wait_ends_at_once_when_the_pod_is_being_deleted_or_bound_elsewhere(
    world: World, change: Callable[[Json], None], words: str
) -> None:
    """Pods of jobs stay for a while when they are deleted: they have finalizers."""
    async with world.watching():
        bind = await waiting(world)
        world.cluster.store.replace(Key(Kind.POD, "default", "p1"), change)
        with pytest.raises(TryAgain, match=words):
            await asyncio.wait_for(bind, 5.0)


async def test_both_of_two_devices_that_fail_are_named_and_left_alone(world: World) -> None:
    world.add_claim("pair", count=2)
    world.add_pod("p3", "pair")
    async with world.watching():
        bind = asyncio.create_task(world.bind("p3", "n2"))
        await asyncio.sleep(0.05)
        report(world, "Failed", "pair")
        with pytest.raises(TryAgain, match=r"gpu-0 reports Failed.*gpu-1 reports Failed"):
            await bind

    left_alone = world.extender.cool_downs.of(world.pod("p3")["metadata"]["uid"])
    assert left_alone == {(DRIVER, "n2", "gpu-0"), (DRIVER, "n2", "gpu-1")}
    assert world.devices("pair") == []


async def test_a_condition_that_comes_and_goes_counts_when_all_are_there_at_once(world: World) -> None:
    world.add_claim("pair", count=2)
    world.add_pod("p3", "pair")

    def say(status: str, device: str) -> Json:
        condition = {"type": "Attached", "status": status, "reason": "Test", "message": ""}
        return {"driver": DRIVER, "pool": "n2", "device": device, "conditions": [condition]}

    async def told(first: str, second: str) -> None:
        stored = world.claim("pair")
        stored["status"]["devices"] = [say(first, "gpu-0"), say(second, "gpu-1")]
        world.cluster.store.update_status(Kind.CLAIM, stored)
        await asyncio.sleep(0.01)

    async with world.watching():
        bind = asyncio.create_task(world.bind("p3", "n2"))
        await asyncio.sleep(0.05)
        for statuses in (("True", "False"), ("False", "True"), ("Unknown", "True"), ("False", "False")):
            await told(*statuses)
            assert not bind.done()
        await told("True", "True")
        await bind

    assert node_of(world, "p3") == "n2"


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_claim_that_another_scheduler_allocates_first_is_used_as_it_is_by_the_next_bind(
    world: World, step: str
) -> None:
    """What we froze for other devices does not count for these."""
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)

    def allocate() -> None:
        stored = world.claim("c1")
        result = {"request": "req", "driver": DRIVER, "pool": "n1", "device": "gpu-1"}
        stored["status"] = {"allocation": {"devices": {"results": [result]}}}
        world.cluster.store.update_status(Kind.CLAIM, stored, "other")

    claims.before(step, allocate)
    async with world.watching():
        with pytest.raises(TryAgain, match="claim default/c1 was allocated by another scheduler"):
            await world.bind("p1", "n1")
        assert world.devices("c1") == ["n1/gpu-1"]
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-1"]
    assert [each["name"] for each in world.claim("c1")["status"]["reservedFor"]] == ["p1"]
    assert node_of(world) == "n1"


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_write_that_is_denied_is_told_in_the_servers_words_and_takes_nothing_from_others(
    world: World, step: str
) -> None:
    """A quota, a webhook, or a right that is missing."""
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before(step, Refused("403 Forbidden: admission webhook denied the request: quota exceeded"))
    world.add_claim("all", count=2)
    world.add_pod("p3", "all")
    async with world.watching():
        with pytest.raises(TryAgain, match="quota exceeded"):
            await world.bind("p1", "n1")
        assert claims.calls.count(step) == 1
        await world.bind("p3", "n1")

    assert world.devices("all") == ["n1/gpu-0", "n1/gpu-1"]
    assert world.devices("c1") == []


@pytest.mark.parametrize("fault", [Conflict("the object has been modified"), Unavailable("500"), Unavailable("429")])
async def test_a_server_that_never_lets_a_write_through_is_asked_a_few_times_and_no_more(
    world: World, fault: Exception
) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before("update_status", *[fault] * 50)
    async with world.watching():
        with pytest.raises(TryAgain, match=str(fault)):
            await world.bind("p1", "n1")

    assert claims.calls.count("update_status") <= 5
    assert node_of(world) == ""


@pytest.mark.parametrize("step", ["update", "update_status", "bind"])
async def test_a_write_of_the_leader_before_that_arrives_late_harms_nothing(world: World, step: str) -> None:
    """It left the process before the end of the term, and the next leader has bound the pod meanwhile."""
    late = asyncio.Event()
    arrived = asyncio.Event()

    async def held_up() -> None:
        arrived.set()
        await late.wait()

    claims, pods = Seam(world.cluster.claims), Seam(world.cluster.pods)
    (pods if step == "bind" else claims).before(step, held_up)
    restart(world, claims=claims, pods=pods)
    before = world.extender
    uid = world.pod("p1")["metadata"]["uid"]
    async with world.watching():
        old = asyncio.create_task(before.bind("default", "p1", uid, "n1", asyncio.Event()))
        await arrived.wait()
        stop = asyncio.create_task(before.stop("this replica stands by, another leads"))
        with pytest.raises(TryAgain, match="this replica stands by, another leads; the next bind"):
            await old
        restart(world)
        await world.bind("p1", "n1")
        stored = world.claim("c1")
        late.set()
        await stop
        await world.cluster.watch.caught_up()

    assert node_of(world) == "n1"
    assert world.claim("c1") == stored
    assert len(stored["status"]["reservedFor"]) == 1


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_writes_that_the_end_of_the_term_stops_are_made_by_the_next_leader(world: World, step: str) -> None:
    claims = Seam(world.cluster.claims)
    claims.before(step, *[Unavailable("not sent: this replica stands by")] * 20)
    restart(world, claims=claims)
    async with world.watching():
        with pytest.raises(TryAgain, match="not sent"):
            await world.bind("p1", "n1")
    restart(world)
    async with world.watching():
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-0"]
    assert node_of(world) == "n1"


async def test_everything_listed_anew_during_a_wait_neither_ends_nor_repeats_it(world: World) -> None:
    async with world.watching():
        bind = await waiting(world)
        world.cluster.watch.attach(world.ledger.feeds)
        await asyncio.sleep(0.02)
        assert not bind.done()
        report(world, "Attached")
        await bind

    assert len([each for each in world.messages("p1") if "waits for Attached" in each]) == 1
    assert node_of(world) == "n2"


async def test_a_device_that_fails_while_its_gang_is_waited_for_is_given_back_and_its_pod_not_bound() -> None:
    """It was ready in time, and so its pod stood at the gate."""
    world = World()
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    world.node("n1")
    world.slice("n1", [{"name": f"gpu-{index}", **conditions} for index in range(2)])
    world.device_class()
    world.create(
        Kind.POD_GROUP,
        {
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        },
    )
    for name in ("p1", "p2"):
        world.add_claim(name)
        spec = {
            "schedulerName": "dra-extender-scheduler",
            "containers": [{"name": "main", "image": "pause"}],
            "schedulingGroup": {"podGroupName": "g"},
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        }
        world.create(Kind.POD, {"metadata": {"name": name}, "spec": spec})
    async with world.watching():
        binds = [asyncio.create_task(world.bind(name, "n1")) for name in ("p1", "p2")]
        await asyncio.sleep(0.05)
        report(world, "Attached", claim="p1")
        await asyncio.sleep(0.05)
        report(world, "Failed", claim="p1")
        await asyncio.sleep(0.01)
        report(world, "Attached", claim="p2")
        with pytest.raises(TryAgain, match="binding conditions failed"):
            await binds[0]
        await binds[1]

    assert (node_of(world, "p1"), node_of(world, "p2")) == ("", "n1")
    assert world.devices("p1") == []


def foreign(world: World, claim: str) -> None:
    """Another scheduler allocates what this claim has to one of its own."""
    world.add_claim("foreign")
    stored = world.claim("foreign")
    results = [{**each, "request": "req"} for each in world.claim(claim)["status"]["allocation"]["devices"]["results"]]
    stored["status"] = {"allocation": {"devices": {"results": results}}}
    world.cluster.store.update_status(Kind.CLAIM, stored)


async def test_a_member_that_waits_for_the_claim_of_its_group_gives_way_to_a_foreign_writer_at_once() -> None:
    world = GroupWorld()
    world.devices_everywhere(1, conditions=True)
    world.add_claim("shared")
    world.group(NAMED)
    world.member("a")
    await world.extender.start()
    async with world.watching():
        bind = asyncio.create_task(world.bind("a", "n1"))
        await asyncio.sleep(0.05)
        foreign(world, "shared")
        with pytest.raises(TryAgain, match="another writer allocated device"):
            await asyncio.wait_for(bind, 5.0)
    await world.extender.stop()

    assert world.devices("shared") == []


async def test_all_members_that_run_on_the_claim_of_their_group_are_told_what_a_foreign_writer_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupWorld()
    monkeypatch.setattr(world.extender._foreign, "_seconds", 0.0)
    world.devices_everywhere()
    world.add_claim("shared")
    world.group(NAMED)
    for name in ("a", "b", "waiting"):
        world.member(name)
    await world.extender.start()
    async with world.watching():
        await asyncio.gather(world.bind("a", "n1"), world.bind("b", "n1"))
        await world.cluster.watch.caught_up()
        foreign(world, "shared")
        await world.cluster.watch.caught_up()
        await asyncio.sleep(0.05)
    await world.extender.stop()

    assert [
        "was given to claim default/foreign" in " ".join(world.messages(each)) for each in ("a", "b", "waiting")
    ] == [
        True,
        True,
        False,
    ]
