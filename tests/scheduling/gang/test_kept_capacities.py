"""What a search for the places of a gang leaves behind for the next one."""

import math
from typing import Final

import pytest
from dra_extender.allocator.state.features import Features
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.pod_claims import PodClaims
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.gang.members import candidate_of, members_of
from dra_extender.scheduling.gang.offers import GangOffers
from dra_extender.scheduling.gang.placements import PlacementOracle, PlanRequest

from tests.support.scheduling.world import DRIVER, InMemoryExtender

LONG: Final = "x" * 9_000


@pytest.mark.parametrize("other", ["y", LONG])
def test_capacities_are_kept_by_what_claims_read_and_not_with_its_text(other: str) -> None:
    world = InMemoryExtender()
    world.device_class()
    world.node("n1", cpu="8", memory="8Gi")
    world.gpus("n1", 2)
    world.add_group("g", 1)
    group = world.known_group("g")
    capacities: dict[object, int] = {}
    for number, name in enumerate(("a", other)):
        world.add_claim(f"c{number}", selector=f"device.attributes['{DRIVER}'].{name} == 1 || true")
        world.add_member("g", f"p{number}", f"c{number}")
        pod = world.known_pod(f"p{number}")
        candidate = candidate_of(pod, world.ledger)
        assert isinstance(candidate, PodClaims)
        offered = GangOffers(world.ledger, world.extender.device_backoff).among(group, pod.uid, ["n1"])
        oracle = PlacementOracle(
            world.ledger,
            world.extender.allocator,
            NodeEquivalence(world.ledger, Features()),
            capacities,
            PlanRequest(pod.uid, (candidate,), 1, offered),
            (),
            CallBudget(SystemClock(), math.inf),
        )
        members = members_of((candidate,), offered.to, world.ledger.member_fit.digest)
        counted = oracle.capacity(members, "n1", oracle.symmetry_class("n1"))
        with pytest.raises(StopIteration) as end:
            next(counted)
        assert end.value.value == 1
    assert len(capacities) == 2
    assert len(repr(capacities)) < 2_000
