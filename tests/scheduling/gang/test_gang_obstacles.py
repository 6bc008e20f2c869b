"""Only members that can be placed now are planned; with fewer than minCount of them nothing is held, and the others say why."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from dra_extender.ledger.member_fit import NODES_PER_STEP
from dra_extender.ledger.sinks import sinks_of
from dra_extender.scheduling.call_budget import Awaited, CallBudget, within_slice
from dra_extender.scheduling.gang.members import MOST_NEEDS, take_snapshot
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import DRIVER
from tests.support.turns import until

Json = dict[str, Any]
ALL = {"a": ["n1"], "b": ["n1"], "c": ["n1"]}
NOBODY: dict[str, list[str]] = {"a": [], "b": []}


class ObstructedExtender(GangExtender):
    """A gang of three with a card of its own for each; the tests put something in the way of the member c."""

    def __init__(self) -> None:
        super().__init__()
        self.cards("n1", 2)
        self.gang("g", 3, "half", "abc")

    def spec_of(self, name: str, **fields: Any) -> None:
        """Create the pod anew with these fields of its spec; None removes a field."""
        pod = self.pod(name)
        spec = {key: value for key, value in {**pod["spec"], **fields}.items() if value is not None}
        self.delete(StoredKind.POD, name)
        self.create(StoredKind.POD, {"metadata": {"name": name}, "spec": spec})

    def edited(self, name: str, **fields: Any) -> None:
        """Write these fields of the pod, as its spec or status is written."""
        self.cluster.store.edit_unchecked(Key(StoredKind.POD, "default", name), lambda pod: pod.update(fields))
        self.sync()

    def reported(self, name: str, message: str, reason: str = "Unschedulable") -> None:
        """kube-scheduler reports on the pod."""
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        self.edited(name, status={**self.pod(name).get("status", {}), "conditions": [condition]})

    def cpus(self, amount: str) -> None:
        """So much CPU is allocatable on n1."""
        key = Key(StoredKind.NODE, "", "n1")
        self.cluster.store.edit_unchecked(key, lambda node: node.update(status={"allocatable": {"cpu": amount}}))
        self.sync()

    def node_fields(self, **fields: Any) -> None:
        """Set labels or fields of the spec of n1."""
        node = next(iter(self.cluster.store.all(StoredKind.NODE)))
        metadata = {**node["metadata"], "labels": fields.pop("labels", {})}
        self.update(StoredKind.NODE, {**node, "metadata": metadata, "spec": {**node.get("spec", {}), **fields}})


@pytest.fixture
def world() -> ObstructedExtender:
    return ObstructedExtender()


def gated(world: ObstructedExtender) -> None:
    world.spec_of("c", schedulingGates=[{"name": "example.com/wait"}])


def selecting(world: ObstructedExtender) -> None:
    world.spec_of("c", nodeSelector={"zone": "b"})


def affine(world: ObstructedExtender) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    world.spec_of("c", affinity={"nodeAffinity": rule})


def oversized(world: ObstructedExtender) -> None:
    world.cpus("1")
    world.spec_of("c", containers=[{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "2"}}}])


def with_a_taint(world: ObstructedExtender) -> None:
    world.node_fields(taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    for name in "ab":
        world.spec_of(name, tolerations=[{"key": "team", "operator": "Exists"}])


def misspelt(world: ObstructedExtender) -> None:
    world.spec_of("c", schedulerName="dra-extender-schedular")


def without_its_claim(world: ObstructedExtender) -> None:
    world.delete(StoredKind.CLAIM, "c")


def claim_not_created(world: ObstructedExtender) -> None:
    world.spec_of("c", resourceClaims=[{"name": "c", "resourceClaimTemplateName": "half"}])


def claim_deleting(world: ObstructedExtender) -> None:
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    key = Key(StoredKind.CLAIM, "default", "c")
    world.cluster.store.edit_unchecked(key, lambda claim: claim["metadata"].update(gone))
    world.sync()


def without_its_volume(world: ObstructedExtender) -> None:
    world.reported(
        "c", '0/1 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/1 nodes are available.'
    )


def gated_without_devices(world: ObstructedExtender) -> None:
    world.spec_of("c", resourceClaims=None, schedulingGates=[{"name": "example.com/wait"}])


def cordoned(world: ObstructedExtender) -> None:
    world.node_fields(unschedulable=True)


OBSTACLES = [
    pytest.param(gated, "pod c: pod has scheduling gates: example.com/wait", id="gate"),
    pytest.param(
        selecting,
        "pod c: kube-scheduler finds no node for the pod: 0/1 nodes are available: 1 node(s) didn't match Pod's node aff",
        id="selector",
    ),
    pytest.param(affine, "1 node(s) didn't match Pod's node affinity/selector", id="affinity"),
    pytest.param(
        oversized,
        "pod c: kube-scheduler finds no node for the pod: 0/1 nodes are available: 1 Insufficient cpu.",
        id="cpu",
    ),
    pytest.param(with_a_taint, "1 node(s) had untolerated taint(s)", id="taint"),
    pytest.param(
        misspelt, "pod c: no scheduler of the pod's schedulerName has acted: dra-extender-schedular", id="scheduler"
    ),
    pytest.param(without_its_claim, 'pod c: claim "c" does not exist: default/c', id="claim"),
    pytest.param(claim_not_created, 'pod c: claim "c" is not created yet: from template half', id="template"),
    pytest.param(
        without_its_volume,
        'pod c: kube-scheduler finds no node for the pod: 0/1 nodes are available: persistentvolumeclaim "data" not found.',
        id="volume",
    ),
    pytest.param(gated_without_devices, "pod c: pod has scheduling gates: example.com/wait", id="no-devices"),
]


@pytest.mark.parametrize(("obstruct", "said"), OBSTACLES)
async def test_nothing_is_held_while_a_member_cannot_come_and_the_others_name_it(
    world: ObstructedExtender, obstruct: Callable[[ObstructedExtender], None], said: str
) -> None:
    obstruct(world)
    assert await world.ask("ab", "n1") == NOBODY
    assert not len(world.ledger.holds)
    for name in "ab":
        assert said in world.messages(name)[-1]


@pytest.mark.parametrize(("obstruct", "said"), OBSTACLES)
async def test_members_that_can_be_placed_do_not_wait_for_one_that_the_gang_does_not_need(
    world: ObstructedExtender, obstruct: Callable[[ObstructedExtender], None], said: str
) -> None:
    world.gang("g", 2)
    obstruct(world)
    async with world.watching():
        assert await world.ask("ab", "n1") == {"a": ["n1"], "b": ["n1"]}
        await asyncio.gather(*(world.bind(name, "n1") for name in "ab"))
    assert said


def _drop_gates(world: ObstructedExtender) -> None:
    world.edited("c", spec={key: value for key, value in world.pod("c")["spec"].items() if key != "schedulingGates"})


def _label(world: ObstructedExtender) -> None:
    world.node_fields(labels={"zone": "b"})


def _more_cpu(world: ObstructedExtender) -> None:
    world.cpus("4")


def _untaint(world: ObstructedExtender) -> None:
    world.node_fields(taints=[])


def _claim(world: ObstructedExtender) -> None:
    world.add_claim("c")


def _asked(world: ObstructedExtender) -> None:
    pod = world.known_pod("c")
    world.ledger.pod_asked_about(pod)


@pytest.mark.parametrize(
    ("obstruct", "clear"),
    [
        pytest.param(gated, _drop_gates, id="gate"),
        pytest.param(selecting, _label, id="selector"),
        pytest.param(affine, _label, id="affinity"),
        pytest.param(oversized, _more_cpu, id="cpu"),
        pytest.param(with_a_taint, _untaint, id="taint"),
        pytest.param(without_its_claim, _claim, id="claim"),
        pytest.param(without_its_volume, _asked, id="volume"),
    ],
)
async def test_kube_scheduler_is_woken_when_the_member_can_come_and_all_are_bound(
    world: ObstructedExtender,
    obstruct: Callable[[ObstructedExtender], None],
    clear: Callable[[ObstructedExtender], None],
) -> None:
    obstruct(world)
    assert await world.ask("ab", "n1") == NOBODY
    await world.extender.waker.wake_if_one_fits()
    assert world.cluster.waker.calls == 0
    clear(world)
    assert world.extender.unschedulable.any_queueing_hint() is not None
    await world.extender.waker.wake_if_one_fits()
    assert world.cluster.waker.calls == 1
    assert await world.ask("abc", "n1") == ALL
    async with world.watching():
        await asyncio.gather(*(world.bind(name, "n1") for name in "abc"))


async def test_a_member_for_which_nodes_are_offered_can_be_placed_whatever_is_known(world: ObstructedExtender) -> None:
    """The watch of kube-scheduler may be ahead."""
    selecting(world)
    assert await world.ask("c", "n1") == {"c": ["n1"]}
    assert await world.ask("ab", "n1") == {"a": ["n1"], "b": ["n1"]}


async def test_the_others_are_reconsidered_when_nodes_are_offered_for_the_member_that_lacked(
    world: ObstructedExtender,
) -> None:
    without_its_volume(world)
    assert await world.ask("ab", "n1") == NOBODY
    assert await world.ask("c", "n1") == {"c": ["n1"]}
    await world.extender.waker.wake_if_one_fits()
    assert world.cluster.waker.calls == 1
    assert await world.ask("ab", "n1") == {"a": ["n1"], "b": ["n1"]}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(
            "0/1 nodes are available: 1 node(s): not enough members of the PodGroup fit at once.",
            "Unschedulable",
            id="ours",
        ),
        pytest.param(
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s): no devices on the node.",
            "Unschedulable",
            id="partly-ours",
        ),
        pytest.param("0/1 nodes are available: 1 Insufficient cpu.", "SchedulerError", id="error"),
        pytest.param("pod group g: 2 of 3 pods can be scheduled", "Unschedulable", id="of-the-group"),
    ],
)
async def test_reports_after_the_extender_was_asked_do_not_keep_a_member_out(
    world: ObstructedExtender, message: str, reason: str
) -> None:
    world.reported("c", message, reason)
    assert await world.ask("abc", "n1") == ALL


async def test_reports_on_single_members_do_not_count_where_the_group_is_scheduled_as_one(
    world: ObstructedExtender,
) -> None:
    meta = {"namespace": "default", "name": "g", "uid": "g-uid", "resourceVersion": "900"}
    status = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "False"}]}
    group = {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}, "status": status}
    sinks_of(world.ledger)["podgroups"].changed(msgspec.json.encode(group))
    without_its_volume(world)
    assert await world.ask("ab", "n1") == {"a": ["n1"], "b": ["n1"]}


async def test_kube_scheduler_is_woken_when_a_member_that_was_named_is_not_what_the_gang_lacks_any_more(
    world: ObstructedExtender,
) -> None:
    """The Events of the others would name it for minutes: kube-scheduler has no reason to ask about them again."""
    gated(world)
    without_its_volume(world)
    world.delete(StoredKind.CLAIM, "b")
    waker = world.cluster.waker
    steps: list[tuple[int, Callable[[], None], str]] = [
        (
            0,
            lambda: None,
            '1 can be placed; pod b: claim "b" does not exist: default/b; pod c: pod has scheduling gates',
        ),
        (1, lambda: world.add_claim("b"), "2 can be placed; pod c: pod has scheduling gates"),
        (2, lambda: _drop_gates(world), "2 can be placed; pod c: kube-scheduler finds no node for the pod: 0/1 nodes"),
        (3, lambda: world.reported("c", "0/1 nodes are available: 1 Insufficient cpu."), "1 Insufficient cpu."),
    ]
    for calls, change, said in steps:
        change()
        await world.extender.waker.wake_if_one_fits()
        assert waker.calls == calls
        assert await world.ask("a", "n1") == {"a": []}
        assert said in world.messages("a")[-1]
        await world.extender.waker.wake_if_one_fits()
        assert waker.calls == calls


def selecting_differently(world: ObstructedExtender, count: int) -> None:
    """Create members without devices that want each another zone, which no node has."""
    for number in range(count):
        world.add_member("g", f"x{number:02}")
        world.spec_of(f"x{number:02}", nodeSelector={"zone": f"z{number}"})


async def test_members_with_too_many_different_needs_are_not_all_judged(
    world: ObstructedExtender, judged: list[str]
) -> None:
    """The members a, b and c need the same.  Members that are not judged pass for members that can be placed."""
    selecting_differently(world, MOST_NEEDS + 1)
    world.gang("g", 6)
    assert await world.ask("a", "n1") == {"a": []}
    assert "PodGroup g: 4 more members needed, 3 can be placed; pod x00: " in world.messages("a")[-1]
    assert len(judged) == MOST_NEEDS


def test_a_snapshot_pauses_with_the_slice_and_says_the_same_in_the_end(
    world: ObstructedExtender, judged: list[str]
) -> None:
    for number in range(2, 2 * NODES_PER_STEP):
        world.node(f"n{number}")
    selecting_differently(world, 3)
    group = world.known_group("g")
    budget, slices = CallBudget(world.clock, math.inf), 0
    step = partial(take_snapshot, group, world.ledger, budget)
    snapshot: Any = Awaited.TIME_SLICE
    while snapshot is Awaited.TIME_SLICE:
        judged.clear()
        budget.open_slice(-1.0)
        snapshot = within_slice(step)
        slices += 1
        assert len(judged) <= NODES_PER_STEP
    assert slices > 3
    assert [pod.name for pod, _ in snapshot.unready] == ["x00", "x01", "x02"]
    assert snapshot == take_snapshot(group, world.ledger, CallBudget(world.clock, math.inf))


def test_a_plan_pauses_while_members_are_compared_with_nodes(world: ObstructedExtender, judged: list[str]) -> None:
    for number in range(2, 2 * NODES_PER_STEP):
        world.node(f"n{number}")
    world.node_fields(labels={"zone": "b"})
    selecting(world)
    nodes = sorted(world.ledger.nodes, reverse=True)
    group, pod = world.known_group("g"), world.known_pod("a")
    budget = CallBudget(world.clock, math.inf)
    step = partial(world.extender.gangs.place_member, pod, group, nodes, budget)
    result: Any = Awaited.TIME_SLICE
    while result is Awaited.TIME_SLICE:
        judged.clear()
        budget.open_slice(-1.0)
        result = within_slice(step)
        assert len(judged) <= NODES_PER_STEP
    assert result.assigned_node == "n1"


async def test_a_call_whose_budget_is_spent_before_all_members_are_judged_rejects_nobody(
    world: ObstructedExtender,
) -> None:
    """The next call would reject them with another text."""
    selecting(world)
    group, pod = world.known_group("g"), world.known_pod("a")
    budget = CallBudget(world.clock, math.inf)
    budget.close()
    result = world.extender.gangs.place_member(pod, group, ["n1"], budget)
    assert result is not None
    assert result.limited
    assert await world.ask("a", "n1") == {"a": []}
    assert "3 more members needed, 2 can be placed; pod c: " in world.messages("a")[-1]


@pytest.fixture
async def meeting() -> AsyncIterator[ObstructedExtender]:
    """Two members wait for their permits with devices."""
    made = ObstructedExtender()
    async with made.watching():
        assert await made.ask("abc", "n1") == ALL
        yield made


@pytest.mark.parametrize(
    ("obstruct", "said"),
    [
        pytest.param(cordoned, "2 of 3 members can be placed; pod c: kube-scheduler finds no node", id="cordoned"),
        pytest.param(without_its_volume, 'persistentvolumeclaim "data" not found', id="volume"),
        pytest.param(without_its_claim, 'pod c: claim "c" does not exist: default/c', id="claim"),
        pytest.param(claim_deleting, 'pod c: claim "c" is being deleted: default/c', id="claim-deleting"),
        pytest.param(claim_not_created, 'pod c: claim "c" is not created yet', id="template"),
    ],
)
async def test_members_with_devices_give_them_back_when_another_one_cannot_come_any_more(
    meeting: ObstructedExtender, obstruct: Callable[[ObstructedExtender], None], said: str
) -> None:
    binds = [asyncio.create_task(meeting.bind(name, "n1")) for name in "ab"]
    permit = meeting.extender.permit
    await until(lambda: (found := permit.waiting_gang("g-uid")) is not None and len(found.members) == 2)
    obstruct(meeting)
    meeting.clock.seconds += 3
    await until(lambda: all(each.done() for each in binds), meeting.extender.binder.recheck)
    for each in binds:
        with pytest.raises(RetryableError, match=said):
            await each
    meeting.sync()
    assert not any(map(meeting.devices, "ab"))
    assert await meeting.ask("ab", "n1") == NOBODY
    assert not len(meeting.ledger.holds)


def without_its_class(world: ObstructedExtender) -> None:
    world.delete(StoredKind.CLAIM, "c")
    world.add_claim("c", class_name="missing")


def wanting_what_nobody_has(world: ObstructedExtender) -> None:
    world.delete(StoredKind.CLAIM, "c")
    world.add_claim("c", selector=f'device.attributes["{DRIVER}"].size == "huge"')


def for_a_node_without_devices(world: ObstructedExtender) -> None:
    """n1 is offered to the others, and was not offered to c."""
    world.create(StoredKind.NODE, {"metadata": {"name": "n2", "labels": {"zone": "b"}}})
    selecting(world)


@pytest.mark.parametrize(
    ("obstruct", "said"),
    [
        pytest.param(
            without_its_class,
            'pod c: claim "c", request "req": device class does not exist: device class missing',
            id="class",
        ),
        pytest.param(
            wanting_what_nobody_has, "pod c: no combination of devices fits: on no node, even for this pod", id="device"
        ),
        pytest.param(
            for_a_node_without_devices,
            "pod c: no combination of devices fits: on no node, even for this pod",
            id="node",
        ),
    ],
)
async def test_the_others_name_a_member_that_gets_no_devices_even_alone(
    world: ObstructedExtender, obstruct: Callable[[ObstructedExtender], None], said: str
) -> None:
    obstruct(world)
    assert await world.ask("ab", "n1", "n2") == NOBODY
    assert not len(world.ledger.holds)
    for name in "ab":
        assert f"no placement for 3 of 3 waiting members at once; {said}" in world.messages(name)[-1]


async def test_all_lacking_members_are_named_up_to_three(world: ObstructedExtender) -> None:
    world.gang("g", 6, "half", "def")
    for name in "bcdef":
        world.spec_of(name, schedulingGates=[{"name": "example.com/wait"}])
    assert await world.ask("a", "n1") == {"a": []}
    said = world.messages("a")[-1]
    assert "PodGroup g: 6 more members needed, 1 can be placed; pod b: " in said
    assert "pod d: pod has scheduling gates: example.com/wait; 2 more" in said
