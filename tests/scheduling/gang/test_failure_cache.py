"""A plan that failed is not made again for each of many members, as long as nothing has changed that it reads."""

from collections.abc import Callable, Mapping

import pytest
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.gang.placements import Pausable
from dra_extender.scheduling.gang.search import Assignment, GangSearch
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.model.reading import pod_from
from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import DRIVER

Outcome = Pausable[Mapping[str, Assignment] | None]


class Plans:
    """Counts the plans that are made; `stopped` ends them at their limit, with `spends` because the budget is spent."""

    def __init__(self, original: Callable[[GangSearch, int], Outcome]) -> None:
        self._original = original
        self.made = 0
        self.stopped = self.spends = False

    def __call__(self, plan: GangSearch, needed: int) -> Outcome:
        self.made += 1
        if self.stopped:
            plan.limited = True
            if self.spends:
                plan._oracle.budget.remaining = 0
            return None
        return (yield from self._original(plan, needed))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    counted = Plans(GangSearch.solve)
    monkeypatch.setattr(GangSearch, "solve", lambda plan, needed: counted(plan, needed))  # noqa: PLW0108 - becomes a method
    return counted


def three_of(world: GangExtender, *cards: str) -> None:
    for node in cards:
        world.cards(node, 1)
    world.gang("g", 3, "half", "abc")


NOBODY: dict[str, list[str]] = {"a": [], "b": [], "c": []}


async def test_members_are_refused_at_once_until_devices_come(plans: Plans) -> None:
    world = GangExtender()
    three_of(world, "n1")
    assert await world.ask("abcabc", "n1") == NOBODY
    assert plans.made == 1
    world.cards("n2", 1)
    assert all((await world.ask("abc", "n1", "n2")).values())


@pytest.mark.parametrize("change", ["a member", "an allocation", "a group", "a class"])
async def test_whatever_may_help_causes_a_new_plan(plans: Plans, change: str) -> None:
    world = GangExtender()
    three_of(world, "n1")
    await world.ask("abc", "n1")
    made = plans.made
    if change == "a member":
        world.member("g", "d", "half")
    elif change == "an allocation":
        world.add_claim("other")
        world.add_pod("other", "other")
        await world.bind_through("other", "n1")
    elif change == "a group":
        world.gang("g", 2)
    else:
        world.device_class("another")
    await world.ask("abc", "n1")
    assert plans.made > made


