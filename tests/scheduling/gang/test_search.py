"""A gang is planned exactly when some way to seat it exists, found out by trying everything."""

import itertools
from collections.abc import Hashable, Mapping, Sequence

from dra_extender.model.node import Node
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.gang.members import GangMember
from dra_extender.scheduling.gang.placements import Pausable
from dra_extender.scheduling.gang.search import GangSearch
from hypothesis import strategies as st

from tests.support.allocator.building import DRIVER, claim_of, exactly, slice_of
from tests.support.scheduling.placement_oracle import MadePlacements, until_solved

Kinds = Mapping[str, Sequence[str]]
"""Per node the kinds of its cards: `whole` offers a device of the whole card and two halves, `half` just two halves."""


def cards(node: str, kinds: Sequence[str]) -> list[ResourceSlice]:
    """Slices of a node whose cards can be taken whole or in halves."""
    sets = [{"name": f"card-{i}", "counters": {"c": {"value": "2"}}} for i in range(len(kinds))]
    devices = []
    for index, kind in enumerate(kinds):
        for size, amount in [("half-a", 1), ("half-b", 1), *([("whole", 2)] if kind == "whole" else [])]:
            consumes = [{"counterSet": f"card-{index}", "counters": {"c": {"value": str(amount)}}}]
            attributes = {"size": {"string": size.split("-", maxsplit=1)[0]}}
            devices.append({"name": f"{size}-{index}", "attributes": attributes, "consumesCounters": consumes})
    if not devices:
        return []
    return [
        slice_of(name=f"{node}-c", pool=node, count=2, nodeName=node, sharedCounters=sets),
        slice_of(*devices, name=f"{node}-d", pool=node, count=2, nodeName=node),
    ]


class Cluster(MadePlacements):
    """Places over claims and slices of the nodes that a plan is for."""

    def allowed(self, member: GangMember, node: str) -> bool:
        return bool(member) and node in self.at

    def plan(self, members: Sequence[GangMember], nodes: Sequence[str], max_steps: int = 10_000) -> GangSearch:
        self.at = {name: Node(name=name) for name in nodes}
        return GangSearch(members, nodes, self, max_steps)


def wants(size: str, count: int = 1) -> ResourceClaim:
    expression = "true" if size == "any" else f'device.attributes["{DRIVER}"].size == "{size}"'
    return claim_of(exactly(count, expression=expression))


def gang(*wishes: str) -> tuple[list[GangMember], dict[str, ResourceClaim]]:
    ordered = sorted(wishes)
    claims = {f"c{index}": wants(wish) for index, wish in enumerate(ordered)}
    return [GangMember(f"p{index}", (f"c{index}",), wish, (wish,)) for index, wish in enumerate(ordered)], claims


def cluster(kinds: Kinds, claims: Mapping[str, ResourceClaim]) -> Cluster:
    return Cluster([each for node, found in kinds.items() for each in cards(node, found)], claims)


def fits_somehow(kinds: Kinds, wishes: Sequence[str]) -> bool:
    """Try every node for every pod; a node suits if its cards can be dealt out."""
    nodes = list(kinds)
    return any(
        all(_dealt(kinds[node], [w for w, n in zip(wishes, at, strict=True) if n == node]) for node in nodes)
        for at in itertools.product(nodes, repeat=len(wishes))
    )


def _dealt(kinds: Sequence[str], wishes: Sequence[str]) -> bool:
    """A whole needs an untouched card that can be had whole; two halves, or two pods that take anything, share a card."""
    wholes = wishes.count("whole")
    if wholes > sum(kind == "whole" for kind in kinds):
        return False
    return len(wishes) - wholes <= 2 * (len(kinds) - wholes)


wish = st.sampled_from(["whole", "half", "any"])


def test_the_limit_is_told_apart_from_no() -> None:
    members, claims = gang(*["half"] * 4)
    plan = cluster({"n0": ["half"], "n1": ["half"]}, claims).plan(members, ["n0", "n1"], max_steps=2)
    assert until_solved(plan.solve(4)) is None
    assert plan.limited


def test_a_question_that_could_not_be_decided_is_no_answer_that_the_gang_does_not_fit() -> None:
    members, claims = gang("half", "half", "half")
    places = cluster({"n0": ["half"]}, claims)
    plan = places.plan(members, ["n0"])
    places.undecided = True
    assert until_solved(plan.solve(3)) is None
    assert plan.limited


def test_a_search_for_all_members_leaves_time_for_a_search_for_as_many_as_needed() -> None:
    """Five of six fit, and trying to seat the sixth would use up the steps."""
    members, claims = gang(*["half"] * 6)
    places = cluster({"n0": ["half", "half"], "n1": ["half"]}, claims)
    seats = until_solved(places.plan(members, ["n0", "n1"], max_steps=26).solve(5))
    assert seats is not None
    assert len(seats) >= 5


def test_a_large_gang_takes_steps_in_proportion() -> None:
    members, claims = gang(*["half"] * 300)
    nodes = [f"n{index}" for index in range(100)]
    plan = cluster({node: ["half", "half"] for node in nodes}, claims).plan(members, nodes, max_steps=450)
    seats = until_solved(plan.solve(300))
    assert seats is not None
    assert len(seats) == 300


class Full(Cluster):
    """Equivalent nodes without room."""

    asked_classes = 0

    def symmetry_class(self, node: str) -> Hashable | None:
        self.asked_classes += bool(node)
        return "full"

    def capacity(
        self, members: Sequence[GangMember], node: str, symmetry_class: Hashable | None
    ) -> Pausable[int | None]:
        yield from ()
        return 0


def test_the_class_of_a_node_is_found_once_for_members_of_all_kinds() -> None:
    members, claims = gang("half", "any")
    places = Full([], claims)
    plan = places.plan(members, ["n1", "n2"])
    assert until_solved(plan.solve(2)) is None
    assert len(plan.unplaceable) == 2
    assert places.asked_classes == len(places.at)


class Pausing(Cluster):
    """Slices of time that are over at once; only the first node and the last one are allowed."""

    asked_in_slice = 0

    def pause_due(self) -> bool:
        return True

    def symmetry_class(self, node: str) -> Hashable | None:
        return node

    def allowed(self, member: GangMember, node: str) -> bool:
        self.asked_in_slice += 1
        return node in {min(self.at), max(self.at)}


def test_a_search_pauses_while_it_looks_for_a_node_that_a_member_may_go_to() -> None:
    """The first node has no device, and how many members fit there is not known, so that no further node is counted."""
    members, claims = gang("half", "any")
    nodes = [f"n{index}" for index in range(10, 100)]
    places = Pausing(cards("n99", ["half"]), claims)
    plan = places.plan(members, nodes)
    for _ in plan.solve(2):
        assert places.asked_in_slice <= len(members)
        places.asked_in_slice = 0
    assert not plan.limited
    assert not plan.unplaceable


def test_a_search_pauses_while_it_finds_out_which_kinds_of_members_may_go_to_a_node() -> None:
    """One question takes up to 0.1 ms, and there may be thousands of kinds."""
    shared = frozenset({"c"})
    members = [GangMember(f"p{index}", ("c",), index, ("c",), shared) for index in range(40)]
    places = Pausing(cards("n1", ["half"]), {"c": wants("half")})
    for _ in places.plan(members, ["n1"]).solve(40):
        assert places.asked_in_slice <= 2
        places.asked_in_slice = 0
