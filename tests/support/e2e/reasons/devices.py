"""Reasons that lie in devices: what a request says of them, what others hold, and rules about devices beside each other."""

from typing import Any, Final

from dra_extender.inspection.why.report import Cause

from tests.controlplane.objects import device, taint_rule
from tests.controlplane.resources import DEVICE_TAINT_RULES, RESOURCE_SLICES
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons.case import (
    HOLDER,
    WAITING,
    Reason,
    amount,
    ask,
    ask_anew,
    asks_anew,
    ends,
    hold,
    of,
)

NO_MATCH: Final = (("NO_MATCH", 1),)


def at_least(scene: NamespaceFixture, memory: str) -> str:
    """CEL: the device has so much memory."""
    return f'{amount(scene, "memory")}.compareTo(quantity("{memory}")) >= 0'


async def too_little_memory(scene: NamespaceFixture) -> None:
    devices = [device(f"gpu-{n}", capacity={"memory": size}) for n, size in enumerate(("24Gi", "40Gi"))]
    await scene.node_with_devices("a", *devices)
    await ask(scene, at_least(scene, "80Gi"))


async def attribute_without_fields(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0", attributes={"model": "A100"}))
    await ask(scene, f'{of(scene, "model")}.string == "A100"')


async def misspelt_class(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await ask(scene, device_class=scene.name.replace("-", ""))


_BROKEN: Final = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
_TOLERATED: Final = {"key": "example.com/broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


async def held(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await hold(scene)
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


async def tolerate(scene: NamespaceFixture) -> None:
    await ask_anew(scene, tolerations=[_TOLERATED])


async def groups(scene: NamespaceFixture) -> None:
    await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    await hold(scene, HOLDER, f'{of(scene, "type")} == "vgpu"')
    await ask(scene, f'{of(scene, "type")} == "mig"')


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
    Reason(
        "memory",
        too_little_memory,
        asks_anew(lambda scene: at_least(scene, "40Gi")),
        reasons=NO_MATCH,
        tells=("40Gi", "80Gi"),
        next="ask for memory >= 40Gi",
    ),
    Reason(
        "selector that fails",
        attribute_without_fields,
        asks_anew(lambda scene: f'{of(scene, "model")} == "A100"'),
        reasons=(("SELECTOR_FAILED", 1),),
        tells=(".string",),
        event=('claim "gpu", request "gpu": selector failed on a device', ".string"),
        next="ask for attributes without their type as a suffix",
        said_in_tree=None,
    ),
    Reason(
        "misspelt class",
        misspelt_class,
        asks_anew(),
        cause=Cause.CLAIMS,
        reasons=(("CLASS_MISSING", 1),),
        everywhere=True,
        next="use the DeviceClass {ns}",
        event=('claim "gpu", request "gpu": device class does not exist',),
        said_in_tree="does not exist",
    ),
    Reason("device held", held, ends(HOLDER), reasons=(("IN_USE", 1),), tells=("{ns}/holder",), next="end {ns}/holder"),
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
        "groups",
        groups,
        ends(HOLDER),
        reasons=(("GROUPS", 1),),
        tells=("vgpu", "{ns}/holder"),
        next="end {ns}/holder",
        event=("declares [mig] on counter set gpu-0",),
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
