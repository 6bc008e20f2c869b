from dra_extender.allocator.fragmentation.kinds import NO_AMOUNTS
from dra_extender.allocator.fragmentation.loss import Fragmentation
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.scheduling.evaluation.expected_demand import PlacementRooms
from dra_extender.scheduling.evaluation.node_ranking import NodeRanking
from hypothesis import given
from hypothesis import strategies as st

_NOTHING = Fragmentation({})
ROOMS = PlacementRooms(_NOTHING.kinds, _NOTHING.room(()), _NOTHING.room(()), None)
NAMES = st.sampled_from("abcdefgh")
steps = st.lists(st.tuples(NAMES, st.none() | st.integers(0, 3)))


@given(steps, st.frozensets(NAMES), st.integers(0, 3))
def test_nodes_are_in_the_order_of_their_latest_loss(
    changes: list[tuple[str, int | None]], held: frozenset[str], most: int
) -> None:
    ranking, expected = NodeRanking(NO_AMOUNTS, ()), dict[str, float]()
    for name, loss in changes:
        if loss is None:
            ranking.changed(name)
            expected.pop(name, None)
        else:
            ranking.put(name, ROOMS, float(loss))
            expected[name] = float(loss)
    in_order = sorted(expected, key=lambda name: (expected[name], name))
    assert list(ranking) == in_order
    assert ranking.losses == expected
    assert ranking.rooms.keys() == expected.keys()
    under_holds = [name for name in in_order if name in held]
    late = set(under_holds[most:])
    first = [name for name in in_order if name not in late]
    assert list(ranking.best_first(held, most)) == first + under_holds[most:]


def rated(ranking: NodeRanking, **losses: float) -> None:
    for name, loss in losses.items():
        ranking.put(name, ROOMS, loss)


def test_nodes_with_other_amounts_are_rated_again_and_keep_their_loss() -> None:
    ranking, amounts = NodeRanking(NO_AMOUNTS, "ab"), NodeVersions()
    ranking.outdate(prices := (1.0,), amounts)
    rated(ranking, a=1.0, b=1.0)
    amounts.bump({"b", "unknown"})
    ranking.outdate(prices, amounts)
    assert set(ranking.unrated) == {"b"}
    assert list(ranking) == ["a", "b"]


def test_losses_under_earlier_prices_come_last_and_are_renewed_first_the_best_before_all() -> None:
    ranking, amounts = NodeRanking(NO_AMOUNTS, ["new", "c"]), NodeVersions()
    ranking.outdate((1.0,), amounts)
    rated(ranking, a=2.0, b=1.0, c=3.0)
    ranking.outdate((2.0,), amounts)
    assert ranking.losses == {}
    assert list(ranking) == ["b", "a", "c"]
    assert list(reversed(ranking.unrated)) == ["b", "a", "c", "new"]
    rated(ranking, a=9.0)
    assert list(ranking) == ["a", "b", "c"]
    ranking.outdate((3.0,), amounts)
    assert list(ranking) == ["a", "b", "c"]
    ranking.changed("b")
    assert list(ranking) == ["a", "c"]
    assert list(reversed(ranking.unrated)) == ["b", "a", "c", "new"]
