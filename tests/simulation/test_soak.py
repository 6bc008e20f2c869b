"""A short soak: nothing goes wrong."""

from tests.simulation.soak import soak


def test_a_cluster_of_50_nodes_lives_for_half_an_hour() -> None:
    result = soak(5, hours=0.5, nodes=50, looks=2)
    assert result.wrong == []
    assert result.pods > 20
    assert result.writes > 500
    assert result.faults == {"restart_api": 1}
