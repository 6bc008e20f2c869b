"""A short soak: nothing goes wrong, and memory that grows is named."""

import mmap

from tests.simulation.soak import GROWTH, Look, soak


def test_a_cluster_of_50_nodes_lives_for_half_an_hour() -> None:
    result = soak(5, hours=0.5, nodes=50, looks=2)
    assert result.wrong == []
    assert result.pods > 20
    assert result.writes > 500
    assert result.faults == {"restart_api": 1}


_LEAK = 8 * GROWTH


class Leaking:
    """Keeps more with every look."""

    def __init__(self) -> None:
        self.kept: list[object] = []


class Looks:
    """Makes something that leaks once the soak has begun: what was there before is not looked at."""

    def __init__(self) -> None:
        self.leaking: Leaking | None = None

    def look(self, _: Look) -> None:
        self.leaking = self.leaking or Leaking()
        # Pages of its own: what a large heap has free already would not make the process grow.
        pages = mmap.mmap(-1, _LEAK)
        pages.write(b"x" * _LEAK)
        self.leaking.kept += [pages, *range(10_000)]


def test_memory_that_grows_fails_a_soak_and_is_named() -> None:
    result = soak(1, hours=0.1, nodes=2, looks=4, report=Looks().look)
    assert result.wrong == []
    assert result.failed
    assert result.growth > GROWTH
    assert any("Leaking.kept: 20002 more" in line for line in result.lines())
