"""Which pod a call is about: what the caller says of it decides nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.claims.live_reads import LOOKUPS, READ_BYTES
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.scheduling.seam import Seam
from tests.support.scheduling.world import InMemoryExtender

OPTIONS = Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, new_claim_wait_seconds=0.0)


def prepared(options: Options = OPTIONS) -> tuple[InMemoryExtender, Seam]:
    """Two nodes with a device each, pod `p` with claim `c`, and the calls to the API server's pods."""
    world = InMemoryExtender(options)
    seam: Any = Seam(world.cluster.pods)
    world.pods = seam
    world.start()
    return world.furnish(n0=1, n1=1, p="c"), seam


def sent(pod: Json, **changes: Any) -> RequestPod:
    """As kube-scheduler sends the pod, with other metadata."""
    return RequestPod(msgspec.json.encode({**pod, "metadata": {**pod["metadata"], **changes}}))


def unwatched(world: InMemoryExtender, name: str, *claims: str) -> Json:
    """A pod that the API server has and the watch has not brought."""
    spec = {
        "containers": [{"name": "c"}],
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
    }
    return world.cluster.store.create(StoredKind.POD, {"metadata": {"name": name}, "spec": spec})


def held(world: InMemoryExtender) -> int:
    return len(world.ledger.holds)


async def test_an_invented_pod_holds_nothing_and_is_not_called_unschedulable() -> None:
    world, seam = prepared()
    spec = {"resourceClaims": [{"name": "a", "resourceClaimName": "c"}]}
    invented = {"metadata": {"name": "x", "namespace": "default", "uid": "u"}, "spec": spec}
    with pytest.raises(RetryableError, match="pod default/x does not exist any more"):
        await world.extender.filter(sent(invented), ["n0", "n1"])
    with pytest.raises(RetryableError, match="pod default/x does not exist any more"):
        await world.extender.preempt(sent(invented), {"n0": ["v"]})
    assert (held(world), seam.calls) == (0, ["read", "read"])


async def test_a_pod_that_the_watch_has_brought_costs_no_request() -> None:
    world, seam = prepared()
    assert (await world.extender.filter(sent(world.pod("p")), ["n0", "n1"])).fitting
    assert seam.calls == []


