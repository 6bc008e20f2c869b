import tracemalloc

import msgspec
import pytest
from dra_extender.model.api_json import ModelError
from dra_extender.model.node_selector import NodeSelector, only_node

LABELS = {"zone": "a", "cores": "8", "odd": "x", "huge": "9223372036854775808"}


def selector(*terms: dict[str, object]) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": list(terms)}, NodeSelector)


def label(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (label("zone", "In", "a", "b"), True),
        (label("zone", "In", "b"), False),
        (label("none", "In", "b"), False),
        (label("zone", "NotIn", "b"), True),
        (label("zone", "NotIn", "a"), False),
        (label("none", "NotIn", "a"), True),
        (label("zone", "Exists"), True),
        (label("none", "Exists"), False),
        (label("none", "DoesNotExist"), True),
        (label("zone", "DoesNotExist"), False),
        (label("cores", "Gt", "7"), True),
        (label("cores", "Gt", "8"), False),
        (label("cores", "Lt", "9"), True),
        (label("odd", "Gt", "1"), False),
        (label("none", "Lt", "1"), False),
        ({}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]}, False),
        ({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n"]}]}, False),
        ({"matchFields": [{"key": "metadata.uid", "operator": "NotIn", "values": ["n"]}]}, True),
        (label("zone", "NotIn", ""), True),
        (label("example.com/none", "DoesNotExist"), True),
        (label("huge", "Gt", "1"), False),
        (label("cores", "Lt", "9223372036854775807"), True),
    ],
)
def test_operators(term: dict[str, object], matches: bool) -> None:
    assert selector(term).matches("n", LABELS) is matches


def test_terms_are_alternatives_and_none_means_no_match() -> None:
    assert selector(label("zone", "In", "b"), label("zone", "In", "a")).matches("n", LABELS)
    assert not selector().matches("n", LABELS)


def test_requirements_of_a_term_must_all_hold() -> None:
    both = {
        **label("zone", "In", "a"),
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}],
    }

    assert not selector(both).matches("n", LABELS)


@pytest.mark.parametrize(
    "term",
    [
        label("zone", "Maybe"),
        label("zone", "In"),
        label("zone", "Exists", "a"),
        label("cores", "Gt", "many"),
        label("cores", "Gt", "-1"),
        label("cores", "Gt", "+1"),
        label("cores", "Lt", "9223372036854775808"),
        label("zone", "In", "a b"),
        label("zone", "In", "a-"),
        label("zone", "In", "a" * 64),
        label("", "Exists"),
        label("/zone", "Exists"),
        label("Example.com/zone", "Exists"),
        label("example.com/zone/", "Exists"),
        label("z" * 64, "Exists"),
        {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]},
    ],
)
def test_a_malformed_requirement_is_refused_even_where_another_term_matches(term: dict[str, object]) -> None:
    with pytest.raises(ModelError, match="node selector"):
        selector(label("zone", "In", "a"), term).matches("n", LABELS)


def test_only_node_names_one_node() -> None:
    assert only_node("n").matches("n", {})
    assert not only_node("n").matches("m", {})


def test_texts_that_are_too_long_for_labels_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(10):
            for term in label(f"{number}{'x' * 100_000}/a", "Exists"), label("a", "In", f"{number}{'x' * 100_000}"):
                with pytest.raises(ModelError):
                    selector(term).matches("n", {})
        del term
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
