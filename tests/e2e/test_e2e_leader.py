"""Two replicas of which one acts: whatever ends a term, the next leader carries on, and the one before writes nothing more."""

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.controlplane.cluster import SCHEDULER_USER, ControlPlane
from tests.controlplane.objects import Object, device
from tests.controlplane.planes import LATER_GATES
from tests.controlplane.resources import LEASES, RESOURCE_CLAIMS
from tests.support.e2e.api_relay import ApiRelay, pass_on
from tests.support.e2e.boundaries import Boundaries, Boundary
from tests.support.e2e.fabric import ATTACHED
from tests.support.e2e.installed_extender import ACCOUNT, NAMESPACE, shipped_configuration
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.replicas import LEASE, Pair, Replica, grant, replica

pytestmark = [pytest.mark.e2e, pytest.mark.plane(LATER_GATES), pytest.mark.asyncio(loop_scope="module")]

MANY = 30
DURATION = 10
TIMES = {"DURATION_SECONDS": str(DURATION), "RENEW_SECONDS": "8"}
"""Of the Lease: a leader that stands still for some seconds, as on a busy machine, stays the leader."""
ROLE = {"example.com/role": "worker"}
FOLLOWED = "dra-extender-scheduler"
PASSING = {"Pod": {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, "NodeNames": ["a"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Two replicas that were started at the same moment."""
    folder = tmp_path_factory.mktemp("replicas")
    environment = {f"DRA_EXTENDER_LEADER_ELECTION__{name}": value for name, value in TIMES.items()}
    async with (
        ApiRelay(cluster.api.access) as relay,
        Pair.start_pair(cluster, folder, server=relay.url, environment=environment) as pair,
    ):
        pair.api_relay = relay
        yield pair


async def expect_standby(world: Pair, leader: Replica) -> None:
    """The standby is warm, not ready, and asks callers to connect anew; it has written nothing."""
    standby = world.other(leader)
    assert (await standby.page("/readyz"))[0] == 503
    assert (await standby.page("/readyz?exclude=leader"))[0] == 200
    async with aiohttp.ClientSession() as session:
        for verb in ("filter", "bind"):
            async with session.post(f"{standby.url}/{verb}", json=PASSING) as answer:
                assert (answer.status, answer.headers["Connection"]) == (200, "close")
                assert f"{verb}: this replica stands by, {leader.name}_" in (await answer.json())["Error"]
        async with session.post(f"{standby.url}/prioritize", json=PASSING) as answer:
            assert answer.status == 503
    assert "dra_extender_leader 0.0" in (await standby.page("/metrics"))[1]
    assert "dra_extender_leader 1.0" in (await leader.page("/metrics"))[1]
    assert (await world.lease())["holderIdentity"].startswith(f"{leader.name}_")
    assert world.writes(standby) == []


async def test_one_of_two_replicas_leads_and_when_it_is_killed_the_other_binds_on_and_wakes_who_waits(
    scene: NamespaceFixture, world: Pair
) -> None:
    """kube-scheduler has parked a pod, does not listen to slices, and the leader that had refused it is gone."""
    leader = await world.both()
    await expect_standby(world, leader)
    for suffix in "abc":
        await scene.node_with_devices(suffix, *(device(f"gpu-{index}") for index in range(8)), labels=ROLE)
    late = await scene.node("late")
    await scene.template("one")
    await scene.pod("waiting", template="one", nodeSelector={"kubernetes.io/hostname": late})
    await scene.wait_until_unschedulable("waiting", "no devices on the node")
    names = [f"worker-{index}" for index in range(20)]
    for name in names:
        await scene.pod(name, template="one", nodeSelector=ROLE)

    async def some() -> bool:
        return len(await scene.allocated()) >= 5

    await scene.api.wait_for(some, SECONDS, "some claims are allocated")
    leader.process.kill()
    await scene.publish(scene.slice_of("late", node=late, devices=[device("gpu-0")]))
    for name in names:
        await scene.wait_until_bound(name, 2 * SECONDS)
    assert await scene.wait_until_bound("waiting") == late
    held = await scene.allocated()
    assert len(held) == len(set(held)) == len(names) + 1
    assert await world.leader() is world.other(leader)


async def waiting_bind(scene: NamespaceFixture) -> Object:
    """A pod whose bind waits until the driver reports its device attached; returns its claim."""
    await scene.node("a")
    attachable = device(
        "gpu-0", bindingConditions=[ATTACHED], bindingFailureConditions=["example.com/failed"], allNodes=None
    )
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[attachable]))
    await scene.claim("one")
    await scene.pod("worker", claim="one")

    async def allocated() -> bool:
        return bool(devices_of(await scene.stored_claim("one")))

    await scene.api.wait_for(allocated, SECONDS, "the claim is allocated")
    await scene.wait_for_event("worker", ATTACHED)
    return await scene.stored_claim("one")


async def attach(scene: NamespaceFixture, claim: Object) -> None:
    """What the driver does in the end."""
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    true = {
        "type": ATTACHED,
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [true]}
    await scene.api.patch(RESOURCE_CLAIMS, "one", {"status": {"devices": [status]}}, scene.name, subresource="status")


async def test_a_leader_that_was_frozen_past_its_deadline_writes_nothing_when_it_goes_on(
    scene: NamespaceFixture, world: Pair
) -> None:
    """Its binds would have had everything to go on with: one device is attached while it sleeps, others are being written.

    Each write on its way has come to the relay when it is frozen: between its last look at the lease and the connection, no
    process can tell that it was stopped.
    """
    relay = world.api_relay
    assert relay is not None
    frozen = await world.both()
    claim = await waiting_bind(scene)
    await scene.node_with_devices(
        "many", *(device(f"gpu-{index}", attributes={"kind": "plain"}) for index in range(MANY))
    )
    plan = {f"crowd-{index}": Boundary(index // 2 % 3, after=index % 2 == 1) for index in range(MANY)}
    for name in plan:
        await scene.claim(f"{name}.a", f'{scene.attribute("kind")} == "plain"')
    stops = relay.handler = Boundaries(plan)
    try:
        for name in plan:
            await scene.pod(name, claim=f"{name}.a")
        await scene.api.wait_for(stops.all_reached, SECONDS, "binds are in progress")
        frozen.send(signal.SIGSTOP)
    finally:
        relay.handler = pass_on
    try:
        successor = await world.leader(10 * DURATION)
        assert successor is world.other(frozen)
        stops.lose()
        await attach(scene, claim)
        before = len(world.writes(frozen))
    finally:
        frozen.send(signal.SIGCONT)
    for name in ("worker", *plan):
        await scene.wait_until_bound(name, 2 * SECONDS)
    await world.wait_until_standby(frozen, successor)
    assert world.writes(frozen)[before:] == []
    assert (await scene.stored_claim("one"))["status"]["allocation"] == claim["status"]["allocation"]
    assert any(each["objectRef"].get("subresource") == "binding" for each in world.writes(successor))


async def test_a_leader_that_is_asked_to_stop_hands_over_at_once_and_one_whose_lease_was_taken_stands_by(
    scene: NamespaceFixture, world: Pair
) -> None:
    """The first gives the lease up, so nobody waits for its end, exits with 0, and its waiting bind is resumed.

    Whoever takes the lease is respected for its duration; process and caches live on, and may lead again.
    """
    leader = await world.both()
    claim = await waiting_bind(scene)
    before = (await world.lease())["leaseTransitions"]
    assert await leader.process.terminate(SECONDS) == 0
    successor = await world.leader()
    assert successor is world.other(leader)
    lease = await world.lease()
    assert lease["leaseTransitions"] == before + 1
    assert any((each.get("verb"), "stopping" in str(each.get("reason"))) == ("bind", True) for each in leader.log())
    said = [each["msg"] for each in leader.log()]
    assert "released lease" in said[said.index("stop requested") :]
    assert said[-1] == "stopped"
    assert await scene.node_of("worker") == ""
    await attach(scene, claim)
    await scene.wait_until_bound("worker")
    assert (await scene.stored_claim("one"))["status"]["allocation"] == claim["status"]["allocation"]

    leader = await world.both()
    pids = [each.process.pid for each in world.replicas]
    spec = await world.lease() | {"holderIdentity": "somebody-else", "leaseDurationSeconds": DURATION}
    await scene.api.patch(LEASES, LEASE, {"spec": spec}, NAMESPACE)

    async def steps_back() -> bool:
        return any((each["msg"], each.get("holder")) == ("lost leadership", "somebody-else") for each in leader.log())

    await scene.api.wait_for(steps_back, SECONDS, "the leader has noticed")
    again = await world.leader()
    assert [each.process.pid for each in world.replicas] == pids
    node = await scene.node_with_devices("b", device("gpu-0"))
    await scene.template("one")
    await scene.pod("next", template="one", nodeSelector={"kubernetes.io/hostname": node})
    assert await scene.wait_until_bound("next") == node
    assert await won(again) >= 1


async def test_beside_several_schedulers_the_replica_leads_that_the_leading_one_calls(
    world: Pair, tmp_path: Path
) -> None:
    """They call the replica in their own pod: real kube-scheduler's identity is looked at, then another one's."""
    api, host = world.api, socket.gethostname()
    anything = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]}
    users = [
        {"kind": "User", "name": SCHEDULER_USER},
        {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE},
    ]
    await grant(api, "followers", anything, *users)
    settings = {"LEASE_NAME": "followers", "FOLLOW_LEASE": FOLLOWED, **TIMES}
    here, elsewhere = (replica(world.cluster, tmp_path, name, **settings) for name in (host, "elsewhere"))
    configuration = shipped_configuration("http://127.0.0.1:1", "followed")
    configuration["leaderElection"] = {
        "leaderElect": True,
        "resourceName": FOLLOWED,
        "resourceNamespace": NAMESPACE,
    }
    async with AsyncExitStack() as stack:
        for each in (here, elsewhere):
            await each.process.start(ready=None)
            stack.push_async_callback(each.process.terminate)
        await elsewhere.process.wait_ready("/readyz?exclude=leader")
        assert "the kube-scheduler that leads is not known" in (await elsewhere.page("/readyz"))[1]
        await world.cluster.start_scheduler(configuration, "followed")
        await here.process.wait_ready()
        assert not await elsewhere.ready()
        await world.cluster.stop_scheduler("followed")
        spec = (await api.get(LEASES, FOLLOWED, NAMESPACE))["spec"] | {"holderIdentity": f"elsewhere_{host}"}
        await api.patch(LEASES, FOLLOWED, {"spec": spec}, NAMESPACE)
        await elsewhere.process.wait_ready()
        assert not await here.ready()


async def won(found: Replica) -> float:
    """How many terms the replica has begun."""
    text = (await found.page("/metrics"))[1]
    return sum(float(line.split()[-1]) for line in text.splitlines() if 'leader_changes_total{change="won"}' in line)
