"""A short run of `make hostile`: nothing that the search finds in a few seconds holds the service up or breaks it."""

import pytest

from tests.hostile.__main__ import PARTS
from tests.hostile.report import table
from tests.hostile.worker import HERE

SECONDS = {
    "cel": 9.0,
    "natives": 5.0,
    "compile": 5.0,
    "policy": 2.0,
    "informer": 5.0,
    "lives": 5.0,
    "objects": 6.0,
    "http": 6.0,
    "tls": 2.0,
    "search": 5.0,
}
"""Beside one input for each subject, which has no limit of time."""
ABOUT = {"objects": "loops"}
"""Subjects that the short run is about, where it is not about all of a part; tests of the ledger hold what is kept."""
SLACK = 1.5
"""Beside other tests work takes more CPU than on a quiet machine, for which the limits are; an attack takes many times that."""
SEED = 1
"""The same in each run, so that a change is judged by itself; `make hostile` takes another one each time."""


def test_every_part_has_its_share() -> None:
    assert SECONDS.keys() == PARTS.keys()


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", SECONDS)
def test_a_short_search_finds_nothing(part: str) -> None:
    """`make hostile ONLY=part SEED=1` repeats it for longer."""
    tally = PARTS[part].run(HERE, SEED, SECONDS[part], ABOUT.get(part, ""))
    printed = "\n".join(table(tally, 10))
    print(f"{part}: seed {tally.seed}\n{printed}")
    assert not [each for each in tally.findings if each.value > SLACK * each.limit.most], printed
    assert tally.executions
