"""Reasons that lie in what a request says of devices: selectors, classes, numbers."""

from typing import Final

from dra_extender.inspection.why.report import Cause

from tests.controlplane.objects import device, device_class
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.e2e.reasons.case import (
    WAITING,
    WANTED,
    Reason,
    amount,
    ask,
    ask_anew,
    asks_anew,
    forget,
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


async def class_of_another_driver(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    other = device_class(f"{scene.name}-other", 'device.driver == "other.example.com"')
    await scene.api.create(DEVICE_CLASSES, other)
    await ask(scene, device_class=f"{scene.name}-other")


async def no_devices(scene: NamespaceFixture) -> None:
    await scene.node("a")
    await ask(scene)


async def publish_device(scene: NamespaceFixture) -> None:
    await scene.publish(scene.slice_of("a", node=f"{scene.name}-a", devices=[device("gpu-0")]))


async def fewer_than_asked(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await ask(scene, count=3)


async def attribute_without_fields(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0", attributes={"model": "A100"}))
    await ask(scene, f'{of(scene, "model")}.string == "A100"')


async def misspelt_class(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0"))
    await ask(scene, device_class=scene.name.replace("-", ""))


async def no_alternative(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", device("gpu-0", capacity={"memory": "40Gi"}))
    body = {
        "apiVersion": RESOURCE_CLAIMS.group_version,
        "kind": "ResourceClaim",
        "metadata": {"name": WANTED, "namespace": scene.name},
        "spec": {"devices": {"requests": [{"name": "gpu", "firstAvailable": alternatives(scene, "80Gi", "60Gi")}]}},
    }
    await scene.api.create(RESOURCE_CLAIMS, body)
    await scene.pod(WAITING, claim=WANTED)


def alternatives(scene: NamespaceFixture, *sizes: str) -> list[dict[str, object]]:
    """Alternatives of a request by their memory."""
    return [
        {
            "name": f"at-least-{size.lower()}",
            "deviceClassName": scene.name,
            "selectors": [{"cel": {"expression": at_least(scene, size)}}],
        }
        for size in sizes
    ]


async def more_than_a_claim_may_have(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", *(device(f"gpu-{n}") for n in range(33)))
    await scene.api.create(RESOURCE_CLAIMS, _all_devices(scene))
    await scene.pod(WAITING, claim=WANTED)


def _all_devices(scene: NamespaceFixture) -> dict[str, object]:
    exactly = {"deviceClassName": scene.name, "allocationMode": "All"}
    return {
        "apiVersion": RESOURCE_CLAIMS.group_version,
        "kind": "ResourceClaim",
        "metadata": {"name": WANTED, "namespace": scene.name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


async def second_claim_of_two(scene: NamespaceFixture) -> None:
    await scene.node_with_devices("a", *(device(f"gpu-{n}", attributes={"model": "A100"}) for n in range(2)))
    await scene.claim("first")
    await scene.claim(WANTED, f'{of(scene, "model")} == "H100"')
    await scene.pod(WAITING, claims={"first": "first", "gpu": WANTED})


async def second_claim_right(scene: NamespaceFixture) -> None:
    await forget(scene)
    await scene.claim(WANTED, f'{of(scene, "model")} == "A100"')
    await scene.pod(WAITING, claims={"first": "first", "gpu": WANTED})


async def ask_for_the_class_that_matches(scene: NamespaceFixture) -> None:
    await ask_anew(scene)


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
        "class of another driver",
        class_of_another_driver,
        ask_for_the_class_that_matches,
        reasons=NO_MATCH,
        next="check driver other.example.com, which publishes no devices",
        event=('claim "gpu", request "gpu": no device matches the selectors', "class {ns}-other"),
    ),
    Reason(
        "no devices",
        no_devices,
        publish_device,
        said="no device",
        tells=("no device of driver {driver}",),
        next="check driver {driver}, which publishes no devices",
    ),
    Reason(
        "fewer devices than asked for",
        fewer_than_asked,
        asks_anew(count=2),
        reasons=(("COMBINATION", 1),),
        next="ask for 2 devices",
    ),
    Reason(
        "selector that fails",
        attribute_without_fields,
        asks_anew(lambda scene: f'{of(scene, "model")} == "A100"'),
        reasons=(("SELECTOR_FAILED", 1),),
        tells=(".string",),
        event=('claim "gpu", request "gpu": selector failed on a device', ".string"),
        next="correct the selector",
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
    Reason(
        "no alternative",
        no_alternative,
        asks_anew(lambda scene: at_least(scene, "40Gi")),
        reasons=NO_MATCH,
        tells=("40Gi",),
        next="ask for memory >= 40Gi",
    ),
    Reason(
        "more devices than a claim may have",
        more_than_a_claim_may_have,
        asks_anew(),
        reasons=(("TOO_MANY_DEVICES", 1),),
        tells=("33", "32"),
        said_in_tree=None,
    ),
    Reason(
        "second claim of two",
        second_claim_of_two,
        second_claim_right,
        reasons=NO_MATCH,
        next='ask for model == "A100"',
    ),
)
