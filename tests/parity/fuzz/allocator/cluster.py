"""Random nodes and slices: local pools, fabric pools, pools over several nodes, and what can be wrong with them."""

from collections.abc import Iterator, Sequence

from tests.parity.fuzz.allocator import cards
from tests.parity.fuzz.allocator.chance import Chance, Json
from tests.parity.fuzz.allocator.devices import COUNTERS, DRIVERS, SETS, device, selector


def nodes(chance: Chance) -> list[Json]:
    """One to four nodes."""
    found: list[Json] = []
    for index in range(chance.among([1, 1, 1, 2, 2, 3, 4])):
        name = f"node-{index}"
        labels = {"kubernetes.io/hostname": name, "region": chance.among(["west", "east"])}
        if chance.rarely(0.4):
            labels["rack"] = "r1"
        if chance.rarely(0.5):
            labels["slots"] = chance.among(["2", "3", "4", "many"])
        node: Json = {"metadata": {"name": name, "labels": labels}}
        if chance.rarely(0.5):
            node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
        found.append(node)
    return found


class Slices:
    """The slices of one cluster in the making."""

    def __init__(self, chance: Chance, names: Sequence[str]) -> None:
        self._chance = chance
        self._nodes = names
        self._devices = 0
        self._slices = 0

    def all(self) -> list[Json]:
        """Every slice, in arbitrary order."""
        chance, found = self._chance, list[Json]()
        for driver in DRIVERS[: chance.among([1, 1, 1, 2])]:
            for node in self._nodes:
                if not chance.rarely(0.1):
                    found += self._pool(driver, node, {"nodeName": node})
            everywhere: Json = {"allNodes": True} if chance.rarely(0.5) else {"nodeSelector": selector(chance)}
            if chance.rarely(0.3):
                found += self._pool(driver, "fabric", everywhere)
            if chance.rarely(0.25):
                found += self._pool(driver, "chosen", {"perDeviceNodeSelection": True})
            if chance.rarely(0.2):
                found += self._pool(driver, "wide", None)
        chance.random.shuffle(found)
        return found

    def _pool(self, driver: str, pool: str, where: Json | None) -> Iterator[Json]:
        """A pool; without `where` each of its slices is for one node."""
        chance = self._chance
        counters = chance.of("counters")
        sets = cards.counter_sets(chance) if counters and chance.rarely(0.6) else None
        parts = chance.among([1, 1, 2, 3])
        slices = [{"devices": self._some(driver, counters and sets is None, where)} for _ in range(parts)]
        if sets is not None:
            self._cut(slices, sets)
        if counters:
            slices += self._counters() if sets is None else self._declared(sets)
        count = len(slices)
        defects = chance.of("defects")
        if defects and chance.rarely(0.15):
            count += chance.among([-1, 1])
        if defects and chance.rarely(0.15):
            self._repeat(slices)
        for each in slices:
            at = where if where is not None else {"nodeName": chance.among(self._nodes)}
            yield self._slice(driver, pool, 2, count, at, each)
        if defects and chance.rarely(0.15):
            for _ in range(chance.between(1, 2)):
                at = where if where is not None and chance.rarely(0.5) else {"nodeName": chance.among(self._nodes)}
                stale: Json = {"devices": self._some(driver, counters, at)}
                yield self._slice(driver, pool, chance.among([1, 1, 3]), chance.among([1, 2]), at, stale)

    def _some(self, driver: str, counters: bool, where: Json | None) -> list[Json]:
        selects = where is not None and "perDeviceNodeSelection" in where
        found = []
        for _ in range(self._chance.among([0, 1, 2, 3, 3, 4, 4, 5, 7])):
            self._devices += 1
            name = f"d{self._devices}"
            found.append(device(self._chance, name, driver, counters=counters, selects=selects, nodes=self._nodes))
        return found

    def _counters(self) -> list[Json]:
        chance = self._chance
        sets = [
            {"name": name, "counters": {each: {"value": str(chance.between(1, 8))} for each in COUNTERS}}
            for name in SETS
        ]
        if chance.of("defects") and chance.rarely(0.1):
            if chance.rarely(0.5):
                sets.pop()
            else:
                sets[0]["counters"] = {"memory": {"value": "4"}}
        return self._declared(sets)

    def _declared(self, sets: list[Json]) -> list[Json]:
        """The slices that declare these counter sets, one or several."""
        if self._chance.rarely(0.3) and len(sets) > 1:
            return [{"sharedCounters": [each]} for each in sets]
        return [{"sharedCounters": sets}]

    def _cut(self, slices: list[Json], sets: list[Json]) -> None:
        """Make most devices partitions of cards."""
        for each in slices:
            for found in each["devices"]:
                if not self._chance.rarely(0.15):
                    found["consumesCounters"] = cards.partition(self._chance, sets)

    def _repeat(self, slices: list[Json]) -> None:
        named = [each for part in slices for each in part.get("devices", [])]
        if len(named) > 1:
            one, other = self._chance.random.sample(named, 2)
            one["name"] = other["name"]

    def _slice(self, driver: str, pool: str, generation: int, count: int, where: Json, what: Json) -> Json:
        chance = self._chance
        self._slices += 1
        name = "slice-same" if chance.rarely(0.03) else f"slice-{chance.between(0, 9)}-{self._slices}"
        spec: Json = {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": max(count, 1)},
            **where,
            **what,
        }
        if "devices" in what and chance.of("skip"):
            spec["skipNodeOperations"] = ["NodePrepareResources"]
        return {"metadata": {"name": name}, "spec": spec}
