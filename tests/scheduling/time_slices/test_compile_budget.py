"""What compiling a claim takes is charged to the call, expression by expression, and calls get further one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.budget import COMPILE_LIMIT, Budget
from dra_extender.cel.cost import COST_LIMIT
from dra_extender.cel.environment import Release
from dra_extender.cel.syntax.parser import parse
from dra_extender.model.resource_claim import ConsumerReference
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options

from tests.controlplane.objects import request
from tests.support.scheduling.world import DRIVER, InMemoryExtender

_MEGABYTE = 128
_EACH_CALL = 3


def _selector(number: int) -> str:
    """Almost 10 KiB that compile."""
    return "&&".join([f"[1,2].all(x,x!={number + 100})"] * 330)[:10_200].rsplit("&&", 1)[0]


def _claim(world: InMemoryExtender, selectors: int) -> Sequence[FoundClaim]:
    """A claim with so many large selectors, four in a request."""
    requests = [
        request(f"r{index}", "gpu", *(_selector(4 * index + each) for each in range(4)))
        for index in range(selectors // 4)
    ]
    world.add_claim_of("large", *requests)
    record = world.known_claim("large")
    return (FoundClaim("large", record, ConsumerReference(resource="pods", name="p", uid="u")),)


def _searching(world: InMemoryExtender) -> NodeAllocator:
    return NodeAllocator(world.ledger, Features(), Options())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that are parsed for compiling."""
    texts: list[str] = []

    def parsed(source: str, *arguments: object) -> object:
        texts.append(source)
        return parse(source, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("dra_extender.cel.program.parse", parsed)
    return texts


async def test_a_claim_of_a_megabyte_ends_at_a_counted_limit_after_calls_that_each_spend_their_budget_and_one_expression(
    compiled: list[str],
) -> None:
    world = InMemoryExtender()
    world.device_class()
    claims, searching, answer = _claim(world, _MEGABYTE), _searching(world), None
    for _ in range(20):
        before = len(compiled)
        budget = Budget(COMPILE_LIMIT // 2)
        answer = searching.demand(claims, budget)
        assert budget.remaining > -2 * COMPILE_LIMIT
        assert len(compiled) - before <= _EACH_CALL
        if isinstance(answer, Rejection) and answer.code is not Code.SEARCH_LIMIT:
            break
    assert isinstance(answer, Rejection)
    assert answer.code is Code.SELECTOR_INVALID
    assert answer.request == "r2"
    assert "3000000 units" in answer.detail
    assert searching.demand(claims, Budget(0)) is answer, "a counted limit is cached"
    assert len(compiled) < _MEGABYTE // 8


async def test_a_large_claim_is_prepared_by_calls_that_get_further_one_after_the_other(compiled: list[str]) -> None:
    world = InMemoryExtender()
    world.device_class()
    claims, searching = _claim(world, 4), _searching(world)
    answers = [searching.demand(claims, Budget(1)) for _ in range(6)]
    assert [isinstance(each, Demand) for each in answers] == [False, False, False, False, True, True]
    assert len(compiled) == len(set(compiled))


async def test_a_call_without_a_further_slice_compiles_nothing_more_and_says_so(compiled: list[str]) -> None:
    world = InMemoryExtender()
    world.device_class()
    budget = CallBudget(world.clock, 1.0)
    budget.close()
    answer = _searching(world).demand(_claim(world, 4), budget)
    assert isinstance(answer, Rejection)
    assert answer.code is Code.SEARCH_LIMIT
    assert not compiled


async def test_what_is_kept_of_hostile_claims_is_bounded_and_leaves_the_demands_of_another_namespace_alone() -> None:
    world = InMemoryExtender()
    world.device_class()
    searching = _searching(world)
    victims = []
    for number in range(20):
        world.add_claim(f"c{number}", selector=f"device.driver == 'd{number}'", namespace="victim")
        record = world.ledger.claims.by_key("victim", f"c{number}")
        assert record is not None
        victims.append((FoundClaim("c", record, ConsumerReference(resource="pods", name="p", uid="u")),))
    demands = [searching.demand(each) for each in victims]
    # The caches are full after 30.
    for number in range(40):
        world.add_claim(f"h{number}", selector=_selector(number))
        record = world.known_claim(f"h{number}")
        searching.demand((FoundClaim("c", record, ConsumerReference(resource="pods", name="p", uid="u")),))
        assert searching.held < Options().selector_cache_bytes
    assert [searching.demand(each) for each in victims] == demands
    assert all(searching.demand(each) is demand for each, demand in zip(victims, demands, strict=True))


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
    world = InMemoryExtender().furnish(n0=8)
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
