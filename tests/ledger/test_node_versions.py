"""Versions by node, and the journal of what changed."""

from dra_extender.ledger.node_versions import NodeVersions

NAMES = frozenset(f"node-{number}" for number in range(100))


def test_nodes_that_changed_together_are_in_the_journal_in_order_of_names() -> None:
    """A set has another order in each process, and what is searched first goes by the journal."""
    versions = NodeVersions()
    versions.bump({"z"})
    for _ in range(2):
        versions.bump(NAMES)
    assert versions.since(0) == (["z", *sorted(NAMES), *sorted(NAMES)], 201)
    versions.bump(frozenset(("c", "a", "b")))
    assert versions.since(201) == (["a", "b", "c"], 204)
    assert versions.version("node-7") == 2


def test_place_before_a_change_of_any_node_says_nothing_about_single_ones() -> None:
    versions = NodeVersions()
    versions.bump({"a"})
    versions.bump(None)
    assert versions.since(0)[0] is None
    assert (versions.version("a"), versions.version("b")) == (2, 1)
