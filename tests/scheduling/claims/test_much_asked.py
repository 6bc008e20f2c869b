"""What a pod or a gang asks for is looked at piece by piece, and not at all beyond counted limits."""

from collections.abc import Sequence

import pytest
from dra_extender.allocator.demand import build as requests
from dra_extender.allocator.demand.build import MAX_OPTIONS
from dra_extender.allocator.demand.demand import ClaimDemand, Demand, NamedClaim
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code, Rejection, SearchPaused
from dra_extender.model.resource_claim import ConsumerReference
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import MOST_CLAIMS, FoundClaim
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.gang.members import MOST_PARTS
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import InMemoryExtender, Ticking

TOO_MUCH = str(Code.TOO_MUCH)


def filled() -> InMemoryExtender:
    return InMemoryExtender().furnish(n1=2)


def large_claim(world: InMemoryExtender, name: str) -> FoundClaim:
    """A claim with as many requests and alternatives as the API server stores."""
    alternatives = [{"name": f"a{place}", "deviceClassName": "gpu", "count": 1} for place in range(8)]
    wishes: list[Json] = [{"name": f"r{place}", "firstAvailable": alternatives} for place in range(32)]
    world.add_claim_of(name, *wishes)
    record = world.known_claim(name)
    return FoundClaim(name, record, ConsumerReference(resource="pods", name="p", uid="u"))


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The claims that are validated, by the pod's names for them."""
    labels: list[str] = []
    prepare = requests._DemandBuilder.claim

    def claim(self: requests._DemandBuilder, named: NamedClaim) -> ClaimDemand:
        labels.append(named.label)
        return prepare(self, named)

    monkeypatch.setattr(requests._DemandBuilder, "claim", claim)
    return labels


def asked_in_slices(
    searching: NodeAllocator, claims: Sequence[FoundClaim]
) -> tuple[Demand | Rejection | UnreadSpecs, int]:
    """The answer for a call of which each slice ends as soon as it may, and how often it paused."""
    budget, pauses = CallBudget(Ticking(), 1e6), 0
    while True:
        budget.open_slice(0.5)
        try:
            return searching.demand(claims, budget), pauses
        except SearchPaused:
            pauses += 1


async def test_each_further_claim_of_a_pod_is_prepared_once_and_a_call_pauses_between_two(prepared: list[str]) -> None:
    world = filled()
    claims = [large_claim(world, f"c{place}") for place in range(6)]

    answer, pauses = asked_in_slices(NodeAllocator(world.ledger, Features(), Options()), claims)

    assert isinstance(answer, Demand)
    assert pauses >= len(claims) - 1
    # The first one may meet the end of the slice in which its claim was decoded.
    assert prepared[-len(claims) :] == [each.label for each in claims]
    assert len(prepared) <= len(claims) + 1


async def test_a_demand_too_large_to_be_kept_is_made_once_in_a_call(prepared: list[str]) -> None:
    world = filled()
    claims = [large_claim(world, "c0"), large_claim(world, "c1")]
    searching = NodeAllocator(world.ledger, Features(), Options(selector_cache_bytes=20 * 2**20))
    budget = CallBudget(Ticking(), 1e6)

    first, second = searching.demand(claims, budget), searching.demand(claims, budget)

    assert first is second
    assert prepared == ["c0", "c1"]


async def test_claims_with_more_alternatives_than_are_looked_at_are_refused_unseen(prepared: list[str]) -> None:
    world = filled()
    names = [f"c{place}" for place in range(MAX_OPTIONS // 256 + 1)]
    for name in names:
        large_claim(world, name)
    world.add_pod("p", *names)

    answer = await world.filter("p", "n1")

    assert answer.unresolvable == {"n1": f"node(s): {TOO_MUCH}"}
    told = f"claims have {256 * len(names)} requests and alternatives, {MAX_OPTIONS} are looked at"
    assert world.messages("p") == [f"1 of 1 nodes: {TOO_MUCH}: {told} (on n1). More: kubectl dra why p -n default"]
    assert not prepared


async def test_claims_with_more_bytes_than_are_looked_at_are_refused_unseen(
    monkeypatch: pytest.MonkeyPatch, prepared: list[str]
) -> None:
    monkeypatch.setattr("dra_extender.scheduling.evaluation.node_allocator.MOST_CLAIM_BYTES", 10_000)
    world = filled()
    large_claim(world, "large")
    world.add_pod("p", "large")

    answer = await world.filter("p", "n1")

    assert answer.unresolvable == {"n1": f"node(s): {TOO_MUCH}"}
    assert not prepared


@pytest.mark.parametrize(("entries", "refused"), [(MOST_CLAIMS, False), (MOST_CLAIMS + 1, True)])
async def test_a_pod_with_more_claims_than_are_looked_at_is_refused(entries: int, refused: bool) -> None:
    world = filled()
    world.add_claim("c")
    uses = [{"name": f"e{place}", "resourceClaimName": "c"} for place in range(entries)]
    spec = {"schedulerName": "dra-scheduler", "containers": [{"name": "c"}], "resourceClaims": uses}
    world.create(StoredKind.POD, {"metadata": {"name": "p"}, "spec": spec})

    answer = await world.filter("p", "n1")

    assert answer.unresolvable == ({"n1": f"node(s): {TOO_MUCH}"} if refused else {})


async def test_a_gang_of_which_more_waits_than_is_looked_at_is_refused_and_served_once_it_is_less() -> None:
    world = GangExtender()
    world.cards("n1", 2)
    world.gang("g", 1)
    world.member("g", "first", "any")
    uses = [{"name": f"e{place}", "resourceClaimName": "first"} for place in range(900)]
    spec = {"schedulerName": "dra-scheduler", "containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": "g"}}
    names = [f"p{place}" for place in range(MOST_PARTS // 900 + 1)]
    for name in names:
        world.create(StoredKind.POD, {"metadata": {"name": name}, "spec": {**spec, "resourceClaims": uses}})

    before = await world.filter("first", "n1")
    for name in names:
        world.delete(StoredKind.POD, name)
    after = await world.filter("first", "n1")

    assert before.unresolvable == {"n1": f"node(s): {TOO_MUCH}"}
    assert list(after.fitting) == ["n1"]
