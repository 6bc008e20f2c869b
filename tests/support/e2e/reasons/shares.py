"""Reasons that lie in what others hold, and in rules about devices beside each other."""

from typing import Any, Final

from tests.controlplane.objects import consumption, counter_set, device, taint_rule
from tests.controlplane.resources import DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons.case import (
    HOLDER,
    WAITING,
    WANTED,
    Reason,
    ask,
    ask_anew,
    ends,
    forget,
    hold,
    of,
)

_BROKEN: Final = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
_TOLERATED: Final = {"key": "example.com/broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


async def held(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await hold(scene)
    await ask(scene)


async def tainted(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0", taints=[_BROKEN]))
    await ask(scene)


def _mode(mode: str) -> str:
    return f'has(device.attributes[device.driver].mode) && device.attributes[device.driver].mode == "{mode}"'


POLICY: Final = f"""
rules:
  - name: alone
    devices: {_mode("alone")}
    compatibleOnlyWith: {_mode("alone")}
"""
"""The policy of the service where API servers have no `compatibleOnlyWith`: devices of a mode have none of others beside them."""


async def neighbour_of_another_mode(scene: NamespaceFixture) -> None:
    modes = {"gpu-0": "alone", "gpu-1": "any"}
    await scene.node_with_devices("a", *(device(name, attributes={"mode": mode}) for name, mode in modes.items()))
    await hold(scene, HOLDER, f'{of(scene, "mode")} == "alone"')
    await ask(scene, f'{of(scene, "mode")} == "any"')


async def tainted_by_rule(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.api.create(DEVICE_TAINT_RULES, taint_rule(scene.name, _BROKEN, driver=scene.driver))
    await ask(scene)

    async def kept_away() -> bool:
        if await scene.node_of(WAITING):
            # It was tried before its scheduler had heard of the rule.
            await ask_anew(scene)
        return (await scene.condition(WAITING)).get("reason") == "Unschedulable"

    await scene.api.wait_for(kept_away, SECONDS, "the rule keeps the pod away")


async def tolerate_rule(scene: NamespaceFixture) -> None:
    await tolerate(scene)
    await scene.wait_until_bound(WAITING)
    await scene.api.delete(DEVICE_TAINT_RULES, scene.name)


async def without_constraints(scene: NamespaceFixture) -> None:
    await forget(scene)
    await scene.api.create(RESOURCE_CLAIMS, two_requests(scene))
    await scene.pod(WAITING, claim=WANTED)


async def tolerate(scene: NamespaceFixture) -> None:
    await ask_anew(scene, tolerations=[_TOLERATED])


def slices_of_gpu(*shares: str) -> list[dict[str, Any]]:
    """Partitions of one GPU by what they take of its 100 multiprocessors; none is in a group."""
    return [
        device(f"part-{share}-{n}", attributes={"share": int(share)}, consumes=[consumption("gpu-0", sm=share)])
        for n, share in enumerate(shares)
    ]


async def counters(scene: NamespaceFixture) -> None:
    await scene.node_with_counters("a", [counter_set("gpu-0", sm="100")], slices_of_gpu("80", "40"))
    await hold(scene, HOLDER, f"{of(scene, 'share')} == 80")
    await ask(scene, f"{of(scene, 'share')} == 40")


async def groups(scene: NamespaceFixture) -> None:
    await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    await hold(scene, HOLDER, f'{of(scene, "type")} == "vgpu"')
    await ask(scene, f'{of(scene, "type")} == "mig"')


def shared_gpu() -> dict[str, Any]:
    """A device of 10Gi that claims share."""
    return device("gpu-0", capacity={"memory": "10Gi"}, allowMultipleAllocations=True)


def needs(memory: str) -> dict[str, Any]:
    """The field of a request that asks for so much of a shared device."""
    return {"capacity": {"requests": {"memory": memory}}}


async def capacity(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", shared_gpu())
    await hold(scene, HOLDER, **needs("8Gi"))
    await ask(scene, **needs("4Gi"))


def two_requests(scene: NamespaceFixture, **fields: Any) -> dict[str, Any]:
    """The claim for one device twice, with these constraints."""
    requests = [{"name": name, "exactly": {"deviceClassName": scene.name}} for name in ("gpu", "other")]
    return {
        "apiVersion": RESOURCE_CLAIMS.group_version,
        "kind": "ResourceClaim",
        "metadata": {"name": WANTED, "namespace": scene.name},
        "spec": {"devices": {"requests": requests, **fields}},
    }


async def two_numa_nodes(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", *(device(f"gpu-{n}", attributes={"numa": n}) for n in range(2)))
    constraint = {"requests": ["gpu", "other"], "matchAttribute": f"{scene.driver}/numa"}
    await scene.api.create(RESOURCE_CLAIMS, two_requests(scene, constraints=[constraint]))
    await scene.pod(WAITING, claim=WANTED)


def republished(*devices: dict[str, Any]) -> Any:
    """The step that publishes these devices in the place of those on node `a`."""

    async def end(scene: NamespaceFixture) -> None:
        name = f"{scene.name}-a"
        await scene.api.patch(RESOURCE_SLICES, name, {"spec": {"devices": list(devices)}})

    return end


async def half_a_pool(scene: NamespaceFixture) -> None:
    node = await scene.node("a")
    await scene.publish(scene.slice_of("a", node=node, slice_count=2, devices=[device("gpu-0")]))
    await ask(scene)


async def other_half(scene: NamespaceFixture) -> None:
    await scene.publish(scene.slice_of("b", node=f"{scene.name}-a", slice_count=2, devices=[device("gpu-1")]))


async def name_twice(scene: NamespaceFixture) -> None:
    node = await scene.node("a")
    for suffix in ("a", "b"):
        await scene.publish(scene.slice_of(suffix, node=node, slice_count=2, devices=[device("gpu-0")]))
    await ask(scene)


REASONS: Final = (
    Reason("device held", held, ends(HOLDER), reasons=(("IN_USE", 1),), tells=("{ns}/holder",), next="end {ns}/holder"),
    Reason(
        "taint",
        tainted,
        tolerate,
        reasons=(("TAINTED", 1),),
        tells=("example.com/broken",),
        next="tolerate example.com/broken=yes:NoSchedule",
        event=("gpu-0 has taint example.com/broken=yes:NoSchedule",),
    ),
    Reason(
        "neighbour of another mode",
        neighbour_of_another_mode,
        ends(HOLDER),
        reasons=(("NEIGHBOURS", 1),),
        tells=("{ns}/holder",),
        next="end {ns}/holder",
        only_here="only the service has a policy, and API servers have no compatibleOnlyWith",
    ),
    Reason(
        "taint of a rule",
        tainted_by_rule,
        tolerate_rule,
        reasons=(("TAINTED", 1),),
        next="tolerate example.com/broken=yes:NoSchedule",
    ),
    Reason(
        "counters",
        counters,
        ends(HOLDER),
        reasons=(("COUNTERS", 1),),
        tells=("{ns}/holder",),
        next="end {ns}/holder",
        event=("needs 40 of sm in counter set gpu-0, 20 remain",),
    ),
    Reason(
        "groups",
        groups,
        ends(HOLDER),
        reasons=(("GROUPS", 1),),
        tells=("vgpu", "{ns}/holder"),
        next="end {ns}/holder",
        event=("declares [mig] on counter set gpu-0",),
    ),
    Reason(
        "capacity",
        capacity,
        ends(HOLDER),
        reasons=(("CAPACITY", 1),),
        tells=("{ns}/holder",),
        next="end {ns}/holder",
        event=("gpu-0 has 2Gi of memory left, 4Gi would be needed",),
    ),
    Reason(
        "two NUMA nodes",
        two_numa_nodes,
        without_constraints,
        reasons=(("CONSTRAINT", 1),),
        tells=("numa",),
        next="do without matchAttribute {driver}/numa",
    ),
    Reason(
        "half a pool",
        half_a_pool,
        other_half,
        reasons=(("POOL_INCOMPLETE", 1),),
        next="wait; check driver {driver}, which publishes the other slices",
    ),
    Reason(
        "device name twice in a pool",
        name_twice,
        republished(device("gpu-1")),
        reasons=(("POOL_INVALID", 1),),
        tells=("gpu-0",),
        next="check driver {driver}",
        said_in_tree="invalid resource pools were encountered",
    ),
)
