import asyncio
import re
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from dra_extender.kube.scheduler_waker import WAKE_UP_CLASS

from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.apierror import ApiError
from tests.controlplane.objects import Object
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from tests.support.e2e.installed_extender import InstalledExtender

SECONDS = 60.0
"""How long anything that has to happen may take on a busy machine."""
PROMPT_SECONDS = 30.0
"""How long a waiting pod may wait once its devices are free: longer than kube-scheduler backs off, far less than its own retry."""
CLEAR_SECONDS = 60.0
RETRY_SECONDS = 0.5
SCENE_LABEL = "example.com/scene"
_NAME_LENGTH = 24


@dataclass(slots=True)
class NamespaceFixture:
    """What one test has for itself in a shared world: a namespace, a driver with its device class, and nodes, named after it.

    `scheduler` is that of its pods. With `apart`, its pods can go to its own nodes alone.
    """

    world: InstalledExtender
    name: str
    scheduler: str = objects.SCHEDULER_NAME
    apart: bool = False

    @property
    def api(self) -> ApiClient:
        """The administrator's client."""
        return self.world.api

    @property
    def driver(self) -> str:
        return f"{self.name}.example.com"

    def attribute(self, name: str) -> str:
        """CEL for an attribute of a device."""
        return f'device.attributes["{self.driver}"].{name}'

    async def open(self) -> None:
        await self.api.create(NAMESPACES, objects.namespace(self.name))
        await self.api.create(DEVICE_CLASSES, self.device_class())

    def device_class(self, **fields: Any) -> Object:
        """The class of all devices of the driver."""
        return objects.device_class(self.name, f'device.driver == "{self.driver}"', **fields)

    async def node(self, suffix: str, **fields: Any) -> str:
        """Creates a node; its name ends like this."""
        name = f"{self.name}-{suffix}"
        labels = {**self._own, **fields.pop("labels", {})}
        await self.api.create(NODES, objects.node(name, labels=labels, **fields))
        return name

    def slice_of(self, name: str, **fields: Any) -> Object:
        """A slice of the driver (see objects.resource_slice)."""
        return objects.resource_slice(f"{self.name}-{name}", driver=self.driver, **fields)

    async def publish(self, *slices: Object) -> None:
        for each in slices:
            await self.api.create(RESOURCE_SLICES, each)

    async def node_with_devices(self, suffix: str, *devices: Object, **fields: Any) -> str:
        """Creates a node and the one slice of its devices (without counters)."""
        name = await self.node(suffix, **fields)
        await self.publish(self.slice_of(suffix, node=name, devices=devices))
        return name

    async def node_with_counters(
        self, suffix: str, counter_sets: Sequence[Object], devices: Sequence[Object], **fields: Any
    ) -> str:
        """Creates a node and the two slices of its pool, which is called like it: NODE-counters and NODE-devices."""
        name = await self.node(suffix, **fields)
        await self.publish(
            self.slice_of(f"{suffix}-counters", node=name, slice_count=2, counter_sets=counter_sets),
            self.slice_of(f"{suffix}-devices", node=name, slice_count=2, devices=devices),
        )
        return name

    async def other_driver(self, word: str, node: str, *devices: Object) -> None:
        """Creates the slice of another driver on this node, and a template `word` of claims for one of its devices."""
        driver, device_class = f"{word}.{self.driver}", f"{self.name}-{word}"
        await self.api.create(DEVICE_CLASSES, objects.device_class(device_class, f'device.driver == "{driver}"'))
        await self.publish(objects.resource_slice(device_class, driver=driver, node=node, devices=devices))
        template = objects.resource_claim_template(word, self.name, objects.request(word, device_class))
        await self.api.create(RESOURCE_CLAIM_TEMPLATES, template)

    def request(self, *expressions: str, device_class: str | None = None, **fields: Any) -> Object:
        """A request `gpu` for a device of the class of this scene."""
        return objects.request("gpu", device_class or self.name, *expressions, **fields)

    async def template(self, name: str, *expressions: str, **fields: Any) -> None:
        """Creates a template of claims for such a device."""
        template = objects.resource_claim_template(name, self.name, self.request(*expressions, **fields))
        await self.api.create(RESOURCE_CLAIM_TEMPLATES, template)

    async def claim(self, name: str, *expressions: str, **fields: Any) -> None:
        await self.api.create(
            RESOURCE_CLAIMS, objects.resource_claim(name, self.name, self.request(*expressions, **fields))
        )

    async def pod(self, name: str, *, template: str | None = None, claim: str | None = None, **fields: Any) -> str:
        """Creates a pod, with one claim called gpu from a template or by name (or with those of `claims`); returns its UID."""
        sources: dict[str, Any] = {}
        if template is not None:
            sources["templates"] = {"gpu": template}
        if claim is not None:
            sources["claims"] = {"gpu": claim}
        if self.apart:
            fields["nodeSelector"] = {**self._own, **fields.get("nodeSelector", {})}
        created = await self.api.create(
            PODS, objects.pod(name, self.name, **{"scheduler": self.scheduler, **sources, **fields})
        )
        return str(created["metadata"]["uid"])

    async def delete_pod(self, name: str) -> None:
        """Deletes a pod at once, as no kubelet would confirm its end."""
        await self.api.delete(PODS, name, self.name, grace_seconds=0)

    async def read(self, name: str) -> Object:
        return await self.api.get(PODS, name, self.name)

    async def node_of(self, name: str) -> str:
        """The node to which the pod is bound, or nothing."""
        return str((await self.read(name))["spec"].get("nodeName", ""))

    async def wait_until_bound(self, name: str, seconds: float = SECONDS) -> str:
        """Wait until the pod is bound; returns the node."""
        try:
            return await self.api.wait_for(lambda: self.node_of(name), seconds, f"pod {name} is bound")
        except TimeoutError as late:
            raise TimeoutError(f"{late} {await self.state(name)}") from late

    async def condition(self, name: str) -> Object:
        """The condition PodScheduled of the pod."""
        conditions = (await self.read(name))["status"].get("conditions", ())
        return next((dict(each) for each in conditions if each["type"] == "PodScheduled"), {})

    async def wait_until_unschedulable(self, name: str, because: str = "", *, again: bool = False) -> str:
        """Wait until kube-scheduler says that the pod fits nowhere, with `because` in its message; returns the message.

        `again`: let kube-scheduler retry rejected pods now and then, because it may see a change before the extender does.
        """

        async def rejection() -> str:
            found = await self.condition(name)
            message = str(found.get("message", ""))
            if found.get("reason") == "Unschedulable" and because in message:
                return message
            if again:
                await self.retry()
            return ""

        try:
            message = await self.api.wait_for(rejection, SECONDS, f"pod {name} is unschedulable ({because!r})")
        except TimeoutError as late:
            raise TimeoutError(f"{late} {await self.state(name)}") from late
        assert await self.node_of(name) == ""
        return message

    async def retry(self) -> None:
        """Let kube-scheduler retry all rejected pods, as any change of a DeviceClass does."""
        change = {"metadata": {"annotations": {"example.com/retried-at": str(time.monotonic())}}}
        await self.api.patch(DEVICE_CLASSES, WAKE_UP_CLASS, change)
        await asyncio.sleep(RETRY_SECONDS)

    async def events(self, name: str) -> list[Object]:
        """Events about the pod, of any controller."""
        return [each for each in await self.api.list(EVENTS, self.name) if each["regarding"].get("name") == name]

    async def wait_for_event(self, name: str, *words: str) -> str:
        """Wait for an Event of the extender about the pod with all these texts; returns its note."""

        async def note() -> str:
            for each in await self.events(name):
                text = str(each.get("note", ""))
                if each.get("reportingController") == "dra-extender" and all(word in text for word in words):
                    return text
            return ""

        try:
            return await self.api.wait_for(note, SECONDS, f"an Event of the extender about pod {name} says {words}")
        except TimeoutError as late:
            raise TimeoutError(f"{late} {await self.state(name)}") from late

    async def state(self, name: str) -> str:
        """What is known about a pod that does not do what it should."""
        told = sorted({f"{each.get('reportingController')}: {each.get('note')}" for each in await self.events(name)})
        where = await self.node_of(name)
        return f"Node: {where!r}. Condition: {await self.condition(name)}. Events: {told}. Allocated here: {await self.allocated()}"

    async def claim_of(self, name: str) -> Object:
        """The claim of the pod called gpu, by name or generated."""
        pod = await self.read(name)
        reference = next(each for each in pod["spec"]["resourceClaims"] if each["name"] == "gpu")
        generated = {
            each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses", ())
        }
        return await self.stored_claim(reference.get("resourceClaimName") or generated["gpu"])

    async def stored_claim(self, name: str) -> Object:
        return await self.api.get(RESOURCE_CLAIMS, name, self.name)

    async def device_of(self, name: str) -> str:
        """The one device of the pod's claim as POOL/DEVICE."""
        (device,) = devices_of(await self.claim_of(name))
        return device

    async def allocated(self) -> list[str]:
        """All devices that claims of this scene hold, sorted."""
        return sorted(each for claim in await self.api.list(RESOURCE_CLAIMS, self.name) for each in devices_of(claim))

    async def wait_until_free(self, seconds: float = SECONDS) -> None:
        """Wait until no claim of this scene is allocated."""

        async def nothing() -> bool:
            return not await self.allocated()

        await self.api.wait_for(nothing, seconds, "nothing is allocated any more")

    async def clear(self) -> None:
        """Deletes everything that could be in the way of the next test, and waits until it is gone."""
        api = self.api
        for resource in (PODS, RESOURCE_CLAIMS):
            grace = 0 if resource is PODS else None
            await api.delete_collection(resource, self.name, grace_seconds=grace)
            await api.wait_for(lambda kind=resource: self._none(kind), CLEAR_SECONDS, f"all {resource.plural} are gone")  # type: ignore[misc]
        await asyncio.gather(api.delete_collection(RESOURCE_SLICES), api.delete_collection(NODES))
        for each in await api.list(DEVICE_CLASSES):
            if each["metadata"]["name"].startswith(self.name):
                await api.delete(DEVICE_CLASSES, each["metadata"]["name"])

    @property
    def _own(self) -> dict[str, str]:
        return {SCENE_LABEL: self.name} if self.apart else {}

    async def _none(self, resource: Resource) -> bool:
        return not await self.api.list(resource, self.name)


def namespace_name(request: pytest.FixtureRequest) -> str:
    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:_NAME_LENGTH].strip("-")
    return f"{words}-{zlib.crc32(request.node.nodeid.encode()):08x}"


def devices_of(claim: Object) -> list[str]:
    """The devices that a claim holds, as POOL/DEVICE."""
    allocation = claim.get("status", {}).get("allocation") or {}
    return [f"{each['pool']}/{each['device']}" for each in allocation.get("devices", {}).get("results", ())]


async def refusal(api: ApiClient, resource: Resource, body: Object) -> ApiError:
    """The API server's refusal of an object; fails if it is accepted."""
    try:
        await api.create(resource, body)
    except ApiError as refused:
        return refused
    raise AssertionError(f"the API server accepted {body['metadata']['name']}")
