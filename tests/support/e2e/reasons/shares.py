"""Reasons that lie in what others hold, and in rules about devices beside each other."""

from typing import Any, Final

from tests.controlplane.objects import consumption, counter_set, device
from tests.controlplane.resources import DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons.case import (
    HOLDER,
    WAITING,
    WANTED,
    Reason,
    amount,
    ask,
    ask_anew,
    asks_anew,
    ends,
    forget,
    hold,
    of,
)

_BROKEN: Final = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
_TOLERATED: Final = {"key": "example.com/broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
_EXPELLING: Final = {**_BROKEN, "effect": "NoExecute"}


async def held(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await hold(scene)
    await ask(scene)


async def held_on_two_nodes(scene: NamespaceFixture) -> None:
    for suffix, name in (("a", "first"), ("b", "second")):
        await scene.node_with_devices(suffix, device("gpu-0"))
        await hold(scene, name)
    await ask(scene)


async def both_held(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    for name in ("first", "second"):
        await hold(scene, name)
    await ask(scene, count=2)


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


async def small_and_tainted(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0", capacity={"memory": "40Gi"}, taints=[_BROKEN]))
    await ask(scene, _at_least(scene, "80Gi"))


async def ask_for_less_and_tolerate(scene: NamespaceFixture) -> None:
    await ask_anew(scene, _at_least(scene, "40Gi"), tolerations=[_TOLERATED])


def _at_least(scene: NamespaceFixture, memory: str) -> str:
    return f'{amount(scene, "memory")}.compareTo(quantity("{memory}")) >= 0'


async def tainted_to_expel(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0", taints=[_EXPELLING]))
    await ask(scene)


async def tainted_by_rule(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    rule = {
        "apiVersion": DEVICE_TAINT_RULES.group_version,
        "kind": "DeviceTaintRule",
        "metadata": {"name": scene.name},
        "spec": {"deviceSelector": {"driver": scene.driver}, "taint": _BROKEN},
    }
    await scene.api.create(DEVICE_TAINT_RULES, rule)
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


async def tolerate_expelling(scene: NamespaceFixture) -> None:
    await ask_anew(scene, tolerations=[{**_TOLERATED, "effect": "NoExecute"}])


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


async def counters_of_two(scene: NamespaceFixture) -> None:
    await scene.node_with_counters("a", [counter_set("gpu-0", sm="100")], slices_of_gpu("60", "30", "50"))
    for name, share in (("large", 60), ("small", 30)):
        await hold(scene, name, f"{of(scene, 'share')} == {share}")
    await ask(scene, f"{of(scene, 'share')} == 50")


async def whole_and_parts(scene: NamespaceFixture) -> None:
    await scene.node_with_counters("a", [counter_set("gpu-0", sm="100")], slices_of_gpu("100", "50", "50"))
    for name in ("first", "second"):
        await hold(scene, name, f"{of(scene, 'share')} == 50")
    await ask(scene, f"{of(scene, 'share')} == 100")


async def groups(scene: NamespaceFixture) -> None:
    await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    await hold(scene, HOLDER, f'{of(scene, "type")} == "vgpu"')
    await ask(scene, f'{of(scene, "type")} == "mig"')


async def groups_of_two(scene: NamespaceFixture) -> None:
    await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    for name in ("first", "second"):
        await hold(scene, name, f'{of(scene, "type")} == "mig"')
    await ask(scene, f'{of(scene, "type")} == "vgpu"')


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


async def capacity_of_two(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", shared_gpu())
    for name, memory in (("large", "6Gi"), ("small", "3Gi")):
        await hold(scene, name, **needs(memory))
    await ask(scene, **needs("5Gi"))


async def more_than_there_is(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", shared_gpu())
    await ask(scene, **needs("20Gi"))


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


async def one_numa_node(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", *(device(f"gpu-{n}", attributes={"numa": 0}) for n in range(2)))
    constraint = {"requests": ["gpu", "other"], "distinctAttribute": f"{scene.driver}/numa"}
    await scene.api.create(RESOURCE_CLAIMS, two_requests(scene, constraints=[constraint]))
    await scene.pod(WAITING, claim=WANTED)


async def one_device_for_two_requests(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.api.create(RESOURCE_CLAIMS, two_requests(scene))
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
        "devices held on two nodes",
        held_on_two_nodes,
        ends("first"),
        reasons=(("IN_USE", 2),),
        next="end {ns}/first | end {ns}/second",
    ),
    Reason(
        "both devices held",
        both_held,
        ends("first", "second"),
        reasons=(("IN_USE", 1),),
        next="end {ns}/first, {ns}/second",
    ),
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
        "memory and taint",
        small_and_tainted,
        ask_for_less_and_tolerate,
        reasons=(("NO_MATCH", 1),),
        next="ask for memory >= 40Gi, tolerate example.com/broken=yes:NoSchedule",
    ),
    Reason(
        "taint that expels",
        tainted_to_expel,
        tolerate_expelling,
        reasons=(("TAINTED", 1),),
        next="tolerate example.com/broken=yes:NoExecute",
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
        "counters of two holders",
        counters_of_two,
        ends("large"),
        reasons=(("COUNTERS", 1),),
        tells=("{ns}/large", "{ns}/small"),
        next="end {ns}/large",
    ),
    Reason(
        "whole device and parts",
        whole_and_parts,
        ends("first", "second"),
        reasons=(("COUNTERS", 1),),
        next="end {ns}/first, {ns}/second",
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
        "groups of two holders",
        groups_of_two,
        ends("first", "second"),
        reasons=(("GROUPS", 1),),
        next="end {ns}/first, {ns}/second",
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
        "capacity of two holders",
        capacity_of_two,
        ends("large"),
        reasons=(("CAPACITY", 1),),
        tells=("{ns}/large", "{ns}/small"),
        next="end {ns}/large",
    ),
    Reason(
        "more capacity than there is",
        more_than_there_is,
        asks_anew(**needs("10Gi")),
        reasons=(("CAPACITY", 1),),
        tells=("10Gi", "20Gi"),
        next="ask for 10Gi of capacity memory",
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
        "one NUMA node",
        one_numa_node,
        without_constraints,
        reasons=(("CONSTRAINT", 1),),
        tells=("numa",),
        next="do without distinctAttribute {driver}/numa",
    ),
    Reason(
        "one device for two requests",
        one_device_for_two_requests,
        asks_anew(),
        reasons=(("COMBINATION", 1),),
        next="do without request other",
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
