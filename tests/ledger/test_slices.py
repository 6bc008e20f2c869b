"""The slices near a node are found by its labels, and none that is for it is missed."""

from collections.abc import Sequence
from typing import Any

from dra_extender.allocator.pools.pools import is_relevant
from dra_extender.ledger.slices import SliceIndex
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice, SliceReader
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger.ledger_events import raw_slice, shared_slices

KEYS, VALUES, NODES = ("zone", "rack"), ("a", "b", "1", ""), ("n1", "n2", "n3")
_values = st.lists(st.sampled_from(VALUES), max_size=2)
_labels = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from(KEYS),
    st.sampled_from(("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Near")),
    _values,
)
_fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(("In", "NotIn", "Exists")),
    st.sampled_from(NODES),
)
_terms = st.builds(
    lambda labels, fields: {"matchExpressions": labels, "matchFields": fields},
    st.lists(_labels, max_size=2),
    st.lists(_fields, max_size=1),
)
places = st.one_of(
    st.lists(_terms, min_size=1, max_size=3).map(lambda terms: {"nodeSelector": {"nodeSelectorTerms": terms}}),
    st.sampled_from([{"allNodes": True}, {"nodeName": "n1"}, {"perDeviceNodeSelection": True}, {}]),
)
changes = st.lists(st.tuples(st.sampled_from(("s1", "s2", "s3", "s4")), st.none() | places), max_size=12)
nodes = st.builds(
    lambda name, labels: Node(name=name, labels=labels),
    st.sampled_from(NODES),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
)


def published(name: str, place: dict[str, Any]) -> ResourceSlice:
    raw = raw_slice(name, 1, pool="p", node="n1", devices=2)
    del raw["spec"]["nodeName"]
    raw["spec"] |= place
    if "perDeviceNodeSelection" in place:
        raw["spec"]["devices"] = [{"name": "d", "nodeName": "n2"}, {"name": "e"}]
    return SliceReader().convert(raw)


def usable(slices: Sequence[ResourceSlice], node: Node) -> list[tuple[str, bool | str]]:
    """The slices that are for a node, and those whose selector is malformed with what is wrong."""
    found: list[tuple[str, bool | str]] = []
    for each in slices:
        try:
            verdict: bool | str = is_relevant(each, node, partitionable=True)
        except ModelError as problem:
            verdict = str(problem)
        if verdict:
            found.append((each.name, verdict))
    return found


@given(sequence=changes, node=nodes)
@examples(150)
def test_what_is_near_holds_all_that_a_look_at_every_slice_finds_in_the_same_order(
    sequence: list[tuple[str, dict[str, Any] | None]], node: Node
) -> None:
    index, kept = SliceIndex(), dict[str, ResourceSlice]()
    for name, place in sequence:
        if place is None:
            assert index.drop(name) is kept.pop(name, None)
        else:
            item = published(name, place)
            assert index.put(item) is kept.get(name)
            kept[name] = item
    assert usable(index.near(node), node) == usable(shared_slices(index), node)


def test_slices_of_other_zones_are_not_looked_at() -> None:
    index = SliceIndex()
    for number in range(300):
        requirement = {"key": "zone", "operator": "In", "values": [f"z{number % 100}"]}
        selector = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
        index.put(published(f"s{number:03}", {"nodeSelector": selector}))
    index.put(published("s100-everywhere", {"allNodes": True}))
    near = index.near(Node(name="n", labels={"zone": "z7", "kubernetes.io/hostname": "n"}))
    assert [each.name for each in near] == ["s007", "s100-everywhere", "s107", "s207"]


def test_slices_that_select_a_node_by_name_are_near_that_node_alone() -> None:
    index = SliceIndex()
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    index.put(published("s", {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}))
    assert [len(index.near(Node(name=name))) for name in ("n1", "n2")] == [1, 0]
