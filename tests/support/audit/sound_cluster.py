"""Random clusters in which everything is as it must be, kept so by an account of their own that knows nothing of the program's.

Each has nodes, whole devices, partitions with counters and groups, devices of which claims have shares, devices with binding
conditions, pods that run, wait and have ended, and claims that this program and, before it, another scheduler allocated.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import AllocationResult, DeviceHolding
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_claim import FINALIZER

from tests.controlplane import objects
from tests.support.audit.sound_workloads import add_workloads
from tests.support.inspection.made_cluster import NAMESPACE, NOW, Json, MadeCluster

GPUS: Final = "gpu.example.com"
PARTITIONS: Final = "mig.example.com"
SHARED: Final = "nic.example.com"
FABRIC: Final = "fabric.example.com"
TAKEOVER: Final = NOW - 86_400.0
"""Before it the other scheduler allocated, after it this program."""
ATTACHED: Final = "FabricAttached"
_SLICES: Final = 98


def stamp(seconds: float) -> str:
    """A time as the API server writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class CounterAccount:
    """What is left of a counter set, and the groups of its members."""

    left: int = _SLICES
    members: list[frozenset[str]] = field(default_factory=list)

    @property
    def common(self) -> list[str]:
        """The groups that all members have."""
        return sorted(frozenset.intersection(*self.members)) if self.members else []

    def admits(self, units: int, groups: frozenset[str]) -> bool:
        """Whether a device may join: pencil and paper, as KEP-4815 and KEP-5963 say."""
        if units > self.left:
            return False
        together = [*self.members, groups]
        if not any(together):
            return True
        return bool(frozenset.intersection(*together))


@dataclass
class Placed:
    """A claim with its pod and its only device."""

    claim: Json
    pod: Json
    node: str
    driver: str
    device: str

    @property
    def name(self) -> str:
        """namespace/name of the claim."""
        return f"{NAMESPACE}/{self.claim['metadata']['name']}"

    @property
    def device_id(self) -> str:
        """driver/pool/device."""
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def pool(self) -> str:
        return str(self.result["pool"])

    @property
    def result(self) -> Json:
        """The only result of the allocation."""
        result: Json = self.claim["status"]["allocation"]["devices"]["results"][0]
        return result


