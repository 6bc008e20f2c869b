"""A PodGroup of many pods on one named claim, in memory, with kubelets that do or do not accept its reservation."""

import asyncio
import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dra_extender.model.resource_claim import OWN_ENTRIES
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.controlplane.objects import consumer
from tests.support.scheduling.grouped import GROUP, NAMED
from tests.support.scheduling.reclaiming import OPTIONS
from tests.support.scheduling.world import InMemoryExtender

TRIAL: Final = OPTIONS.pod_group_trial_seconds
STARTED: Final = "PodReadyToStartContainers"


class CrowdExtender(InMemoryExtender):
    """Nodes that all reach the one device; `able` says of each whether its kubelet has the gate."""

    def __init__(self, able: Mapping[str, bool], **options: object) -> None:
        self.able = dict(able)
        super().__init__(dataclasses.replace(OPTIONS, **options))  # type: ignore[arg-type]
        self.device_class()
        for name in able:
            self.a_node(name)
        self.fabric({"name": "gpu-0"})
        self.add_claim("shared")
        self.group()

    def a_node(self, name: str, *, boot: str = "boot-1", version: str = "v1.37.1", **labels: str) -> None:
        """Make the node, or change it."""
        status = {"nodeInfo": {"bootID": boot, "kubeletVersion": version}}
        named = {each.replace("_", "-"): value for each, value in labels.items()}
        raw = {"metadata": {"name": name, "labels": named}, "status": status}
        key = Key(StoredKind.NODE, "", name)
        if self.cluster.store.find(key) is None:
            self.create(StoredKind.NODE, raw)
            return

        def change(node: Json) -> None:
            node["status"] = status
            node["metadata"]["labels"] = named

        self.cluster.store.edit_unchecked(key, change)
        self.sync()

    def group(self, min_count: int = 0) -> None:
        """The PodGroup, with the claim."""
        self.add_group(GROUP, min_count, resourceClaims=[NAMED])

    def members(self, *names: str, node: str = "") -> None:
        """Pods of the group; with a node, they are bound to it."""
        on = {"nodeName": node} if node else {}
        for name in names:
            self.add_member(GROUP, name, resourceClaims=[NAMED], **on)

    def entries(self) -> list[str]:
        """The names in `reservedFor`; that of the group is `team`."""
        return [each["name"] for each in self.claim("shared").get("status", {}).get("reservedFor", [])]

    def accepted(self, pod: str) -> bool:
        """Whether the kubelet on the pod's node would start it."""
        return self._accepts(pod, self.node_of(pod), self.entries())

    def _accepts(self, pod: str, node: str, entries: Collection[str]) -> bool:
        return pod in entries or (self.able[node] and GROUP in entries)

    def started(self, pod: str, *, status: str = "True") -> None:
        """The kubelet says so."""
        self._say(pod, status)
        self.sync()

    def _say(self, pod: str, status: str) -> None:
        def change(raw: Json) -> None:
            raw.setdefault("status", {})["conditions"] = [{"type": STARTED, "status": status}]

        self.cluster.store.edit_unchecked(Key(StoredKind.POD, "default", pod), change)

    def kubelets_work(self) -> None:
        """Kubelets start what they accept."""
        entries = set(self.entries())
        for pod in self.cluster.store.all(StoredKind.POD):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            is_started = any(each["type"] == STARTED for each in pod["status"].get("conditions") or ())
            if node and not is_started and self._accepts(name, node, entries):
                self._say(name, "True")
        self.sync()

    async def look(self, seconds: float = 0.0) -> None:
        """The trials are looked at, and again after so many seconds."""
        await self.extender.group_entry_watch.look()
        if seconds:
            self.clock.seconds += seconds
            await self.extender.group_entry_watch.look()
        self.sync()

    async def try_all(self, pods: Iterable[str], *nodes: str) -> list[str]:
        """Ask about each and bind it where it is offered; those that were not bound.  The watch must be running."""
        left = []
        for pod in pods:
            fitting = list((await self.filter(pod, *(nodes or self.able))).fitting)
            try:
                if fitting:
                    await self.bind(pod, fitting[sum(map(ord, pod)) % len(fitting)])
            except RetryableError:
                fitting = []
            if not fitting:
                left.append(pod)
        self.sync()
        return left

    async def bound_together(self, pods: Iterable[str], node: str) -> list[str]:
        """Bind all at once; the reasons of those that were refused."""
        outcomes = await asyncio.gather(*(self.bind(pod, node) for pod in pods), return_exceptions=True)
        self.sync()
        return [str(each) for each in outcomes if each is not None]

    def restart(self) -> None:
        """A new process."""
        self.start()
        self.sync()


def names(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{index}" for index in range(count)]


async def crowded(able: Mapping[str, bool], **options: object) -> CrowdExtender:
    """So many pods are bound and started that the next needs its group's entry."""
    world = CrowdExtender(able, **options)
    (first, *others), node = names(OWN_ENTRIES), next(iter(able))
    world.members(first)
    await world.bind_through(first, node)
    world.members(*others, node=node)
    claim = world.claim("shared")
    claim["status"]["reservedFor"] += [consumer(each, world.uid(each)) for each in others]
    world.cluster.store.update_status(StoredKind.CLAIM, claim)
    world.kubelets_work()
    return world
