"""Random histories of one pool, played on the real ledger, search and overlap check, and on the oracle beside them."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import msgspec
from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import Demand, NamedClaim
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.pools.pools import NodePools, node_pools
from dra_extender.allocator.rules.violations import published_pool
from dra_extender.allocator.state.features import Features
from dra_extender.cel.program import ProgramCache, compile_expression
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import AllocationResult, DeviceHolding, Placement
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot
from dra_extender.model.device import CounterConsumption
from dra_extender.model.device_class import device_class_from
from dra_extender.model.node import Node
from dra_extender.model.resource_claim import claim_from
from dra_extender.scheduling.binding.conflicts import AllocationConflict, find_conflict

from tests.support.allocator.building import allocate, contradictions
from tests.support.scheduling.verdict_oracle import PHYSICAL, Given, Groups, Oracle, Thing, View

Json = dict[str, Any]
Step = tuple[int, int, int, int]
"""What happens, and three numbers that say to what and how."""

DRIVER, POOL, NODE = "d.example.com", "p", Node(name="n")
DEVICES: Final = tuple(f"d{index}" for index in range(5))
GROUPS: Final[tuple[Groups, ...]] = ((), ("a",), ("b",), ("a", "b"), ("b", "c"), ("a", "c"))
NANO: Final = 10**9
KINDS: Final = 10
_CLASSES: Final = {"any": device_class_from({"metadata": {"name": "any"}, "spec": {}})}
_PROGRAMS: Final = ProgramCache()


class Policy:
    """Groups for devices without any, and the physical device of all devices."""

    def __init__(self, groups: Groups, physical: str = "") -> None:
        self.groups = groups
        self.physical = physical
        program = compile_expression(f'"{physical}"', derived=True) if physical else None
        self.overlay = PolicyOverlay([PolicyRule(name="r", compatibility_groups=groups, physical_device=program)])

    def on(self, parts: dict[str, tuple[int, Groups]]) -> dict[str, tuple[int, Groups]]:
        """What a device draws under this policy."""
        found = dict(parts)
        if self.physical:
            found[PHYSICAL + self.physical] = (0, ())
        return {name: (units, groups or self.groups) for name, (units, groups) in found.items()}


POLICIES: Final = (
    None,
    Policy(("a",)),
    Policy(("b", "c")),
    Policy((), "x"),
    Policy(("a",), "x"),
    Policy(("b",), "y"),
)


@cache
def _demand(wanted: tuple[tuple[str, int], ...], admin: bool, features: Features) -> Demand:
    """A claim with one request for each (device, memory); no memory is asked for where it is 0."""
    requests = []
    for index, (device, memory) in enumerate(wanted):
        selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].name == "{device}"'}}
        body: Json = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}
        if memory:
            body["capacity"] = {"requests": {"memory": str(memory)}}
        if admin:
            body["adminAccess"] = True
        requests.append({"name": f"r{index}", "exactly": body})
    claim = claim_from({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    found = build_demand([NamedClaim("c", claim)], _CLASSES, _PROGRAMS, features)
    assert isinstance(found, Demand), found
    return found


class History:
    """Both sides of a history.  Every step that judges anything compares the two."""

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()
        self.ledger = Ledger()
        self.oracle = Oracle()
        self._policy: Policy | None = None
        self._parts: dict[str, tuple[dict[str, tuple[int, Groups]], bool, int]] = {}
        self._versions = 100
        self._claims: list[tuple[str, list[Given]]] = []
        self._publish_totals(6, 6)
        for index, device in enumerate(DEVICES):
            self._republish(device, 0, index)

    def play(self, steps: Iterable[Step]) -> None:
        """One step after the other.

        Raises:
            AssertionError: the program and the oracle do not agree.
        """
        for kind, *numbers in steps:
            self._step(kind % KINDS, *numbers)
            if self.features.compatibility_groups:
                self._compare_contradictions()

    def _step(self, kind: int, first: int, second: int, third: int) -> None:
        device = DEVICES[first % len(DEVICES)]
        other = DEVICES[second % len(DEVICES)]
        match kind:
            case 0:
                self._republish(device, second, third)
            case 1:
                self._publish_totals(2 + second % 8, 2 + third % 8)
            case 2:
                self._use(POLICIES[second % len(POLICIES)])
            case 3:
                self._store([self._given(device, memory=1 + third % 3, frozen=False, odd=second)])
            case 4:
                self._force(device, 1 + third % 3, keep=bool(second % 2))
            case 5:
                self._end(first)
            case 6:
                self._place((device, other), 1 + third % 3)
            case 7:
                self._place_for_admin(device)
            case _:
                self._place((device,), 1 + third % 4)

    def _republish(self, device: str, second: int, third: int) -> None:
        """Other groups and amounts on both sets, or on one; sharing changes seldom, and a device is seldom withdrawn."""
        parts = {"s": (second % 4, GROUPS[third % len(GROUPS)])}
        if third % 3 == 0:
            parts["t"] = (third % 5, GROUPS[second % len(GROUPS)])
        shared = DEVICES.index(device) % 2 == (1 if second % 11 == 10 else 0)
        if second % 13 == 12:
            self._parts.pop(device, None)
        else:
            self._parts[device] = (parts, shared, 2 + third % 7)
        self._publish()

    def _publish(self) -> None:
        for half in (0, 1):
            names = [each for each in DEVICES[half::2] if each in self._parts]
            self._slice(f"devices-{half}", devices=[self._raw_device(each) for each in names])
        self.oracle.things = {
            name: Thing(self._policy.on(parts) if self._policy else parts, shared, memory if shared else None)
            for name, (parts, shared, memory) in self._parts.items()
        }

    def _raw_device(self, name: str) -> Json:
        parts, shared, memory = self._parts[name]
        drawn = [
            {"counterSet": each, "counters": {"u": {"value": str(units)}}, "compatibilityGroups": list(groups)}
            for each, (units, groups) in parts.items()
        ]
        raw: Json = {"name": name, "attributes": {"name": {"string": name}}, "consumesCounters": drawn}
        if shared:
            raw |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": str(memory)}}}
        return raw

    def _publish_totals(self, first: int, second: int) -> None:
        self.oracle.totals = {"s": first, "t": second}
        sets = [{"name": name, "counters": {"u": {"value": str(units)}}} for name, units in self.oracle.totals.items()]
        self._slice("counters", sharedCounters=sets)

    def _slice(self, name: str, **content: Any) -> None:
        self._versions += 1
        pool = {"name": POOL, "generation": 1, "resourceSliceCount": 3}
        metadata = {"name": name, "uid": name, "resourceVersion": str(self._versions)}
        raw = {"metadata": metadata, "spec": {"driver": DRIVER, "pool": pool, "nodeName": NODE.name, **content}}
        sinks_of(self.ledger)["resourceslices"].changed(msgspec.json.encode(raw))

    def _use(self, policy: Policy | None) -> None:
        self._policy = policy
        self.ledger.overlays_changed(self.ledger.overlays.use_policy(None if policy is None else policy.overlay))
        self._publish()

    def _pools(self) -> NodePools:
        slices = self.ledger.slices
        return node_pools(NODE, slices.local(NODE.name), slices.near(NODE), slices.of_pool, self.features)

    def _given(self, device: str, memory: int, *, frozen: bool, odd: int = 0, admin: bool = False) -> Given:
        """An allocation as somebody makes it who looks at the slice alone; at times of the whole device, although it is shared."""
        thing = self.oracle.things.get(device)
        share = thing is not None and thing.shared and bool(odd % 5)
        view = self.oracle.today(device) if frozen else None
        return Given(device, share, memory if share else 0, admin, view)

    def _place(self, devices: Sequence[str], memory: int) -> None:
        """Ask the search for these devices in one claim; what it offers is stored, and must stand."""
        things = [self.oracle.things.get(each) for each in devices]
        wanted = tuple(
            (name, memory if thing is not None and thing.shared else 0)
            for name, thing in zip(devices, things, strict=True)
        )
        answer = allocate(_demand(wanted, False, self.features), NODE, self._pools(), self.ledger.claims.usage)
        given = [
            Given(name, thing.shared, amount, frozen=self.oracle.frozen_for(name))
            for (name, amount), thing in zip(wanted, things, strict=True)
            if thing is not None
        ]
        if self.features.compatibility_groups:
            # Upstream's search takes nothing that draws from a pool of which some counter is overdrawn.
            joins = any(not self.oracle.of(each.device) for each in given)
            expected = len(given) == len(devices) and not self.oracle.violates(given)
            self._compare(
                "offered", isinstance(answer, Placement), expected and not (joins and self.oracle.overdrawn())
            )
        if isinstance(answer, Placement):
            self._compare("accepted", self._store_placement(answer, given) is None, True)

    def _place_for_admin(self, device: str) -> None:
        if device not in self.oracle.things:
            return
        answer = allocate(_demand(((device, 0),), True, self.features), NODE, self._pools(), self.ledger.claims.usage)
        if isinstance(answer, Placement):
            given = Given(device, admin=True, share=self.oracle.things[device].shared)
            self._compare("accepted for admin access", self._store_placement(answer, [given]) is None, True)

    def _force(self, device: str, memory: int, *, keep: bool) -> None:
        """An allocation of this program for which the state was another one; the check after the write must find out."""
        given = self._given(device, memory, frozen=True, odd=memory)
        expected = self.oracle.violates([given])
        name = self._store([given])
        self._compare("overlaps", self._overlap(name) is not None, expected)
        if not keep:
            self._end(len(self._claims) - 1)

    def _store_placement(self, placement: Placement, given: list[Given]) -> AllocationConflict | None:
        (claim,) = placement.claims
        results = msgspec.to_builtins(claim.allocation.devices.results)
        return self._overlap(self._stored(given, results, claim.holdings))

    def _store(self, given: list[Given]) -> str:
        """Write a claim with these allocations, with our snapshot if they have one."""
        results = []
        for index, each in enumerate(given):
            result: Json = {"request": f"r{index}", "driver": DRIVER, "pool": POOL, "device": each.device}
            if each.share:
                result |= {"shareID": f"s{self._versions}-{index}", "consumedCapacity": {"memory": str(each.memory)}}
            results.append(result | ({"adminAccess": True} if each.admin else {}))
        views = [each.frozen for each in given]
        return self._stored(given, results, None if None in views else [_holding(each) for each in given])

    def _stored(self, given: list[Given], results: list[Json], holdings: Sequence[DeviceHolding] | None) -> str:
        self._versions += 1
        name = f"c{self._versions}"
        raw: Json = {
            "metadata": {"name": name, "namespace": "x", "uid": name, "resourceVersion": str(self._versions)},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        if holdings is not None:
            allocation = claim_from(raw).status.allocation
            assert isinstance(allocation, AllocationResult)
            raw["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: encode_snapshot(allocation, tuple(holdings))}
        self.ledger.claim_seen(msgspec.json.encode(raw))
        self._claims.append((name, given))
        self.oracle.given += given
        return name

    def _end(self, number: int) -> None:
        """A claim is deallocated."""
        if not self._claims:
            return
        name, given = self._claims.pop(number % len(self._claims))
        for each in given:
            self.oracle.given.remove(each)
        self._versions += 1
        metadata = {"name": name, "namespace": "x", "uid": name, "resourceVersion": str(self._versions)}
        self.ledger.claim_seen(msgspec.json.encode({"metadata": metadata, "status": {}}))

    def _overlap(self, name: str) -> AllocationConflict | None:
        record = self.ledger.claims.by_uid(name)
        assert record is not None
        return find_conflict(record, self.ledger.claims, self.ledger.slices, self._pools())

    def _compare_contradictions(self) -> None:
        pool_id = (DRIVER, POOL)
        pool = published_pool(pool_id, self.ledger.slices.of_pool(pool_id))
        found = contradictions(pool, self.ledger.claims.usage.pool(pool_id))
        self._compare("contradictions", bool(found), self.oracle.contradicts())

    def _compare(self, what: str, found: bool, expected: bool) -> None:
        assert found == expected, f"{what}: {found}, the oracle says {expected}"


def _holding(given: Given) -> DeviceHolding:
    view: View = given.frozen or {}
    consumption = tuple(
        CounterConsumption(counter_set=name, counters=(("u", units * NANO),), compatibility_groups=groups)
        for name, (units, lists) in view.items()
        for groups in sorted(lists)
    )
    return DeviceHolding(driver=DRIVER, pool=POOL, device=given.device, consumption=consumption)


def random_steps(chance: random.Random, count: int) -> list[Step]:
    """A history for those who shrink nothing."""
    return [tuple(chance.randrange(1000) for _ in range(4)) for _ in range(count)]  # type: ignore[misc]


def without_groups() -> History:
    """With CompatibilityGroups off."""
    return History(replace(Features(), compatibility_groups=False))