async def test_a_failed_plan_is_forgotten_with_the_offers_that_it_was_made_for(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other offers, of which there are as many, would be taken for the same."""
    world = GangExtender()
    for node in ("n1", "n2", "n3"):
        world.cards(node, 1)
    for name in "gh":
        world.gang(name, 2, "whole", [f"{name}-a", f"{name}-b"])
    monkeypatch.setattr(world.extender.gangs._offers._gangs, "_max_entries", 1)
    assert await world.ask(["g-a", "g-b"], "n1") == {"g-a": [], "g-b": []}
    assert await world.ask(["h-a"], "n1") == {"h-a": []}
    seats = await world.ask(["g-a", "g-b"], "n2", "n3")
    assert sorted(seats.values()) == [["n2"], ["n3"]]
    assert plans.made


async def test_a_search_that_was_stopped_at_its_steps_is_said_to_be_so_and_tried_again_after_a_change(
    plans: Plans,
) -> None:
    world = GangExtender()
    three_of(world, "n1", "n2")
    plans.stopped = True
    assert await world.ask("abc", "n1", "n2") == NOBODY
    assert plans.made == 1
    assert all("search was stopped at its limit" in world.messages(pod)[0] for pod in "abc")
    assert not any("not enough members" in world.messages(pod)[0] for pod in "abc")
    plans.stopped = False
    world.cards("n3", 1)
    assert all((await world.ask("abc", "n1", "n2", "n3")).values())


async def test_a_search_that_spent_its_budget_is_an_error_after_which_the_member_is_tried_again(plans: Plans) -> None:
    """A rejected member would wait for a change, which may never come."""
    world = GangExtender()
    three_of(world, "n1", "n2")
    plans.stopped = plans.spends = True
    for _ in range(2):
        with pytest.raises(RetryableError, match="search was stopped at its limit: PodGroup g: no plan found in time"):
            await world.ask("a", "n1", "n2")
    assert plans.made == 2
    plans.stopped = False
    assert all((await world.ask("abc", "n1", "n2")).values())


async def test_kube_scheduler_is_woken_where_a_try_spends_its_budget(plans: Plans) -> None:
    world = GangExtender()
    three_of(world, "n1")
    await world.ask("abc", "n1")
    world.cards("n2", 1)
    plans.stopped = plans.spends = True
    budget = CallBudget(world.clock, 60.0)
    assert world.extender._filter.may_fit(pod_from(world.pod("a")), ["n1", "n2"], budget, None) is True


async def test_members_that_are_too_many_cost_no_plan_each(plans: Plans) -> None:
    world = GangExtender()
    world.cards("n1", 1)
    world.gang("g", 2)
    pods = [f"p{index}" for index in range(12)]
    for pod in pods:
        world.member("g", pod, "half")
    offered = await world.ask([*pods, *pods], "n1")
    assert sum(map(len, offered.values())) == 2
    assert plans.made <= 2 * len(pods)
    made = plans.made
    await world.ask(pods, "n1")
    assert plans.made == made


async def test_a_gang_refused_beside_what_its_members_were_told_may_fit_anew(plans: Plans) -> None:
    world = GangExtender()
    for node in ("n1", "n2"):
        world.cards(node, 1)
    world.gang("g", 2, "whole", "ab")
    assert await world.ask("a", "n1", "n2") == {"a": ["n1"]}
    assert await world.ask("b", "n1") == {"b": []}
    assert await world.ask("b", "n1") == {"b": ["n1"]}
    assert await world.ask("a", "n1", "n2") == {"a": ["n2"]}
    assert plans.made


async def test_a_deleted_pod_of_the_gang_changes_the_answer(plans: Plans) -> None:
    world = GangExtender()
    world.cards("n1", 1)
    world.gang("g", 1, "half", "abc")
    offered = await world.ask("abc", "n1")
    (left_out,) = [pod for pod, nodes in offered.items() if not nodes]
    (seated, _) = [pod for pod, nodes in offered.items() if nodes]
    world.delete(StoredKind.POD, seated)
    assert await world.ask([left_out], "n1") == {left_out: ["n1"]}
    assert plans.made


@pytest.mark.parametrize(("whose", "plans_again"), [("a", True), ("other", False)])
async def test_a_backoff_of_a_member_and_of_no_other_pod_causes_a_new_plan(
    plans: Plans, whose: str, *, plans_again: bool
) -> None:
    world = GangExtender()
    three_of(world, "n1")
    world.add_claim("other")
    world.add_pod("other", "other")
    await world.ask("abc", "n1")
    made, uid = plans.made, world.uid(whose)
    world.extender.device_backoff.start(uid, [(DRIVER, "n1", "whole-0")])
    assert await world.ask("abc", "n1") == NOBODY
    assert (plans.made > made) is plans_again


async def test_members_in_backoff_are_refused_at_once_until_it_ends(plans: Plans) -> None:
    world = GangExtender()
    three_of(world, "n1", "n2")
    devices = [(DRIVER, node, device) for node in ("n1", "n2") for device in ("half-a-0", "half-b-0")]
    for pod in "abc":
        world.extender.device_backoff.start(world.uid(pod), devices)
    assert await world.ask("abcabc", "n1", "n2") == NOBODY
    made = plans.made
    await world.ask("abc", "n1", "n2")
    assert plans.made == made
    world.clock.seconds += world.options.device_backoff_seconds
    assert all((await world.ask("abc", "n1", "n2")).values())
