"""A search that is paused anywhere, and gone on with, ends as it would have ended without a pause."""

from random import Random
from typing import Any
from unittest.mock import patch

from dra_extender.allocator.allocate import NodeSearch
from dra_extender.allocator.state.reasons import Code, NoFit, SearchPaused
from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import Deadline
from dra_extender.model.allocation import Placement
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    allocate,
    claim_of,
    demand_of,
    either,
    every,
    exactly,
    pools_of,
    reasons,
    slice_of,
)
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.examples import examples

POLL = "dra_extender.allocator.search.search._POLL"
THRESHOLD = "dra_extender.allocator.search.search._DEAD_ENDS_BEFORE_PRUNING"
ALONE = "dra_extender.allocator.search.search._MAX_STEPS_PER_CLAIM"
POLL_DEVICES = "dra_extender.allocator.rules.node_view._POLL_DEVICES"
NOGOODS = "dra_extender.allocator.search.pruning._MAX_NOGOODS"
POLL_MASK = "dra_extender.allocator.rules.eligibility._POLL_MASK"


class Interrupting(Budget):
    """Pauses at random, whenever it is asked for time and before evaluations."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.pauses = 0
        self._random = Random(seed)

    def __call__(self) -> bool:
        """See Budget."""
        self._perhaps()
        return super().__call__()

    def begin(self) -> Deadline:
        """See Budget."""
        self._perhaps()
        return super().begin()

    def _perhaps(self) -> None:
        if self._random.random() < 0.4:
            self.pauses += 1
            raise SearchPaused


def with_pauses(asked: NodeSearch, budget: Budget) -> Placement | NoFit:
    """Go on until there is an answer."""
    while True:
        try:
            return asked.decide(budget)
        except SearchPaused:
            continue


@examples(200)
@given(
    slices=nodes,
    wanted=st.lists(claims, min_size=1, max_size=3),
    usage=usages,
    seed=st.integers(0, 999),
    threshold=st.sampled_from((1, 3, 10**9)),
    often=st.sampled_from((1, 7, 4_096)),
)
def test_pauses_never_change_an_answer(
    slices: list[Any], wanted: list[Any], usage: list[Any], seed: int, threshold: int, often: int
) -> None:
    pools = pools_of(slices)
    with patch(POLL, 0), patch(THRESHOLD, threshold), patch(ALONE, 20), patch(POLL_DEVICES, often), patch(POLL_MASK, 0):
        plain = allocate(demand_of(*wanted), NODE, pools, Held(*usage), deadline=Budget())
        paused = with_pauses(NodeSearch(demand_of(*wanted), NODE, pools_of(slices), Held(*usage)), Interrupting(seed))
    assert paused == plain


def test_a_limit_on_steps_counts_the_same_steps_with_pauses() -> None:
    slices = [slice_of(*({"name": f"d{i}", "attributes": {"k": {"int": i % 4}}} for i in range(12)))]
    distinct = [{"distinctAttribute": "gpu.example.com/k"}]
    wanted = [claim_of(*(exactly(name=f"r{i}", expression=f"{i} == {i}") for i in range(6)), constraints=distinct)]
    stopped = reasons(allocate(demand_of(*wanted), NODE, pools_of(slices), Held(), max_steps=100))
    budget = Interrupting(1)
    with patch(POLL, 0):
        paused = reasons(
            with_pauses(NodeSearch(demand_of(*wanted), NODE, pools_of(slices), Held(), max_steps=100), budget)
        )
    assert budget.pauses > 10
    assert paused == stopped
    assert stopped.rejections[0].code is Code.SEARCH_LIMIT


def test_a_search_that_reaches_its_limit_keeps_few_states() -> None:
    devices = ({"name": f"d{i}", "attributes": {"k": {"int": i % 11}, "own": {"int": i}}} for i in range(22))
    slices = [slice_of(*devices)]
    # With the second constraint the order of the picks is no matter, but which devices they are.
    distinct = [{"distinctAttribute": f"gpu.example.com/{name}"} for name in ("k", "own")]
    wanted = [claim_of(*(exactly(name=f"r{i}", expression=f"{i} == {i}") for i in range(12)), constraints=distinct)]
    asked = NodeSearch(demand_of(*wanted), NODE, pools_of(slices), Held(), max_steps=20_000)
    with patch(NOGOODS, 1_200):
        assert reasons(asked.decide(Budget())).at_step_limit
    assert asked.nogood_count == 1_200


def test_picks_in_another_order_are_the_same_state_of_a_constraint_for_different_values() -> None:
    """Twelve devices with eleven values: 2,048 sets of values, but 39,916,800 orders of them."""
    slices = [slice_of(*({"name": f"d{i}", "attributes": {"k": {"int": i % 11}}} for i in range(22)))]
    distinct = [{"distinctAttribute": "gpu.example.com/k"}]
    wanted = [claim_of(*(exactly(name=f"r{i}", expression=f"{i} == {i}") for i in range(12)), constraints=distinct)]
    answer = reasons(allocate(demand_of(*wanted), NODE, pools_of(slices), Held()))
    assert answer.rejections[0].code is Code.CONSTRAINT
    assert answer.steps < 50_000


class Counting(Budget):
    """Pauses each second time that it is asked, and counts how often that was."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __call__(self) -> bool:
        """See Budget."""
        self.asked += 1
        if self.asked % 2:
            raise SearchPaused
        return super().__call__()


def test_what_mode_all_means_is_looked_up_in_pieces() -> None:
    """32 requests over 1,024 devices: there is time for others every few thousand devices."""
    devices = [{"name": f"d{number}", "attributes": {"u": {"int": number}}} for number in range(128)]
    slices = [slice_of(*devices, name=f"s{each}", pool=f"p{each}") for each in range(8)]
    wanted = claim_of(*(every(name=f"r{each}", expression=f"device.driver == 'n{each}'") for each in range(32)))
    plain = allocate(demand_of(wanted), NODE, pools_of(slices), Held())
    budget = Counting()
    paused = with_pauses(NodeSearch(demand_of(wanted), NODE, pools_of(slices), Held()), budget)
    assert paused == plain
    assert budget.asked >= 32 * 8 * 128 // 4_096


def test_a_look_at_the_whole_node_is_made_in_pieces() -> None:
    """What is learned for pruning goes over all devices, for each alternative."""
    devices = [{"name": f"d{number}", "attributes": {"k": {"int": 0}, "u": {"int": number}}} for number in range(128)]
    slices = [slice_of(*devices, name=f"s{each}", pool=f"p{each}") for each in range(8)]
    attribute = "device.attributes['gpu.example.com'].u"
    requests = [
        either(*(exactly(expression=f"{attribute} > {-1 - 8 * each - way}") for way in range(8)), name=f"r{each}")
        for each in range(4)
    ]
    wanted = claim_of(*requests, constraints=[{"distinctAttribute": "gpu.example.com/k"}])
    with patch(THRESHOLD, 1):
        plain = allocate(demand_of(wanted), NODE, pools_of(slices), Held())
        budget = Counting()
        paused = with_pauses(NodeSearch(demand_of(wanted), NODE, pools_of(slices), Held()), budget)
    assert paused == plain
    assert budget.asked - paused.steps >= 4 * 8 * 8 * 128 // 4_096
