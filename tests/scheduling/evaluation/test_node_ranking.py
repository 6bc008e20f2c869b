from dra_extender.allocator.fragmentation.loss import Fragmentation
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.scheduling.evaluation.expected_demand import PlacementRooms
from dra_extender.scheduling.evaluation.result_table import NodeRanking
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
    ranking, expected = NodeRanking(()), dict[str, float]()
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


def test_nodes_are_rated_again_when_prices_or_amounts_change() -> None:
    ranking, amounts = NodeRanking(()), NodeVersions()
    for name in "ab":
        ranking.put(name, ROOMS, 1.0)
    ranking.outdate(prices := (1.0,), amounts)
    assert set(ranking.unrated) == {"a", "b"}
    ranking.unrated.clear()
    amounts.bump({"b", "unknown"})
    ranking.outdate(prices, amounts)
    assert set(ranking.unrated) == {"b"}
    assert list(ranking) == ["a", "b"]
    ranking.outdate((2.0,), amounts)
    assert set(ranking.unrated) == {"a", "b"}
