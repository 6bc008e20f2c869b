"""Reasons that have nothing to do with devices: the pod would get its devices, or asks for none."""

from typing import Any, Final

from dra_extender.inspection.why.report import Cause

from tests.controlplane import objects
from tests.controlplane.objects import device
from tests.controlplane.resources import NODES, PODS
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.e2e.reasons.case import (
    HOLDER,
    WAITING,
    WANTED,
    Reason,
    Step,
    ends,
    fill,
    hold,
    pod_anew,
)

_RACK: Final = "example.com/rack"
_TAINT: Final = {"key": "example.com/upkeep", "value": "today", "effect": "NoSchedule"}
_APART: Final = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def with_device(**fields: Any) -> Step:
    """A pod whose device is free, with something else in its spec that keeps it waiting."""

    async def build(scene: NamespaceFixture) -> None:
        await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"), cpu="4")
        await scene.claim(WANTED)
        await scene.pod(WAITING, claim=WANTED, **fields)

    return build


async def processors(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"), cpu="4")
    await hold(scene)
    await fill(scene, "large", "3")
    await scene.claim(WANTED)
    await scene.pod(WAITING, claim=WANTED, cpu="2")


async def closed_node(scene: NamespaceFixture, suffix: str, **spec: Any) -> None:
    """A node with a device, and from the first moment with this in its spec: a scheduler that knows it knows that."""
    body = objects.node(f"{scene.name}-{suffix}")
    await scene.api.create(NODES, {**body, "spec": spec})
    await scene.publish(scene.slice_of(suffix, node=body["metadata"]["name"], devices=[device("gpu-0")]))


async def tainted_node(scene: NamespaceFixture) -> None:
    await closed_node(scene, "a", taints=[_TAINT])
    await scene.claim(WANTED)
    await scene.pod(WAITING, claim=WANTED)


async def scheduler_that_nobody_runs(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await scene.claim(WANTED)
    await scene.pod(WAITING, claim=WANTED, scheduler=f"{scene.scheduler}s")


async def remove_gates(scene: NamespaceFixture) -> None:
    await scene.api.patch(PODS, WAITING, {"spec": {"schedulingGates": None}}, scene.name)


async def apart_from_the_holder(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await scene.claim(HOLDER)
    await scene.pod(HOLDER, claim=HOLDER, labels={"app": "apart"})
    await scene.wait_until_bound(HOLDER)
    await scene.claim(WANTED)
    await scene.pod(WAITING, claim=WANTED, labels={"app": "apart"}, affinity=_APART)


async def without_devices(scene: NamespaceFixture) -> None:
    """No other node is as large as this one."""
    await scene.node("a", cpu="200")
    await fill(scene, "large", "150")
    await scene.pod(WAITING, cpu="100")


REASONS: Final = (
    Reason(
        "processors",
        processors,
        pod_anew(cpu="900m"),
        cause=Cause.NODES,
        next="ask for 900m of cpu",
        said="Insufficient cpu",
        tells=("Insufficient cpu",),
        said_in_tree="Insufficient cpu",
    ),
    Reason(
        "tainted node",
        tainted_node,
        pod_anew(tolerations=[{**_TAINT, "operator": "Equal"}]),
        cause=Cause.NODES,
        next="tolerate example.com/upkeep=today:NoSchedule",
        said="untolerated taint",
        tells=("untolerated taint",),
        said_in_tree="untolerated taint",
    ),
    Reason(
        "node selector",
        with_device(nodeSelector={_RACK: "1"}),
        pod_anew(),
        cause=Cause.NODES,
        next="ask for no node selector and no node affinity",
        said="didn't match Pod's node affinity/selector",
        tells=("node affinity/selector",),
        said_in_tree="didn't match Pod's node affinity/selector",
    ),
    Reason(
        "scheduling gate",
        with_device(schedulingGates=[{"name": "example.com/quota"}]),
        remove_gates,
        cause=Cause.GATED,
        said="",
        tells=("example.com/quota",),
        said_in_tree=None,
    ),
    Reason(
        "missing volume",
        with_device(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}]),
        pod_anew(),
        cause=Cause.NOT_DEVICES,
        said='persistentvolumeclaim "absent" not found',
        tells=('persistentvolumeclaim "absent" not found', "devices would suffice on 1 of "),
        said_in_tree='persistentvolumeclaim "absent" not found',
    ),
    Reason(
        "scheduler that nobody runs",
        scheduler_that_nobody_runs,
        pod_anew(),
        cause=Cause.NOT_DEVICES,
        said="",
        tells=("no scheduler named {scheduler}s has acted on any pod of this cluster; nearest name {scheduler}",),
        said_in_tree=None,
    ),
    Reason(
        "apart from another pod",
        apart_from_the_holder,
        ends(HOLDER),
        cause=Cause.NOT_DEVICES,
        said="didn't match pod anti-affinity rules",
        tells=("anti-affinity",),
        said_in_tree="didn't match pod anti-affinity rules",
    ),
    Reason(
        "no devices asked for",
        without_devices,
        ends("large"),
        cause=Cause.NO_DEVICES,
        said="Insufficient cpu",
        tells=("Insufficient cpu",),
        said_in_tree="Insufficient cpu",
    ),
)
