"""Versions by node, and the journal of what changed."""

import pytest
from dra_extender.ledger import node_versions
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


def test_names_of_nodes_are_bounded_and_no_version_decreases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_versions, "_MOST_NAMES", 10)
    versions = NodeVersions()
    for _ in range(3):
        versions.bump({"first"})
    names = [f"node-{number}" for number in range(35)]
    for name in names:
        before, place = {known: versions.version(known) for known in ("first", *names)}, versions.place
        local, least, _ = versions.parts()
        own_numbers = {known: local.get(known, least) for known in before}
        versions.bump({name})
        local, least, _ = versions.parts()
        assert all(local.get(known, least) >= number for known, number in own_numbers.items())
        assert versions.version(name) > before[name]
        assert all(versions.version(known) >= version for known, version in before.items())
        changed = versions.since(place)[0]
        assert changed is None or all(
            versions.version(known) == before[known] for known in ("first", *names) if known not in changed
        )
        assert len(local) <= 10
