import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.controlplane import objects
from tests.controlplane.node.configuration import IMAGE
from tests.controlplane.objects import DRIVER, Object
from tests.controlplane.resources import DEVICE_CLASSES, POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.node.injected import expected, expected_of_extended, injected
from tests.support.node.nodes import RealNodes

RUN_SECONDS: Final = 120.0
"""How long a pod may take to run, or to end, on a busy machine."""
GONE_SECONDS: Final = 120.0
GRACE_SECONDS: Final = 30
CPU: Final = "1m"
"""Thirty pods fit on a machine of two processors."""


@dataclass(slots=True)
class PodScene(NamespaceFixture):
    """What one test has for itself among real nodes: a namespace and a device class, and pods that really run.

    The nodes are the module's, and so are the driver and its devices.
    """

    nodes: RealNodes = field(kw_only=True)
    driver_name: str = DRIVER

    @property
    def driver(self) -> str:
        return self.driver_name

    async def pod(
        self,
        name: str,
        *,
        template: str | None = None,
        claim: str | None = None,
        **fields: Any,
    ) -> str:
        """Creates a pod (see `body`); returns its UID."""
        body = self.body(name, template=template, claim=claim, **fields)
        return str((await self.api.create(PODS, body))["metadata"]["uid"])

    def body(
        self,
        name: str,
        *,
        template: str | None = None,
        claim: str | None = None,
        commands: Sequence[str] = ("env",),
        containers: Mapping[str, Sequence[str]] | None = None,
        **fields: Any,
    ) -> Object:
        """A pod whose containers do what `commands` say (see programs/box: `env`, `exit N`, `wait`).

        `containers`: {container: references of its claims, CLAIM or CLAIM/REQUEST, by the pod's own names for claims}; by default
        one container, `main`, has all of them.  The rest is as in NamespaceFixture and objects.pod.
        """
        sources: dict[str, Any] = {}
        if template is not None:
            sources["templates"] = {"gpu": template}
        if claim is not None:
            sources["claims"] = {"gpu": claim}
        given = {"scheduler": self.scheduler, "cpu": CPU, "restartPolicy": "Never", **sources, **fields}
        body = objects.pod(name, self.name, **{"terminationGracePeriodSeconds": GRACE_SECONDS, **given})
        body["spec"]["dnsPolicy"] = "Default"
        (usual,) = body["spec"]["containers"]
        usual |= {"image": IMAGE, "imagePullPolicy": "Never", "args": list(commands)}
        if containers is not None:
            body["spec"]["containers"] = [
                {**usual, "name": each, "resources": {**usual["resources"], "claims": [*map(_reference, references)]}}
                for each, references in containers.items()
            ]
        return body

    async def delete_pod(self, name: str) -> None:
        """Deletes a pod with its grace."""
        await self.api.delete(PODS, name, self.name)

    async def wait_until_running(self, name: str, seconds: float = RUN_SECONDS) -> Object:
        """Wait until every container of the pod runs; returns the pod."""

        def running(pod: Object) -> bool:
            statuses = pod["status"].get("containerStatuses", ())
            return pod["status"].get("phase") == "Running" and all("running" in each["state"] for each in statuses)

        return await self._wait(name, running, "runs", seconds)

    async def wait_until_ended(self, name: str) -> str:
        """Wait until all containers of the pod have ended for good; returns its phase, Succeeded or Failed."""
        pod = await self._wait(
            name, lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"), "ends", RUN_SECONDS
        )
        return str(pod["status"]["phase"])

    async def wait_until_gone(self, name: str) -> None:
        """Wait until the pod does not exist any more."""

        async def gone() -> bool:
            return all(each["metadata"]["name"] != name for each in await self.api.list(PODS, self.name))

        await self.api.wait_for(gone, GONE_SECONDS, f"pod {name} is gone")

    async def container_id(self, name: str) -> str:
        """Which container of the runtime is the pod's container now."""
        statuses = (await self.read(name))["status"].get("containerStatuses", ())
        return next((str(each.get("containerID", "")) for each in statuses if each["name"] == "main"), "")

    async def wait_until_restarted(self, name: str, before: str) -> None:
        """Wait until the pod's container is another one of the runtime than `before`, and runs."""

        async def another() -> bool:
            return await self.container_id(name) not in ("", before)

        await self.api.wait_for(another, RUN_SECONDS, f"the container of pod {name} has been started again")
        await self.wait_until_running(name)

    async def logs(self, name: str, container: str = "main") -> str:
        """What a container has printed, as the kubelet gives it out."""
        return await self.api.text(f"{PODS.path(self.name, name, 'log')}?container={container}")

    async def environment(self, name: str, container: str = "main") -> dict[str, str]:
        """The variables that the driver has put into a running container, which was told to print its `env`."""

        async def printed() -> str:
            text = await self.logs(name, container)
            return text if "PATH=" in text else ""

        text = await self.api.wait_for(
            printed, RUN_SECONDS, f"container {container} of pod {name} prints its environment"
        )
        return injected(text)

    async def expected(self, name: str, container: str = "main") -> dict[str, str]:
        """The variables that the container has to have by the allocations of the pod's claims."""
        pod = await self.read(name)
        claims = await self.claims_of(pod)
        every = (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
        (found,) = [each for each in every if each["name"] == container]
        special = pod["status"].get("extendedResourceClaimStatus")
        if special is None:
            return expected(claims, found, self.driver)
        made = await self.stored_claim(special["resourceClaimName"])
        extended = expected_of_extended(made, special["requestMappings"], container, self.driver)
        return expected(claims, found, self.driver) | extended

    async def claims_of(self, pod: Object) -> dict[str, Object]:
        """The claims of a pod by the pod's own names for them."""
        generated = {
            each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses", ())
        }
        references = pod["spec"].get("resourceClaims", ())
        names = {each["name"]: each.get("resourceClaimName") or generated[each["name"]] for each in references}
        return {own: await self.stored_claim(name) for own, name in names.items()}

    async def expect_devices(self, name: str, container: str = "main") -> dict[str, str]:
        """Wait until the pod runs; its container has exactly the devices of the allocations, and at least one; returns them."""
        await self.wait_until_running(name)
        found = await self.environment(name, container)
        assert found == await self.expected(name, container)
        assert found
        return found

    async def clear(self) -> None:
        """Deletes everything of this scene with grace, and waits until it is gone: kubelets have unprepared all devices then."""
        for resource in (PODS, POD_GROUPS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES):
            await self.api.delete_collection(resource, self.name)
            await self.api.wait_for(
                lambda kind=resource: self._none(kind),  # type: ignore[misc]
                GONE_SECONDS,
                f"all {resource.plural} are gone",
            )
        classes = [each["metadata"]["name"] for each in await self.api.list(DEVICE_CLASSES)]
        await asyncio.gather(*(self.api.delete(DEVICE_CLASSES, each) for each in classes if each.startswith(self.name)))

    async def _wait(self, name: str, holds: Callable[[Object], bool], what: str, seconds: float) -> Object:
        async def found() -> Object | None:
            pod = await self.read(name)
            return pod if holds(pod) else None

        try:
            pod = await self.api.wait_for(found, seconds, f"pod {name} {what}")
        except TimeoutError as late:
            status = json.dumps((await self.read(name))["status"])
            raise TimeoutError(f"{late} {await self.state(name)} {status}") from late
        assert pod is not None
        return pod


def _reference(text: str) -> Object:
    claim, _, request = text.partition("/")
    return {"name": claim, **({"request": request} if request else {})}
