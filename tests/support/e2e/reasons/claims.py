"""Reasons that lie in the claims themselves, in PodGroups, and in what comes after the allocation."""

import asyncio
from typing import Final

from dra_extender.inspection.why.report import Cause

from tests.controlplane.objects import allocated, device, on_node
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS, Resource
from tests.support.e2e.fabric import ATTACHED, FAILED, FakeDriver, allocated_claim, attachable, wait_for_any_event
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons.case import HOLDER, WAITING, WANTED, Reason, ends, fill, forget, hold, pod_anew
from tests.support.e2e.workloads import backed, create_group, member

QUOTAS: Final = Resource("v1", "resourcequotas")
MOST_RESERVED: Final = 256
_KEPT: Final = "example.com/kept"
_GANGS_ONLY: Final = "kube-scheduler plans no gangs without its gate GenericWorkload, which is off by default"


async def no_claim(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.pod(WAITING, claim=WANTED)


async def make_claim(scene: NamespaceFixture) -> None:
    await scene.claim(WANTED)


async def no_template(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.pod(WAITING, template=WANTED)


async def make_template(scene: NamespaceFixture) -> None:
    await scene.template(WANTED)


async def claim_that_a_quota_forbids(scene: NamespaceFixture) -> None:
    hard = {"count/resourceclaims.resource.k8s.io": "0"}
    metadata = {"name": "none", "namespace": scene.name}
    await scene.api.create(
        QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
    )

    async def enforced() -> bool:
        return bool((await scene.api.get(QUOTAS, "none", scene.name)).get("status", {}).get("hard") == hard)

    await scene.api.wait_for(enforced, SECONDS, "the quota is enforced")
    await no_template(scene)
    await make_template(scene)
    await wait_for_any_event(scene, WAITING, "exceeded quota: none")


async def lift_quota(scene: NamespaceFixture) -> None:
    """Change the pod too: kube-controller-manager tries ever more rarely, but at once after a change."""
    await scene.api.delete(QUOTAS, "none", scene.name)
    change = {"metadata": {"annotations": {"example.com/tried-again": "yes"}}}
    await scene.api.patch(PODS, WAITING, change, scene.name)


async def claim_that_is_deleted(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.claim(WANTED)
    await _finalizers(scene, [_KEPT])
    await scene.api.delete(RESOURCE_CLAIMS, WANTED, scene.name)
    await scene.pod(WAITING, claim=WANTED)


async def replace_deleted_claim(scene: NamespaceFixture) -> None:
    await _finalizers(scene, [])

    async def gone() -> bool:
        return not await scene.api.list(RESOURCE_CLAIMS, scene.name)

    await scene.api.wait_for(gone, SECONDS, "the claim is gone")
    await scene.claim(WANTED)


async def _finalizers(scene: NamespaceFixture, names: list[str]) -> None:
    await scene.api.patch(RESOURCE_CLAIMS, WANTED, {"metadata": {"finalizers": names}}, scene.name)


async def claim_without_room(scene: NamespaceFixture) -> None:
    """Reserved for others than pods, so that no controller takes an entry away."""
    await scene.node_with_devices("a", device("gpu-0"))
    await hold(scene, WANTED)
    stored = await scene.stored_claim(WANTED)
    entries = [*stored["status"]["reservedFor"], *(_consumer(n) for n in range(1, MOST_RESERVED))]
    await _reserve(scene, entries)
    await scene.pod(WAITING, claim=WANTED)


async def make_room(scene: NamespaceFixture) -> None:
    stored = await scene.stored_claim(WANTED)
    await _reserve(scene, stored["status"]["reservedFor"][:1])


async def _reserve(scene: NamespaceFixture, entries: list[dict[str, str]]) -> None:
    change = {"status": {"reservedFor": entries}}
    await scene.api.patch(RESOURCE_CLAIMS, WANTED, change, scene.name, subresource="status")


def _consumer(number: int) -> dict[str, str]:
    return {"apiGroup": "example.com", "resource": "users", "name": f"user-{number}", "uid": f"uid-{number}"}


async def release_kept_claims(scene: NamespaceFixture) -> None:
    """Takes away what keeps the claims of a reason that was not ended."""
    for claim in await scene.api.list(RESOURCE_CLAIMS, scene.name):
        if _KEPT in claim["metadata"].get("finalizers", ()):
            await _finalizers(scene, [])
        entries = claim.get("status", {}).get("reservedFor", ())
        if any(each["resource"] != "pods" for each in entries):
            await _reserve(scene, [each for each in entries if each["resource"] == "pods"])


async def claim_on_a_full_node(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"), cpu="2")
    await scene.claim(WANTED)
    await scene.pod("user", claim=WANTED)
    assert await scene.wait_until_bound("user") == node
    await fill(scene, "filler", "1800m")
    await scene.node_with_devices("b", device("gpu-0"))
    await scene.pod(WAITING, claim=WANTED, cpu="1")


async def claim_of_another_object(scene: NamespaceFixture) -> None:
    """The status of the pod names a claim that somebody else made, as the one from its template."""
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.claim("theirs")
    await scene.pod(WAITING, template=WANTED)
    named = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]}}
    await scene.api.patch(PODS, WAITING, named, scene.name, subresource="status")


async def pod_with_a_claim_of_its_own(scene: NamespaceFixture) -> None:
    await scene.template(WANTED)
    await forget(scene)
    await scene.pod(WAITING, template=WANTED)


async def allocated_by_another_program(scene: NamespaceFixture) -> None:
    """A claim that some program allocated by itself, for no pod."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.claim("theirs")
    result = {"request": "gpu", "driver": scene.driver, "pool": node, "device": "gpu-0"}
    status = allocated(result, nodeSelector=on_node(node))
    await scene.api.patch(RESOURCE_CLAIMS, "theirs", {"status": status}, scene.name, subresource="status")
    await scene.claim(WANTED)
    await scene.pod(WAITING, claim=WANTED)


async def delete_their_claim(scene: NamespaceFixture) -> None:
    await scene.api.delete(RESOURCE_CLAIMS, "theirs", scene.name)


async def device_that_has_failed(scene: NamespaceFixture) -> None:
    await attached_later(scene)
    await FakeDriver(scene).report(await allocated_claim(scene), FAILED)


async def attached_later(scene: NamespaceFixture) -> None:
    await scene.node("a")
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[attachable("gpu-0")]))
    await scene.claim("one")
    await scene.pod(WAITING, claim="one")
    await allocated_claim(scene)


async def attach(scene: NamespaceFixture) -> None:
    await FakeDriver(scene).report(await allocated_claim(scene), ATTACHED)


async def gang_with_too_few_devices(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await hold(scene)
    await _gang_of_two(scene, WAITING, "other")


async def gang_with_too_few_members(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await _gang_of_two(scene, WAITING)


async def _gang_of_two(scene: NamespaceFixture, *members: str) -> None:
    """A group that needs two members, and these of them."""
    await scene.template(WANTED)
    await create_group(scene, "gang", min_count=2)
    for name in members:
        await member(scene, "gang", name, template=WANTED)


async def second_member(scene: NamespaceFixture) -> None:
    await member(scene, "gang", "other", template=WANTED)


async def member_without_group(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.template(WANTED)
    await member(scene, "gang", WAITING, template=WANTED)


async def make_group(scene: NamespaceFixture) -> None:
    await create_group(scene, "gang")


async def extended_resource_held(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    resource = await _backed(scene)
    await hold(scene)
    await scene.pod(WAITING, extended={resource: "1"})


async def _backed(scene: NamespaceFixture) -> str:
    resource = await backed(scene)
    # kube-scheduler has to know the class before the pod.
    await asyncio.sleep(1)
    return resource


REASONS: Final = (
    Reason(
        "no claim",
        no_claim,
        make_claim,
        cause=Cause.CLAIMS,
        reasons=(("CLAIM_MISSING", 1),),
        everywhere=True,
        next="create ResourceClaim {ns}/wanted",
        tells=("{ns}/wanted",),
        event=("{ns}/wanted",),
        said_in_tree=None,
    ),
    Reason(
        "no template",
        no_template,
        make_template,
        cause=Cause.CLAIMS,
        reasons=(("CLAIM_NOT_CREATED", 1),),
        everywhere=True,
        tells=("template wanted",),
        next="create ResourceClaimTemplate {ns}/wanted",
        said_in_tree=None,
    ),
    Reason(
        "claim that a quota forbids",
        claim_that_a_quota_forbids,
        lift_quota,
        cause=Cause.CLAIMS,
        reasons=(("CLAIM_NOT_CREATED", 1),),
        everywhere=True,
        tells=("FailedResourceClaimCreation", "exceeded quota: none"),
        next="end what uses ResourceQuota {ns}/none, or raise it",
        said_in_tree=None,
    ),
    Reason(
        "claim that is being deleted",
        claim_that_is_deleted,
        replace_deleted_claim,
        cause=Cause.CLAIMS,
        reasons=(("CLAIM_DELETING", 1),),
        everywhere=True,
        next="create the claim again once it is gone",
        said_in_tree=None,
    ),
    Reason(
        "claim without room",
        claim_without_room,
        make_room,
        cause=Cause.CLAIMS,
        reasons=(("CLAIM_FULLY_RESERVED", 1),),
        everywhere=True,
        next="end {ns}/wanted | end a pod that uses the claim",
        said_in_tree=None,
    ),
    Reason(
        "claim on a full node",
        claim_on_a_full_node,
        pod_anew(cpu="100m"),
        cause=Cause.NODES,
        said='node(s): claim "gpu" is allocated for another node',
        tells=("Insufficient cpu",),
        next="ask for 100m of cpu",
        said_in_tree="Insufficient cpu",
    ),
    Reason(
        "claim of another object",
        claim_of_another_object,
        pod_with_a_claim_of_its_own,
        cause=Cause.CLAIMS,
        reasons=(("CLAIM_FOREIGN", 1),),
        everywhere=True,
        tells=("{ns}/theirs",),
        next="create the pod again: the claim that its status names belongs to another object",
        said_in_tree=None,
    ),
    Reason(
        "device of a claim that another program allocated",
        allocated_by_another_program,
        delete_their_claim,
        reasons=(("IN_USE", 1),),
        tells=("{ns}/theirs",),
        next="delete claim {ns}/theirs, which no pod uses",
    ),
    Reason(
        "device that has failed",
        device_that_has_failed,
        attach,
        cause=Cause.NOT_DEVICES,
        said="devices have just failed for this pod",
        next="wait until the extender tries again; check why the driver did not make the devices ready",
        passes=True,
        only_here="kube-scheduler's own plugin leaves no device alone after a failure",
    ),
    Reason(
        "no PodGroup",
        member_without_group,
        make_group,
        cause=Cause.POD_GROUP,
        reasons=(("POD_GROUP_MISSING", 1),),
        everywhere=True,
        tells=("{ns}/gang",),
        next="create PodGroup {ns}/gang",
        only_here=_GANGS_ONLY,
    ),
    Reason(
        "attached later",
        attached_later,
        attach,
        cause=Cause.CONDITIONS,
        said="",
        tells=(ATTACHED, "fabric/gpu-0"),
        next="wait; check driver {driver}",
        event=(f"waits for {ATTACHED}",),
        said_in_tree=None,
    ),
    Reason(
        "gang with too few devices",
        gang_with_too_few_devices,
        ends(HOLDER),
        cause=Cause.POD_GROUP,
        said="node(s): not enough members of the PodGroup fit at once",
        reasons=(("IN_USE", 1),),
        tells=("blocked",),
        next="end {ns}/holder",
        event=("no placement for 2 of 2 waiting members at once",),
        only_here=_GANGS_ONLY,
    ),
    Reason(
        "gang with too few members",
        gang_with_too_few_members,
        second_member,
        cause=Cause.POD_GROUP,
        said="node(s): too few members of the PodGroup can be placed yet",
        next="create 1 more member of PodGroup {ns}/gang",
        only_here=_GANGS_ONLY,
    ),
    Reason(
        "extended resource held",
        extended_resource_held,
        ends(HOLDER),
        reasons=(("IN_USE", 1),),
        next="end {ns}/holder",
        said='of container "main": matching devices are in use',
        said_in_tree=None,
    ),
)
