"""What filter offers the check after the write accepts, in random histories, and what breaks a rule it finds.

The histories are republished slices, policies, foreign allocations, shares, and allocations of this program for which the state
was another one.  An oracle that shares nothing with the program judges beside it.
"""

import random
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scheduling.verdict_histories import KINDS, History, Step, random_steps, without_groups

STEPS: Final = 30
SEEDS: Final = 150
numbers = st.integers(0, 60)
steps = st.tuples(st.integers(0, KINDS - 1), numbers, numbers, numbers)


@examples(60)
@given(st.lists(steps, max_size=40))
def test_what_filter_offers_is_accepted_and_every_violation_is_found(history: list[Step]) -> None:
    History().play(history)


@examples(25)
@given(st.lists(steps, max_size=40))
def test_what_filter_offers_is_accepted_while_groups_are_off(history: list[Step]) -> None:
    without_groups().play(history)


def test_random_histories_agree_with_the_oracle() -> None:
    for seed in range(SEEDS):
        History().play(random_steps(random.Random(seed), STEPS))
