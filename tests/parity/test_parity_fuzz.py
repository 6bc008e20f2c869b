"""Random expressions are answered as upstream answers them; `make fuzz` asks as many as one likes."""

import pytest

from tests.parity.fuzz.cel import campaign

SEEDS = (37, 1000)
HALF = 2500


@pytest.mark.verify
@pytest.mark.parametrize("seed", SEEDS)
def test_outcomes_and_costs_of_random_expressions_are_upstreams(seed: int) -> None:
    """Fails, too, where upstream's program cannot be built: an environment without Go proves nothing."""
    tally = campaign.run(seed, count=HALF)
    report = "\n".join(tally.lines())
    print(f"\n{report}")
    assert tally.asked == HALF
    assert tally.unexplained_count == 0, report
    assert tally.cost_count == 0, report
