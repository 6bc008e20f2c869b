"""What holds for every search: state comes back, inputs stay as they are, answers depend on the question alone."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.allocator import Features
from app.allocator.allocate import allocate
from app.allocator.attempt import Attempt, Refusal
from app.allocator.eligibility import NodeFacts
from app.model.base import plain
from app.model.node import Node
from tests.allocator.building import (
    NODE,
    Held,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    every,
    exactly,
    held,
    pools_of,
    slice_of,
)

names = [f"d{index}" for index in range(6)]
groups = st.lists(st.sampled_from("ab"), unique=True, max_size=2)


@st.composite
def device(draw: st.DrawFn, name: str) -> dict[str, Any]:
    found = draw(st.sampled_from(["plain", "draws"]))
    attributes = {"k": {"int": draw(st.integers(0, 2))}} if draw(st.booleans()) else {}
    if found == "plain":
        return {"name": name, "attributes": attributes}
    return consuming(name, *draw(groups), amount=draw(st.integers(0, 3)), attributes=attributes)


slices_ = st.tuples(*(device(name) for name in names)).map(
    lambda devices: [
        counters_of(set=5, count=3),
        slice_of(*devices[:3], name="s1", count=3),
        slice_of(*devices[3:], name="s2", count=3, allNodes=True),
    ]
)


def _request(count: int | None, admin: bool, number: int) -> dict[str, Any]:
    more: dict[str, Any] = {"adminAccess": True} if admin else {}
    return every(f"r{number}", **more) if count is None else exactly(count, f"r{number}", **more)


request = st.builds(_request, st.one_of(st.integers(0, 3), st.none()), st.booleans(), st.integers(0, 99))
constraint = st.sampled_from(
    [[], [{"matchAttribute": "gpu.example.com/k"}], [{"distinctAttribute": "gpu.example.com/k"}]]
)
claim = st.builds(lambda found, limits: claim_of(*found, constraints=limits), st.lists(request, max_size=3), constraint)
usages = st.lists(st.sampled_from([held(name) for name in names] + [held("d1", admin=True)]), max_size=2)


def state_of(attempt: Attempt) -> Any:
    """A copy of everything that changes; the values in it are immutable."""
    tables = {
        key: (dict(each.counters._remaining), dict(each.groups._states) if each.groups else None)
        for key, each in attempt._tables.items()
    }
    tables_apart = (list(attempt.picks), dict(attempt.sizes), dict(attempt._marks), dict(attempt._constraint_state))
    return (*tables_apart, tables)


@settings(max_examples=150)
@given(slices=slices_, claims=st.lists(claim, min_size=1, max_size=2), usage=usages, order=st.permutations(range(12)))
def test_refused_and_undone_devices_leave_no_trace(
    slices: list[Any], claims: list[Any], usage: list[Any], order: list[int]
) -> None:
    demand, pools = demand_of(*claims), pools_of(slices)
    attempt = Attempt(demand, NodeFacts(NODE, pools, Held(*usage), None))
    for pool in pools.pools:
        attempt.tables(pool)
    wishes = [(index, request.options[0]) for index, each in enumerate(demand.claims) for request in each.requests]
    if not wishes:
        return
    undone = []
    for number in order:
        index, wanted = wishes[number % len(wishes)]
        before, mark = state_of(attempt), attempt.trail.mark()
        if attempt.take(index, wanted, number % len(pools.devices)) is Refusal.NONE:
            undone.append((mark, before))
        else:
            assert state_of(attempt) == before
    for mark, before in reversed(undone):
        attempt.trail.back_to(mark)
        assert state_of(attempt) == before


@settings(max_examples=150)
@given(slices=slices_, claims=st.lists(claim, max_size=2), usage=usages)
def test_answers_are_deterministic_and_inputs_stay_as_they_are(
    slices: list[Any], claims: list[Any], usage: list[Any]
) -> None:
    said = [plain(each) for each in (*slices, *claims, *usage)]
    demand, pools, taken = demand_of(*claims), pools_of(slices), Held(*usage)
    first = allocate(demand, NODE, pools, taken)
    assert allocate(demand, NODE, pools, taken) == first
    assert allocate(demand_of(*claims), NODE, pools_of(slices), Held(*usage)) == first
    assert [plain(each) for each in (*slices, *claims, *usage)] == said


@settings(max_examples=75)
@given(slices=slices_, claims=st.lists(claim, max_size=2), usage=usages)
def test_order_of_nodes_does_not_matter(slices: list[Any], claims: list[Any], usage: list[Any]) -> None:
    """Nothing is carried from one node to the next, although the demand is shared."""
    nodes = [NODE, Node(name="node-2"), Node(name="node-3")]
    answers = []
    for order in (nodes, nodes[::-1]):
        demand = demand_of(*claims)
        found = {node.name: allocate(demand, node, pools_of(slices, node, Features()), Held(*usage)) for node in order}
        answers.append(found)
    assert answers[0] == answers[1]
