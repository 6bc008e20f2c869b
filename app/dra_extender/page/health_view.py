"""Whether the cluster is sound, which schedulers allocate in it, and how well the page can follow it."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from dra_extender.inspection.audit.findings import AuditFinding, Check, CheckSeverity
from dra_extender.inspection.audit.report import AuditReport
from dra_extender.model.snapshot import is_snapshotted
from dra_extender.page.states import Reports
from dra_extender.scheduling.hold_report import HeldClaim, ReportedPlan
from dra_extender.scheduling.recent_decisions import Decision, DecisionReport

MOST_FINDINGS: Final = 200
"""Findings on the page; the command prints all."""
MOST_HOLDS: Final = 100
"""Holds of the running extender on the page, and plans of gangs."""
MOST_DECISIONS: Final = 100
"""Decisions of the running extender on the page, the newest first."""
MOST_SCHEDULERS: Final = 50
"""Names of schedulers on the page, those with most pods first: pods choose them."""


class Allocators(NamedTuple):
    """How many claims dra-extender allocated and how many others did; pods that wait for devices, by scheduler.

    `competing` are findings that both allocate in one pool in turns.
    """

    own: int
    others: int
    waiting: tuple[tuple[str, int], ...]
    competing: tuple[AuditFinding, ...]


class ClusterHealth(NamedTuple):
    """The audit, who allocates, and the seconds since the API server last answered the watch of each kind.

    `said` is what was found out about the running extender, empty if none runs; `holds` and `plans` are what its leader has.
    `replica` is what the leader says of itself, with its latest `decisions`; `replica_said`: why that is not known.
    """

    audit: AuditReport
    errors: int
    warnings: int
    shown: tuple[AuditFinding, ...]
    allocators: Allocators
    watches: tuple[tuple[str, float], ...]
    said: str
    holds: tuple[HeldClaim, ...]
    plans: tuple[ReportedPlan, ...]
    replica: DecisionReport | None
    replica_said: str
    decisions: tuple[Decision, ...]


def health(reports: Reports) -> ClusterHealth:
    audit, extender = reports.audit, reports.extender()
    replica = extender.decisions
    severities = Counter(finding.severity for finding in audit.findings)
    return ClusterHealth(
        audit=audit,
        errors=severities[CheckSeverity.ERROR],
        warnings=severities[CheckSeverity.WARNING],
        shown=audit.findings[:MOST_FINDINGS],
        allocators=_allocators(reports),
        watches=_by_age(reports.contact_ages()),
        said=reports.view.origin.holds,
        holds=reports.view.held.holds[:MOST_HOLDS],
        plans=reports.view.held.plans[:MOST_HOLDS],
        replica=replica,
        replica_said=extender.decisions_said,
        decisions=() if replica is None else replica.decisions[:MOST_DECISIONS],
    )


def _allocators(reports: Reports) -> Allocators:
    ledger = reports.view.ledger
    allocated = [record.claim for record in ledger.claims.records() if record.claim.status.allocation is not None]
    own = sum(map(is_snapshotted, allocated))
    waiting = Counter(
        pod.scheduler_name
        for pod in ledger.pods.all()
        if pod.needs_devices and not pod.node_name and not pod.finished and not pod.deleting
    )
    return Allocators(
        own=own,
        others=len(allocated) - own,
        waiting=tuple(waiting.most_common(MOST_SCHEDULERS)),
        competing=tuple(finding for finding in reports.audit.findings if finding.check is Check.TWO_ALLOCATORS),
    )


def _by_age(ages: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(ages.items(), key=lambda entry: -entry[1]))
