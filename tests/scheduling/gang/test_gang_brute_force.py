"""A gang is planned exactly when it fits, at all the variety there is, found out by trying everything.

Shared and own claims, alternatives, devices that must match, counters, compatibility groups, devices that all nodes or those of
one rack reach, and members that are offered different nodes.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.model.node import Node
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.gang.members import GangMember
from dra_extender.scheduling.gang.placements import Pausable
from dra_extender.scheduling.gang.search import Assignment, GangSearch

from tests.support.allocator.building import DRIVER, claim_of, either, exactly, slice_of
from tests.support.scheduling.placement_oracle import MadePlacements, until_solved

WISHES = ("half", "whole", "any", "nic", "fabric", "half|nic", "whole|half", "nic+half", "fabric|nic")
NOTHING = frozenset[DeviceId]()
PER_SEED = 10


def local_slices(chance: random.Random, node: str) -> list[ResourceSlice]:
    """Cards that can be had whole or in halves, some with compatibility groups, and network devices beside them."""
    sets, devices = [], list[dict[str, Any]]()
    for index in range(chance.randint(0, 2)):
        kind = chance.choice(["whole", "half", "groups"])
        sets.append({"name": f"card-{index}", "counters": {"c": {"value": "2"}}})
        for size, amount in [("half-a", 1), ("half-b", 1), *([("whole", 2)] if kind != "half" else [])]:
            consumes: dict[str, Any] = {"counterSet": f"card-{index}", "counters": {"c": {"value": str(amount)}}}
            if kind == "groups":
                consumes["compatibilityGroups"] = ["z" if size == "whole" else chance.choice("xy")]
            devices.append({**device(size, index, node), "consumesCounters": [consumes]})
    devices += [device("nic", index, node) for index in range(chance.randint(0, 2))]
    if not devices:
        return []
    counters = [slice_of(name=f"{node}-c", pool=node, count=2, nodeName=node, sharedCounters=sets)] if sets else []
    return [*counters, slice_of(*devices, name=f"{node}-d", pool=node, count=1 + len(counters), nodeName=node)]


def device(size: str, index: int, node: str) -> dict[str, Any]:
    attributes = {"size": {"string": size.split("-", maxsplit=1)[0]}, "card": {"string": f"{node}-{index}"}}
    return {"name": f"{size}-{index}", "attributes": attributes}


def fabric_slices(chance: random.Random) -> list[ResourceSlice]:
    """Devices that every node reaches, or those of one rack."""
    found = []
    for index in range(chance.randint(0, 2)):
        match = [{"key": "rack", "operator": "In", "values": [chance.choice(["r0", "r1"])]}]
        selector = {"nodeSelectorTerms": [{"matchExpressions": match}]}
        where: dict[str, Any] = chance.choice([{"allNodes": True}, {"nodeSelector": selector}])
        names = [f"f{index}-{each}" for each in range(chance.randint(1, 2))]
        devices = [{"name": name, "attributes": {"size": {"string": "fabric"}}} for name in names]
        found.append(slice_of(*devices, name=f"fabric-{index}", pool=f"fabric-{index}", **where))
    return found


def claim_for(wish: str) -> ResourceClaim:
    def one(size: str, name: str = "r") -> dict[str, Any]:
        expression = "true" if size == "any" else f'device.attributes["{DRIVER}"].size == "{size}"'
        return exactly(name=name, expression=expression)

    if "+" in wish:
        match = [{"requests": ["a", "b"], "matchAttribute": f"{DRIVER}/card"}]
        first, second = wish.split("+")
        return claim_of(one(first, "a"), one(second, "b"), constraints=match)
    return claim_of(either(*map(one, wish.split("|")))) if "|" in wish else claim_of(one(wish))


class RandomGang(MadePlacements):
    """A random gang and cluster, and the answers to what a plan asks."""

    def __init__(self, chance: random.Random) -> None:
        self.nodes = [f"n{index}" for index in range(chance.randint(1, 3))]
        at = {name: Node(name=name, labels={"rack": chance.choice(["r0", "r1"])}) for name in self.nodes}
        local = [each for name in self.nodes for each in local_slices(chance, name)]
        slices = [*local, *fabric_slices(chance)]
        super().__init__(slices, {"shared": claim_for(chance.choice(["fabric", "fabric", "half", "nic"]))})
        self.at = at
        self.offered: dict[str, frozenset[str]] = {}
        self.members = [self._member(chance, index) for index in range(chance.randint(1, 4))]

    def _member(self, chance: random.Random, index: int) -> GangMember:
        uid, own, wish = f"p{index}", f"c{index}", chance.choice(WISHES)
        self.claims[own] = claim_for(wish)
        asks = chance.choice([{own: wish}, {own: wish}, {own: wish, "shared": "shared"}, {"shared": "shared"}])
        offered = chance.choice([self.nodes, chance.sample(self.nodes, chance.randint(1, len(self.nodes)))])
        self.offered[uid] = frozenset(offered)
        kind = tuple(asks.values()), self.offered[uid]
        return GangMember(uid, tuple(asks), kind, tuple(asks.values()), frozenset({"shared"} & asks.keys()))

    def allowed(self, member: GangMember, node: str) -> bool:
        return node in self.offered[member.uid]

    def planned(self) -> Mapping[str, Assignment] | None:
        members = sorted(
            self.members, key=lambda each: (-len(each.claims), len(self.offered[each.uid]), str(each.kind))
        )
        return until_solved(GangSearch(members, self.nodes, self).solve(len(members)))

    def fits_somehow(self) -> bool:
        """Every node for every member, every home for a shared claim, and every choice of devices that several nodes reach."""
        for seats in itertools.product(*(sorted(self.offered[each.uid]) for each in self.members)):
            users: dict[str, set[str]] = {}
            for member, node in zip(self.members, seats, strict=True):
                for uid in member.claims:
                    users.setdefault(uid, set()).add(node)
            for homes in itertools.product(*map(sorted, users.values())):
                by_home: dict[str, list[str]] = {}
                for uid, home in zip(users, homes, strict=True):
                    by_home.setdefault(home, []).append(uid)
                if self._dealt(list(by_home.items()), users, ()):
                    return True
        return False

    def _dealt(
        self, homes: Sequence[tuple[str, Sequence[str]]], users: Mapping[str, set[str]], held: Sequence[DeviceHolding]
    ) -> bool:
        if not homes:
            return True
        (node, claims), *rest = homes
        tried, left = set[frozenset[DeviceId]](), [NOTHING]
        while left:
            without = left.pop()
            found = None if without in tried else until_solved(self.ask(claims, node, held, without))
            tried.add(without)
            if found is None:
                continue
            holdings = [each for placement in found.values() for each in placement.holdings]
            useful = all(self.usable(found[uid], user) for uid in claims for user in users[uid])
            wide = [each for each in holdings if self.reach(each) is not None]
            if useful and self._dealt(rest, users, (*held, *wide)):
                return True
            left += [without | {(each.driver, each.pool, each.device)} for each in (wide if useful else holdings)]
        return False


@pytest.mark.parametrize("seed", range(12))
def test_a_gang_is_planned_exactly_when_it_fits_somehow(seed: int) -> None:
    for number in range(PER_SEED):
        gang = RandomGang(random.Random(PER_SEED * seed + number))
        seats = gang.planned()
        assert (seats is not None) is gang.fits_somehow(), number
        if seats is not None:
            check(gang, seats)


class Interrupted(RandomGang):
    """Pauses at random between steps and before answers."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed))
        self.pauses = 0
        self._chance = random.Random(seed)

    def ask(
        self, claims: Sequence[str], node: str, kept: Sequence[DeviceHolding], without: frozenset[Any]
    ) -> Pausable[Mapping[str, ClaimPlacement] | None]:
        while self.pause_due():
            yield
        return (yield from super().ask(claims, node, kept, without))

    def pause_due(self) -> bool:
        due = self._chance.random() < 0.3
        self.pauses += due
        return due


def test_pauses_never_change_a_plan() -> None:
    pauses = 0
    for seed in range(PER_SEED):
        interrupted = Interrupted(seed)
        assert interrupted.planned() == RandomGang(random.Random(seed)).planned()
        pauses += interrupted.pauses
    assert pauses > PER_SEED


def check(gang: RandomGang, seats: Mapping[str, Assignment]) -> None:
    """Each sits where it may, can use what it gets, and nothing is given twice."""
    given: dict[str, ClaimPlacement] = {}
    for member in gang.members:
        node, placements = seats[member.uid]
        assert node in gang.offered[member.uid]
        assert placements.keys() == set(member.claims)
        assert all(gang.usable(placement, node) for placement in placements.values())
        given |= placements
    devices = [(each.pool, each.device) for placement in given.values() for each in placement.holdings]
    assert len(devices) == len(set(devices))
