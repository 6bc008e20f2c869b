"""What holds for every search: state comes back, inputs stay as they are, answers depend on the question alone."""

from typing import Any

from dra_extender.allocator.rules.compatibility_groups import GroupTable
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code, SearchEndedError
from dra_extender.model.node import Node
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import NODE, Held, allocate, demand_of, pools_of
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.examples import examples
from tests.support.model.reading import plain


def state_of(state: SearchState) -> Any:
    """A copy of everything that changes; the values in it are immutable."""
    tables = {key: (dict(each.counters._remaining), groups_of(each.groups)) for key, each in state._tables.items()}
    tables_apart = (
        list(state.picks),
        dict(state.sizes),
        dict(state.claims_by_device),
        dict(state.shares),
        [state.is_member(location) for location in range(len(state.node_view.pools.devices))],
        dict(state._constraint_state),
    )
    return (*tables_apart, tables)


def groups_of(table: GroupTable) -> Any:
    return [dict(getattr(table, name) or {}) for name in table.__slots__]


@examples(75)
@given(slices=nodes, wanted=st.lists(claims, min_size=1, max_size=2), usage=usages, order=st.permutations(range(12)))
def test_refused_and_undone_devices_leave_no_trace(
    slices: list[Any], wanted: list[Any], usage: list[Any], order: list[int]
) -> None:
    demand, pools = demand_of(*wanted), pools_of(slices)
    state = SearchState(demand, NodeView(NODE, pools, Held(*usage), None))
    for pool in pools.pools:
        state.tables(pool)
    options = [(index, request.options[0]) for index, each in enumerate(demand.claims) for request in each.requests]
    if not options:
        return
    undone = []
    for number in order:
        index, option = options[number % len(options)]
        before, mark = state_of(state), state.trail.mark()
        try:
            exclusion = state.try_pick(index, option, number % len(pools.devices))
        except SearchEndedError:
            exclusion = Code.CONSTRAINT
        if exclusion is None:
            undone.append((mark, before))
        else:
            assert state_of(state) == before
    for mark, before in reversed(undone):
        state.trail.undo_to(mark)
        assert state_of(state) == before


@examples(75)
@given(slices=nodes, wanted=st.lists(claims, max_size=2), usage=usages)
def test_answers_are_deterministic_and_inputs_stay_as_they_are(
    slices: list[Any], wanted: list[Any], usage: list[Any]
) -> None:
    said = [plain(each) for each in (*slices, *wanted, *usage)]
    demand, pools, taken = demand_of(*wanted), pools_of(slices), Held(*usage)
    first = allocate(demand, NODE, pools, taken)
    assert allocate(demand, NODE, pools, taken) == first
    assert allocate(demand_of(*wanted), NODE, pools_of(slices), Held(*usage)) == first
    assert [plain(each) for each in (*slices, *wanted, *usage)] == said


@examples(75)
@given(slices=nodes, wanted=st.lists(claims, max_size=2), usage=usages)
def test_order_of_nodes_does_not_matter(slices: list[Any], wanted: list[Any], usage: list[Any]) -> None:
    """Nothing is carried from one node to the next, although the demand is shared."""
    three = [NODE, Node(name="node-2"), Node(name="node-3")]
    answers = []
    for order in (three, three[::-1]):
        demand = demand_of(*wanted)
        found = {node.name: allocate(demand, node, pools_of(slices, node, Features()), Held(*usage)) for node in order}
        answers.append(found)
    assert answers[0] == answers[1]