async def test_what_the_caller_says_of_a_known_pod_is_not_believed() -> None:
    """Neither claims that it does not have, nor that it has none."""
    world, _ = prepared()
    world.add_claim("other")
    lying = {**world.pod("p"), "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "other"}]}}
    await world.extender.filter(sent(lying), ["n0", "n1"])
    held_claims = [world.claim(name)["metadata"]["uid"] for name in ("c", "other")]
    assert [world.ledger.holds.get(uid) is not None for uid in held_claims] == [True, False]
    await world.extender.filter(sent({**world.pod("p"), "spec": {}}), ["n0", "n1"])
    assert world.ledger.holds.get(held_claims[0]) is not None


async def test_a_pod_that_the_watch_has_not_brought_is_asked_for_once_and_its_own_claims_count() -> None:
    world, seam = prepared()
    pod = unwatched(world, "new", "c")
    lying = {**pod, "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "missing"}]}}
    assert (await world.extender.filter(sent(lying), ["n0", "n1"])).fitting
    assert seam.calls == ["read"]


@pytest.mark.parametrize("changes", [{"uid": "another"}, {"name": "p2"}, {"namespace": "elsewhere"}])
async def test_a_pod_under_another_identity_is_answered_with_an_error(changes: dict[str, str]) -> None:
    world, _ = prepared()
    with pytest.raises(RetryableError):
        await world.extender.filter(sent(world.pod("p"), **changes), ["n0", "n1"])
    assert held(world) == 0


async def test_a_large_pod_is_not_read_to_see_whether_it_needs_devices() -> None:
    """Nobody has to be believed, so nothing has to be decoded: the API server knows the pod."""
    world, seam = prepared()
    pod = unwatched(world, "plain")
    padded = {**pod, "spec": {"containers": [{"name": "x" * READ_BYTES}]}}
    assert (await world.extender.filter(sent(padded), ["n0"])).fitting == ["n0"]
    assert (await world.extender.filter(sent(pod), ["n0"])).fitting == ["n0"]
    assert seam.calls == ["read"]


async def test_a_pod_that_is_bound_is_not_filtered() -> None:
    world, _ = prepared()
    await world.bind_through("p", "n0")
    with pytest.raises(RetryableError, match="pod default/p is bound to node n0 already"):
        await world.extender.filter(sent(world.pod("p")), ["n0", "n1"])


async def test_the_number_of_pods_looked_up_at_once_is_limited() -> None:
    world, seam = prepared()
    go_on = asyncio.Event()
    seam.before("read", *[go_on.wait] * LOOKUPS)
    pods = [unwatched(world, f"new{number}", "c") for number in range(LOOKUPS + 1)]
    calls = [asyncio.create_task(world.extender.filter(sent(pod), ["n0"])) for pod in pods[:-1]]
    await asyncio.sleep(0)
    with pytest.raises(RetryableError, match=f"and {LOOKUPS} others are being looked up"):
        await world.extender.filter(sent(pods[-1]), ["n0"])
    go_on.set()
    await asyncio.gather(*calls)


Call = Callable[[InMemoryExtender], Awaitable[object]]
CALLS: dict[str, Call] = {
    "filter": lambda world: world.extender.filter(sent(world.pod("p")), ["n0", "n1"]),
    "preempt": lambda world: world.extender.preempt(sent(world.pod("p")), {"n0": ["v"]}),
    "bind": lambda world: world.bind("p", "n0"),
}


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("known", [True, False])
async def test_pods_of_other_schedulers_are_not_placed(verb: str, known: bool) -> None:
    world, _ = prepared(replace(OPTIONS, scheduler_names=("ours", "ours-too")))
    if not known:
        world.ledger.pods.drop("default", "p", world.uid("p"))
        world.ledger.pods._deleted.clear()
    said = "pod default/p belongs to scheduler dra-extender-scheduler; scheduling.scheduler_names has ours, ours-too"
    with pytest.raises(RetryableError, match=said):
        await CALLS[verb](world)
    assert held(world) == 0
    assert "nodeName" not in world.pod("p")["spec"]


@pytest.mark.parametrize("verb", CALLS)
async def test_pods_of_our_schedulers_are_placed(verb: str) -> None:
    world, _ = prepared(replace(OPTIONS, scheduler_names=("dra-extender-scheduler",)))
    async with world.watching():
        await CALLS[verb](world)


@pytest.mark.parametrize(("namespace", "name"), [("default", "other"), ("elsewhere", "p"), ("elsewhere", "other")])
@pytest.mark.parametrize("claims", [("c",), ()])
async def test_a_bind_under_another_name_is_refused(namespace: str, name: str, claims: tuple[str, ...]) -> None:
    """The UID alone does not decide: the caller speaks of another pod than we would bind."""
    world, seam = prepared()
    world.add_pod("q", *claims)
    uid = world.uid("q")
    with pytest.raises(RetryableError, match=f"the pod with UID {uid} is default/q, not {namespace}/{name}"):
        await world.extender.bind(namespace, name, uid, "n0", asyncio.Event())
    assert seam.calls == []
    assert "allocation" not in world.claim("c").get("status", {})


@pytest.mark.parametrize("claims", [("c",), ()])
async def test_a_bind_to_a_node_that_does_not_exist_is_refused_before_anything_is_written(
    claims: tuple[str, ...],
) -> None:
    world, seam = prepared()
    world.add_pod("q", *claims)
    call = asyncio.create_task(world.bind("q", "n9"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.clock.seconds += 2
    with pytest.raises(RetryableError, match="node n9 does not exist, as far as the watch has brought"):
        await call
    assert seam.calls == []
    assert "allocation" not in world.claim("c").get("status", {})


async def test_a_bind_to_a_node_that_is_just_being_made_waits_for_the_watch() -> None:
    world, _ = prepared()
    world.add_pod("plain")
    call = asyncio.create_task(world.bind("plain", "n9"))
    await asyncio.sleep(0)
    world.node("n9")
    await call
    assert world.node_of("plain") == "n9"


async def test_a_pod_without_the_names_of_its_claims_is_read_anew_if_the_caller_knows_a_later_state() -> None:
    """kube-scheduler may have seen which claim was made for a template before our watch has brought it."""
    world, seam = prepared()
    template = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    stale = world.create(StoredKind.POD, {"metadata": {"name": "made"}, "spec": template})
    later = str(int(stale["metadata"]["resourceVersion"]) + 100)
    await world.extender.filter(sent(stale), ["n0"])
    assert seam.calls == []
    await world.extender.filter(sent(stale, resourceVersion=later), ["n0"])
    assert seam.calls == ["read"]


async def test_what_is_no_version_is_no_later_version() -> None:
    world, seam = prepared()
    for version in ("9" * 5000, "²", "x", ""):
        await world.extender.filter(sent(world.pod("p"), resourceVersion=version), ["n0"])
    assert seam.calls == []
