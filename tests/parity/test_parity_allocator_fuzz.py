"""Random clusters and claims are decided as upstream decides them; `python -m tests.parity.fuzz` asks as many as one likes."""

import pytest

from tests.parity.fuzz.allocator import campaign
from tests.parity.fuzz.allocator.scenarios import NAMES

FIXED = 37
COUNT = 900


@pytest.mark.verify
def test_random_scenarios_are_decided_as_upstream_does() -> None:
    """Fails, too, where upstream's program cannot be built: an environment without Go proves nothing."""
    tally = campaign.run(FIXED, count=COUNT)
    report = "\n".join(tally.lines())
    print(f"\n{report}")
    assert tally.asked == dict.fromkeys(NAMES, COUNT // len(NAMES))
    assert min(tally.verdicts[each] for each in ("fit", "no", "fatal", "node")) > 0
    assert tally.unexplained_count == 0, report
