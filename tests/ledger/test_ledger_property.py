"""Whatever is read of a node is as it was while the version of the node stands still, after any sequence of events."""

from typing import Any

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger.ledger_events import (
    encode,
    holdings_by_device,
    raw_claim,
    raw_node,
    raw_pod,
    raw_slice,
    shared_slices,
)

NODES = ("n1", "n2", "n3")
POOLS = ("p1", "p2")

picks = st.tuples(st.sampled_from(POOLS), st.sampled_from(("d1", "d2")))
events = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NODES), st.booleans()),
        st.tuples(
            st.just("slice"),
            st.sampled_from(("s1", "s2", "s3")),
            st.sampled_from(POOLS),
            st.sampled_from((*NODES, "")),
            st.integers(0, 3),
        ),
        st.tuples(
            st.just("claim"),
            st.sampled_from(("c1", "c2", "c3")),
            st.none() | st.lists(picks, max_size=3).map(tuple),
            st.lists(st.sampled_from(("a", "b")), unique=True).map(tuple),
        ),
        st.tuples(st.just("pod"), st.sampled_from(("a", "b")), st.sampled_from(("", "n1"))),
        st.tuples(
            st.just("delete"), st.sampled_from(("nodes", "resourceslices", "resourceclaims", "pods")), st.integers(0, 9)
        ),
    ),
    max_size=40,
)


def build(event: tuple[Any, ...], version: int) -> tuple[str, dict[str, Any]]:
    match event:
        case ("node", name, big):
            return "nodes", raw_node(name, version, size="big" if big else "small")
        case ("slice", name, pool, node, devices):
            return "resourceslices", raw_slice(name, version, pool=pool, node=node or None, devices=devices)
        case ("claim", name, devices, consumers):
            return "resourceclaims", raw_claim(name, version, devices=devices, consumers=consumers)
        case (_, name, node):
            return "pods", raw_pod(name, version, node=node)
    raise AssertionError(event)


@given(events)
@examples(50)
def test_a_node_whose_version_stands_still_reads_the_same(sequence: list[tuple[Any, ...]]) -> None:
    ledger = Ledger()

    def readable(node: str) -> Any:
        pools = {each.pool_id for each in (*ledger.slices.local(node), *shared_slices(ledger.slices))}
        known = ledger.nodes.get(node)
        return (
            known and (known.labels, known.declared_features),
            {each.name: each for pool in pools for each in ledger.slices.of_pool(pool)},
            {pool: holdings_by_device(ledger.claims.usage).get(pool) for pool in pools},
        )

    before = {node: (ledger.state_versions.version(node), readable(node)) for node in NODES}
    for version, event in enumerate(sequence, 1):
        if event[0] == "delete":
            continue
        kind, raw = build(event, version)
        raw["metadata"]["resourceVersion"] = str(version)
        sinks_of(ledger)[kind].changed(encode(raw))
        for node in NODES:
            now = (ledger.state_versions.version(node), readable(node))
            if now[0] == before[node][0]:
                old, new = before[node][1], now[1]
                assert old[0] == new[0]
                assert {k: (v.generation, v.devices) for k, v in old[1].items()} == {
                    k: (v.generation, v.devices) for k, v in new[1].items()
                }
                assert old[2] == new[2]
            before[node] = now
