"""Random expressions are answered as upstream answers them; `make fuzz` asks as many as one likes."""

import pytest

from tests.parity.fuzz.cel import campaign
from tests.parity.fuzz.cel.exceptions import Difference, explained
from tests.parity.selectors import Outcome, ours

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


def test_a_limit_of_work_explains_that_we_refuse_and_no_other_answer() -> None:
    expression = f"'{'a b' * 100}'.findAll(r'\\pL').join() == '{'ab' * 100}'"
    scenario = {"kind": "cel", "expression": expression, "device": {"Driver": "gpu.example.com"}}
    refused, match = ours(scenario), Outcome("match", 91)
    assert refused.verdict == "run-error"
    assert explained(Difference(scenario, refused, match, {}, [])) == "limited"
    for other in (Outcome("no-match", 91), Outcome("match", 90)):
        assert explained(Difference(scenario, refused, other, {}, [])) is None
    assert explained(Difference(scenario, Outcome("no-match", 91), match, {}, [])) is None
