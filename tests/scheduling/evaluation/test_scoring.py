from dra_extender.model.allocation import ScoreTerms
from dra_extender.scheduling.evaluation.scoring import BEST, ratings
from dra_extender.scheduling.ports.options import Options
from hypothesis import given
from hypothesis import strategies as st


def weighing(alternatives: int, readiness: int, packing: int) -> Options:
    return Options(alternatives_weight=alternatives, readiness_weight=readiness, packing_weight=packing)


EQUAL = weighing(1, 1, 1)
score_terms = st.builds(
    ScoreTerms,
    alternatives=st.integers(0, 24),
    waits=st.booleans(),
    counter_sets=st.just(4),
    joined=st.integers(0, 4),
    loss=st.none() | st.floats(-1, 1),
)
clusters = st.dictionaries(st.sampled_from("abcdef"), score_terms, min_size=1)
weights = st.builds(weighing, st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))


@given(clusters, weights)
def test_ratings_lie_between_none_and_best(cluster: dict[str, ScoreTerms], counts: Options) -> None:
    assert all(0 <= rating <= BEST for rating in ratings(cluster, counts).values())


@given(clusters, weights)
def test_a_node_that_is_worse_in_nothing_is_not_rated_lower(cluster: dict[str, ScoreTerms], counts: Options) -> None:
    rated = ratings(cluster, counts)
    for name, one in cluster.items():
        for other, two in cluster.items():
            if one.alternatives >= two.alternatives and one.waits <= two.waits and packs_as_well(one, two, cluster):
                assert rated[name] >= rated[other]


def packs_as_well(one: ScoreTerms, two: ScoreTerms, cluster: dict[str, ScoreTerms]) -> bool:
    if all(terms.loss is None for terms in cluster.values()):
        return one.joined >= two.joined
    return two.loss is None or (one.loss is not None and one.loss <= two.loss)


def test_nodes_are_ranked_by_what_the_placement_costs() -> None:
    cluster = {
        "a": ScoreTerms(loss=0.5),
        "b": ScoreTerms(loss=0.25),
        "c": ScoreTerms(loss=0.25, joined=1, counter_sets=1),
    }
    assert ratings(cluster, weighing(4, 2, 1)) == {"a": 5.0, "b": 10.0, "c": 10.0}
    assert ratings(cluster, weighing(4, 2, 0)) == {"a": 0.0, "b": 0.0, "c": 0.0}
    assert ratings({"a": ScoreTerms(loss=0.5), "b": ScoreTerms(loss=0.5)}, EQUAL) == {"a": 0.0, "b": 0.0}


def test_alternatives_alone_are_rated_as_upstream_does() -> None:
    """8 - index, linear, the best has all points (upstream: 100, 87 and 12 of 100)."""
    cluster = {"first": ScoreTerms(8), "second": ScoreTerms(7), "eighth": ScoreTerms(1)}
    assert ratings(cluster, weighing(4, 2, 1)) == {"first": 10.0, "second": 8.75, "eighth": 1.25}


def test_devices_that_are_ready_come_before_those_that_must_be_waited_for() -> None:
    assert ratings({"ready": ScoreTerms(), "waits": ScoreTerms(waits=True)}, EQUAL) == {"ready": 10.0, "waits": 0.0}


def test_what_tells_no_nodes_apart_is_left_out() -> None:
    """A whole device on every node: nothing to pack, so that other plugins decide alone."""
    assert ratings({"a": ScoreTerms(), "b": ScoreTerms()}, EQUAL) == {"a": 0.0, "b": 0.0}
    assert ratings({"a": ScoreTerms(alternatives=8)}, weighing(0, 1, 1)) == {"a": 0.0}


def test_weights_decide_what_counts_more() -> None:
    cluster = {"early": ScoreTerms(8, waits=True), "ready": ScoreTerms(4)}
    early, ready = ratings(cluster, weighing(4, 1, 0)).values()
    assert early > ready
    early, ready = ratings(cluster, weighing(1, 4, 0)).values()
    assert early < ready


def test_claims_of_a_pod_are_added_up() -> None:
    assert ScoreTerms(8, False, 1, 1) + ScoreTerms(7, True, 2, 0) == ScoreTerms(15, True, 3, 1)
