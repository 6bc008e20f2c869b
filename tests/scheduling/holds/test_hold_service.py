"""Holds are changed through one service."""

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, ClaimPlacement
from dra_extender.scheduling.holds.service import HoldService
from dra_extender.scheduling.ports.options import Options

from tests.support.scheduling.world import Steady

PLACEMENT = ClaimPlacement(allocation=AllocationResult(), holdings=())
OPTIONS = Options(hold_seconds=10.0, binding_timeout_seconds=100.0)


class Holds:
    """A ledger without objects, and the service."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.clock = Steady()
        self.service = HoldService(self.ledger, self.clock, OPTIONS)

    def place(self, claim: str, *pods: str) -> None:
        """Hold the claim on node n1."""
        self.service.place("default", pods[0], claim, pods, {"n1": PLACEMENT}, {"n1": 0})


def test_a_hold_lasts_for_its_time_and_longer_once_a_further_pod_uses_its_claim() -> None:
    holds = Holds()
    holds.place("c1", "p1")
    holds.place("c2", "p1")
    holds.clock.seconds += 6.0
    holds.service.extend("c1", "p2")
    holds.clock.seconds += 5.0
    holds.service.expire()
    assert [hold.claim_uid for hold in holds.ledger.holds.all()] == ["c1"]
    assert holds.ledger.holds.expired == 1


def test_a_shared_hold_ends_with_the_last_of_its_pods_and_at_once_when_it_is_revoked() -> None:
    holds = Holds()
    for claim in ("c1", "c2"):
        holds.place(claim, "p1", "p2")
    holds.service.release_pods("p1")
    assert len(holds.ledger.holds) == 2
    holds.service.release_pods("p2")
    assert len(holds.ledger.holds) == 0


def test_the_hold_of_a_planned_claim_is_that_of_the_created_one_after_the_transfer() -> None:
    holds = Holds()
    holds.place("planned", "p1")
    holds.service.transfer("planned", "created")
    assert [hold.claim_uid for hold in holds.ledger.holds.of_pod("p1")] == ["created"]
    holds.service.release_claim("created")
    assert len(holds.ledger.holds) == 0
