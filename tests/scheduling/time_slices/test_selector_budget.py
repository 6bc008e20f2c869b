"""What the selectors of one filter call may cost altogether, and with which libraries they are read."""

from collections.abc import Callable
from typing import Any

import pytest
from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import COST_LIMIT
from dra_extender.cel.environment import Release
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options

from tests.support.scheduling.world import DRIVER, InMemoryExtender

DEAR = "lists.range(245000).all(x, true) && false"


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each evaluation has cost."""
    costs: list[int] = []
    original: Callable[[Budget, Any], None] = Budget.charge

    def charge(budget: Budget, frame: Any) -> None:
        costs.append(frame.cost)
        original(budget, frame)

    monkeypatch.setattr(Budget, "charge", charge)
    return costs


async def test_many_devices_times_a_dear_selector_end_as_a_search_limit_and_go_on_in_the_next_call(
    charged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget.__init__, "__defaults__", (3 * COST_LIMIT,))
    world = InMemoryExtender()
    world.node("n0")
    world.gpus("n0", 8)
    world.device_class(expression="true")
    world.add_claim("c1", selector=DEAR)
    world.add_pod("p1", "c1")

    answers, evaluated = [], []
    for _ in range(3):
        before = len(charged)
        try:
            answers.append((await world.filter("p1", "n0")).unresolvable["n0"])
        except RetryableError as unfinished:
            answers.append(str(unfinished))
        evaluated.append(len([cost for cost in charged[before:] if cost > COST_LIMIT // 2]))

    assert evaluated == [4, 4, 0], "each call adds to what is known until its budget is spent"
    assert "search was stopped at its limit" in answers[0]
    assert answers[2] == 'node(s): claim "c1", request "req": no device matches the selectors'


@pytest.mark.parametrize(("release", "fits"), [(Release.V1_34, False), (Release.V1_36, True), (Release.V1_37, True)])
async def test_selectors_are_read_with_the_libraries_of_the_release_that_a_setting_names(
    release: Release, fits: bool
) -> None:
    world = InMemoryExtender(Options(selector_libraries=release))
    world.node("n0")
    world.slice("n0", [{"name": "gpu-0", "attributes": {"type": {"string": "a"}}}])
    world.device_class()
    world.add_claim("c1", selector=f"device.attributes['{DRIVER}'].type.includes('a')")
    world.add_pod("p1", "c1")

    answer = await world.filter("p1", "n0")

    assert list(answer.fitting) == (["n0"] if fits else [])