class SoundCluster:
    """One random cluster; `made` has its objects, `placed` the allocations."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made = MadeCluster()
        self.placed: list[Placed] = []
        self.nodes = [f"n{index}" for index in range(self.random.randint(2, 5))]
        self.sets: dict[tuple[str, str], CounterAccount] = {}
        self.capacity: dict[tuple[str, str], int] = {}
        self._free: dict[str, list[tuple[str, str]]] = {GPUS: [], FABRIC: []}
        self._number = 0
        self._publish()
        for _ in range(self.random.randint(4, 12)):
            self.random.choice((self._whole, self._partition, self._share, self._attached))()
        self._whole()
        self._partition()
        self._share()
        self._bystanders()
        add_workloads(self.made, self.nodes, random.Random(seed))

    def of(self, driver: str) -> list[Placed]:
        """The allocations of devices of a driver."""
        return [each for each in self.placed if each.driver == driver]

    def slice_of(self, driver: str, node: str, member: str = "devices") -> Json:
        """The slice that publishes the devices of a driver on a node, or its counter sets (`sharedCounters`)."""
        found: Json = next(
            each
            for each in self.made.objects["resourceslices"]
            if (each["spec"]["driver"], each["spec"].get("nodeName")) == (driver, node) and member in each["spec"]
        )
        return found

    def _publish(self) -> None:
        made = self.made
        made.nodes(*self.nodes)
        for driver in (GPUS, PARTITIONS, SHARED):
            made.add(objects.device_class(driver.partition(".")[0], f'device.driver == "{driver}"'))
        made.add(
            objects.device_class("fabric", f'device.driver == "{FABRIC}" && device.attributes["{FABRIC}"].rack == 1')
        )
        for node in self.nodes:
            self._publish_node(node)
        names = [f"port-{index}" for index in range(4)]
        devices = [
            objects.device(
                each,
                attributes={"rack": 1},
                bindingConditions=[ATTACHED],
                bindingFailureConditions=["FabricFailed"],
            )
            for each in names
        ]
        made.add(objects.resource_slice("fabric", driver=FABRIC, pool="rack-1", allNodes=True, devices=devices))
        self._free[FABRIC] = [("rack-1", each) for each in names]

    def _publish_node(self, node: str) -> None:
        made, chosen = self.made, self.random
        gpus = [f"gpu-{index}" for index in range(chosen.randint(2, 4))]
        self._free[GPUS] += [(node, each) for each in gpus]
        made.gpus(
            node, *(objects.device(each, attributes={"model": chosen.choice("ab")}) for each in gpus), driver=GPUS
        )
        sets = [f"card-{index}" for index in range(chosen.randint(1, 2))]
        devices = []
        for each in sets:
            self.sets[node, each] = CounterAccount()
            for index in range(6):
                groups = chosen.choice(((), ("mig",), ("mig", "mps"), ("mps",), ("vgpu",)))
                drawn = objects.consumption(each, groups=groups, sm=str(chosen.choice((14, 28, 42))))
                devices.append(objects.device(f"{each}-part-{index}", consumes=[drawn]))
        counters = [objects.counter_set(each, sm=str(_SLICES)) for each in sets]
        made.add(
            objects.resource_slice(
                f"{PARTITIONS}-{node}-sets", node=node, driver=PARTITIONS, slice_count=2, counter_sets=counters
            ),
            objects.resource_slice(
                f"{PARTITIONS}-{node}-parts", node=node, driver=PARTITIONS, slice_count=2, devices=devices
            ),
        )
        self.capacity[node, "nic-0"] = 100
        nic = objects.device("nic-0", capacity={"bandwidth": "100"}, allowMultipleAllocations=True)
        made.gpus(node, nic, driver=SHARED)

    def _whole(self) -> None:
        free = self._free[GPUS]
        if free:
            node, device = free.pop(self.random.randrange(len(free)))
            self.place(GPUS, node, node, device)

    def _attached(self) -> None:
        """A device whose condition is true, or not yet and the limit has not passed: then the pod is not bound."""
        free = self._free[FABRIC]
        if not free:
            return
        pool, device = free.pop()
        waits = self.random.random() < 0.5
        placed = self.place(
            FABRIC, self.random.choice(self.nodes), pool, device, allocated=NOW - 60 if waits else NOW - 7200
        )
        placed.result.update(bindingConditions=[ATTACHED], bindingFailureConditions=["FabricFailed"])
        self.freeze(placed, ())
        if waits:
            del placed.pod["spec"]["nodeName"]
            placed.pod["status"] = {"phase": "Pending"}
            return
        if self.random.random() < 0.3:
            return  # The driver reports something else by now.
        condition = {"type": ATTACHED, "status": "True", "reason": "Done", "lastTransitionTime": stamp(NOW - 7100)}
        placed.claim["status"]["devices"] = [
            {"driver": FABRIC, "pool": pool, "device": device, "conditions": [condition]}
        ]

    def _partition(self) -> None:
        """A device that its counter set admits; afterwards its slice may say something else about its groups."""
        node = self.random.choice(self.nodes)
        taken = {each.device for each in self.of(PARTITIONS) if each.node == node}
        devices = self.slice_of(PARTITIONS, node)["spec"]["devices"]
        self.random.shuffle(devices)
        for each in devices:
            drawn = each["consumesCounters"][0]
            units, groups = int(drawn["counters"]["sm"]["value"]), frozenset(drawn.get("compatibilityGroups", ()))
            account = self.sets[node, drawn["counterSet"]]
            if each["name"] in taken or not account.admits(units, groups):
                continue
            account.left -= units
            account.members.append(groups)
            placed = self.place(PARTITIONS, node, node, each["name"])
            self.freeze(placed, (_consumption(drawn["counterSet"], units, groups),))
            if SNAPSHOT_ANNOTATION in placed.claim["metadata"].get("annotations", {}) and self.random.random() < 0.3:
                drawn["compatibilityGroups"] = ["later"]
            return

    def _share(self) -> None:
        node = self.random.choice(self.nodes)
        amount = self.random.randint(5, 40)
        if self.capacity[node, "nic-0"] >= amount:
            self.capacity[node, "nic-0"] -= amount
            placed = self.place(SHARED, node, node, "nic-0")
            placed.result.update(shareID=f"share-{self._number}", consumedCapacity={"bandwidth": str(amount)})
            asked = placed.claim["spec"]["devices"]["requests"][0]["exactly"]
            asked["capacity"] = {"requests": {"bandwidth": str(amount)}}
            self.freeze(placed, ())

    def place(self, driver: str, node: str, pool: str, device: str, allocated: float | None = None) -> Placed:
        """A pod that runs on the node, its claim, and this device for it."""
        self._number += 1
        name, made = f"p{self._number}", self.made
        request = objects.request("r", driver.partition(".")[0])
        made.running(name, node, device, request, driver=driver)
        pod, claim = made.objects["pods"][-1], made.objects["resourceclaims"][-1]
        claim["metadata"]["finalizers"] = [FINALIZER]
        claim["metadata"]["creationTimestamp"] = stamp(TAKEOVER - 90_000)
        allocation = claim["status"]["allocation"]
        allocation["devices"]["results"][0]["pool"] = pool
        if pool != node:
            del allocation["nodeSelector"]
        own = allocated is not None or self.random.random() < 0.7
        before, after = TAKEOVER - 1000 - self._number, TAKEOVER + 1000 + self._number
        allocation["allocationTimestamp"] = stamp(allocated or (after if own else before))
        if not own:
            claim["metadata"]["labels"] = {"made-by": "another"}
        placed = Placed(claim, pod, node, driver, device)
        self.freeze(placed, ())
        self.placed.append(placed)
        return placed

    def freeze(self, placed: Placed, consumption: tuple[CounterConsumption, ...]) -> None:
        """Write the snapshot of an allocation of this program."""
        if "labels" in placed.claim["metadata"]:
            return
        allocation = msgspec.convert(placed.claim["status"]["allocation"], AllocationResult)
        result = placed.result
        holding = DeviceHolding(
            driver=placed.driver,
            pool=result["pool"],
            device=placed.device,
            share_id=result.get("shareID"),
            consumption=consumption,
        )
        placed.claim["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: encode_snapshot(allocation, (holding,))}

    def _bystanders(self) -> None:
        """What is not allocated and no fault: pods that wait, that have ended, that ask for nothing; an observer of a device."""
        made = self.made
        made.add(objects.device_class("wake-up.dra-extender.io", "false"))
        made.pod("waits", objects.request("r", "gpu"))
        made.add(objects.pod("plain", NAMESPACE, nodeName=self.nodes[0]))
        made.pod("ended", objects.request("r", "gpu"))
        made.objects["pods"][-1]["spec"]["nodeName"] = self.nodes[0]
        made.objects["pods"][-1]["status"] = {"phase": "Succeeded"}
        made.pod("leaves", objects.request("r", "gpu"))
        made.objects["resourceclaims"][-1]["metadata"]["deletionTimestamp"] = stamp(NOW - 20)
        watched = self.placed[0]
        request = objects.request("r", watched.driver.partition(".")[0], adminAccess=True)
        made.running("observer", watched.node, watched.device, request, driver=watched.driver)
        observer = made.objects["resourceclaims"][-1]
        observer["metadata"]["finalizers"] = [FINALIZER]
        observer["status"]["allocation"]["devices"]["results"][0].update(pool=watched.pool, adminAccess=True)


def _consumption(counter_set: str, units: int, groups: frozenset[str]) -> CounterConsumption:
    return CounterConsumption(
        counter_set=counter_set, counters=(("sm", units * NANO),), compatibility_groups=tuple(sorted(groups))
    )
