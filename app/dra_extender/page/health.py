"""The health of the cluster: what the audit finds, who allocates, and how well page and service follow the cluster."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from dra_extender.inspection.audit.findings import Check, CheckSeverity
from dra_extender.model.allocation_snapshot import is_snapshotted
from dra_extender.page.states import Reports
from dra_extender.page.waiting_view import waits_for_devices

MOST_FINDINGS: Final = 200
"""Findings on the page; the command prints all."""
MOST_HOLDS: Final = 100
"""Holds of the running extender on the page, and plans of gangs."""
MOST_DECISIONS: Final = 100
"""Decisions of the running extender on the page, the newest first."""
MOST_SCHEDULERS: Final = 50
"""Names of schedulers on the page, those with most pods first: pods choose them."""


def health(reports: Reports) -> Mapping[str, object]:
    """Return what the template shows by name.

    `own` and `others` count the claims that dra-extender and other schedulers allocated, `waiting` pods that wait for devices by
    scheduler; `competing` are findings that both allocate in one pool in turns.  `watches` are seconds since the API server last
    answered, by kind.  `extender_summary` says what is known of the running extender, empty if none runs; `replica` is what its
    leader says of itself, and `replica_problem` why that is not known.
    """
    audit, view, extender = reports.audit, reports.view, reports.extender()
    severities = Counter(finding.severity for finding in audit.findings)
    allocated = [record.claim for record in view.ledger.claims.records() if record.claim.status.allocation is not None]
    own = sum(map(is_snapshotted, allocated))
    waiting = Counter(pod.scheduler_name for pod in view.ledger.pods.all() if waits_for_devices(pod))
    return {
        "audit": audit,
        "errors": severities[CheckSeverity.ERROR],
        "warnings": severities[CheckSeverity.WARNING],
        "shown": audit.findings[:MOST_FINDINGS],
        "own": own,
        "others": len(allocated) - own,
        "waiting": waiting.most_common(MOST_SCHEDULERS),
        "competing": [finding for finding in audit.findings if finding.check is Check.TWO_ALLOCATORS],
        "watches": sorted(reports.contact_ages().items(), key=lambda entry: -entry[1]),
        "extender_summary": view.origin.holds,
        "holds": view.hold_report.holds[:MOST_HOLDS],
        "plans": view.hold_report.plans[:MOST_HOLDS],
        "replica": extender.decisions,
        "replica_problem": extender.decisions_problem,
        "decisions": () if extender.decisions is None else extender.decisions.decisions[:MOST_DECISIONS],
    }
