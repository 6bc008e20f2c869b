"""Devices that have to be attached before a pod can use them, and a driver that says when they are (KEP-5007)."""

from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.objects import Object, device
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture, devices_of

ATTACHED = "example.com/attached"
FAILED = "example.com/failed"


def attachable(name: str) -> Object:
    """A device that has to be attached to the node that is chosen."""
    return device(name, bindsToNode=True, bindingConditions=[ATTACHED], bindingFailureConditions=[FAILED])


async def fabric(scene: NamespaceFixture, *names: str, policy: bool = False) -> list[str]:
    """Two nodes, and a pool of devices that can be attached to either; returns the nodes.

    `policy`: the devices say nothing of it, only that they are of the fabric, and the admin's policy supplies the rest.
    """
    nodes = [await scene.node(suffix) for suffix in ("a", "b")]
    devices = [device(name, attributes={"fabric": True}) if policy else attachable(name) for name in names]
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=devices))
    return nodes


class FakeDriver:
    """What the driver of a scene writes into the status of claims."""

    def __init__(self, scene: NamespaceFixture) -> None:
        self._scene = scene

    async def report(self, claim: Object, condition: str, *devices: str, message: str = "") -> None:
        """Sets a condition to True for devices of a claim, by name; for all of them if none is named."""
        name = claim["metadata"]["name"]
        stored = await self._scene.stored_claim(name)
        known = {_device(each): each for each in stored["status"].get("devices", ())}
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if not devices or result["device"] in devices:
                conditions = [*known.get(_device(result), {}).get("conditions", ()), _true(condition, message)]
                known[_device(result)] = {**dict(_device(result)), "conditions": conditions}
        change = {"status": {"devices": list(known.values())}}
        await self._scene.api.patch(RESOURCE_CLAIMS, name, change, self._scene.name, subresource="status")


async def allocated_claim(scene: NamespaceFixture, name: str = "one", *, after: Object | None = None) -> Object:
    """Waits until the claim is allocated; `after`: anew, since it was in this state.  Returns it."""

    async def claim() -> Object | None:
        found = await scene.stored_claim(name)
        anew = after is None or snapshot_of(found) != snapshot_of(after)
        return found if devices_of(found) and anew else None

    found = await scene.api.wait_for(claim, SECONDS, f"claim {name} is allocated{' anew' if after else ''}")
    assert found is not None
    return found


def snapshot_of(claim: Object) -> str:
    """The annotation that is written with each allocation; it names the second in which that was decided."""
    return str(claim["metadata"].get("annotations", {}).get(SNAPSHOT_ANNOTATION, ""))


def chosen_node(claim: Object) -> str:
    ((term,),) = [each["matchFields"] for each in claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]]
    assert (term["key"], len(term["values"])) == ("metadata.name", 1)
    return str(term["values"][0])


async def wait_for_any_event(scene: NamespaceFixture, pod: str, *words: str) -> str:
    """Waits for an Event of anybody about the pod that contains all these words; returns its text."""

    async def note() -> str:
        notes = (str(each.get("note", "")) for each in await scene.events(pod))
        return next((text for text in notes if all(word in text for word in words)), "")

    return await scene.api.wait_for(note, SECONDS, f"an Event about pod {pod} says {words}")


async def wait_until_nominated(scene: NamespaceFixture, pod: str, node: str) -> None:
    """Waits until this is the nominated node of the pod (nothing: until it has none)."""

    async def so() -> bool:
        return str((await scene.read(pod))["status"].get("nominatedNodeName", "")) == node

    await scene.api.wait_for(so, SECONDS, f"pod {pod} is nominated for {node!r}")


def _device(entry: Object) -> tuple[tuple[str, str], ...]:
    return tuple((key, entry[key]) for key in ("driver", "pool", "device"))


def _true(condition: str, message: str) -> Object:
    now = "2026-01-01T00:00:00Z"
    return {"type": condition, "status": "True", "reason": "Test", "message": message, "lastTransitionTime": now}
