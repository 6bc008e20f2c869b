"""What the running extender holds for pods that wait, and the plans of gangs, as bounded values that can leave the process.

Holds are only in memory: API objects do not show them.  Parameters of drivers, which may be secrets of a tenant, are left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import Value
from dra_extender.model.metadata import Moment
from dra_extender.scheduling.gang.permit import Permit
from dra_extender.scheduling.gang.plans import GangPlan
from dra_extender.scheduling.ports.cluster import Clock

FORMAT: Final = "dra-extender.io/holds/v1"
HOLDS_PATH: Final = "/debug/holds"
MOST_DEVICES: Final = 4_000
"""The most devices that a report lists, over all holds and nodes."""
MOST_MEMBERS: Final = 1_000
"""The most members of gangs that a report lists."""


class HeldNode(Value, frozen=True, rename=None):
    """The devices held on one node."""

    node: str
    devices: tuple[DeviceHolding, ...]


class HeldClaim(Value, frozen=True, rename=None):
    """A hold: devices kept free for a claim on each node that was offered.

    `pods`: (namespace/name, UID), a name is empty for a pod that the watch has not delivered.  `until`: when the hold ends;
    `nominated`: kube-scheduler has chosen the node.
    """

    claim_uid: str
    claim: str
    namespace: str
    pods: tuple[tuple[str, str], ...]
    until: Moment
    nominated: bool
    nodes: tuple[HeldNode, ...]


class PlannedMember(Value, frozen=True, rename=None):
    """A member of a gang and its node; `announced`: kube-scheduler knows it."""

    pod: str
    node: str
    announced: bool


class ReportedPlan(Value, frozen=True, rename=None):
    """The plan of a gang (`namespace/name` of the PodGroup): how many members are needed, and how many wait for the permit."""

    pod_group: str
    phase: str
    needed: int
    waiting: int
    members: tuple[PlannedMember, ...]


class HoldReport(Value, frozen=True, rename=None):
    """All holds and plans at `taken_at`; `left_out` holds and plans did not fit into the limits.

    A replica that does not lead has none.  `binding_timeout_seconds` is the setting of the service; None from a service that does
    not report it.
    """

    format: str
    taken_at: Moment
    leads: bool = True
    holds: tuple[HeldClaim, ...] = ()
    plans: tuple[ReportedPlan, ...] = ()
    left_out: int = 0
    binding_timeout_seconds: float | None = None


@dataclass(eq=False)
class HoldReporter:
    """Makes reports from the memory of the service."""

    ledger: Ledger
    plans: Mapping[str, GangPlan]
    permit: Permit
    clock: Clock
    binding_timeout: float

    def report(self, *, leads: bool) -> HoldReport:
        """Report what is held now; the work is bounded by the limits of a report."""
        holds, left_out = self._held_claims()
        plans = tuple(self._reported_plans())
        return HoldReport(
            format=FORMAT,
            taken_at=Moment(self.clock.now()),
            leads=leads,
            holds=holds,
            plans=plans,
            left_out=left_out + len(self.plans) - len(plans),
            binding_timeout_seconds=self.binding_timeout,
        )

    def _held_claims(self) -> tuple[tuple[HeldClaim, ...], int]:
        """Return the holds that fit into the limit, and how many do not."""
        claims: list[HeldClaim] = []
        devices_left = MOST_DEVICES
        holds = self.ledger.holds
        for hold in holds.all():
            devices_left -= sum(len(placement.holdings) for placement in hold.placements.values())
            if devices_left < 0:
                break
            record = self.ledger.claims.by_uid(hold.claim_uid)
            claims.append(
                HeldClaim(
                    claim_uid=hold.claim_uid,
                    claim="" if record is None else record.claim.metadata.name,
                    namespace=hold.namespace,
                    pods=tuple((self._pod(uid), uid) for uid in sorted(hold.pods)),
                    until=Moment(self.clock.now() + hold.ends_at - self.clock.monotonic()),
                    nominated=hold.nominated,
                    nodes=tuple(
                        HeldNode(node=node, devices=placement.holdings) for node, placement in hold.placements.items()
                    ),
                )
            )
        return tuple(claims), len(holds) - len(claims)

    def _reported_plans(self) -> Iterator[ReportedPlan]:
        members_left = MOST_MEMBERS
        for group_uid, plan in islice(self.plans.items(), MOST_MEMBERS):
            members_left -= len(plan.assignments)
            if members_left < 0:
                return
            group = self.ledger.pod_groups.get(*plan.group)
            waiting = self.permit.waiting_gang(group_uid)
            yield ReportedPlan(
                pod_group="/".join(plan.group),
                phase=plan.phase,
                needed=0 if group is None else group.min_count or 0,
                waiting=0 if waiting is None else len(waiting.members),
                members=tuple(
                    PlannedMember(pod=self._pod(uid), node=assignment.node, announced=uid in plan.announced)
                    for uid, assignment in plan.assignments.items()
                ),
            )

    def _pod(self, uid: str) -> str:
        pod = self.ledger.pods.by_uid(uid)
        return "" if pod is None else pod.key
