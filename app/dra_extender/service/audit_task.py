"""The audit that the running service makes of its caches, beside the calls of kube-scheduler."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog

from dra_extender.config.service_settings import AuditSettings
from dra_extender.inspection.audit.cluster_audit import AuditedCluster, audit_steps, sort_findings
from dra_extender.inspection.audit.findings import AuditFinding, Check
from dra_extender.inspection.audit.requests import UnjudgedClaims
from dra_extender.runtime.clock import Turns
from dra_extender.telemetry.metrics import Metrics

_MOST_LOGGED: Final = 20
_LOG = structlog.get_logger(__name__)


@dataclass(eq=False)
class AuditTask:
    """Audits the caches again and again; `notes` for the readiness page.

    What happens while objects of several kinds change one after the other is no fault.  So a finding counts once two audits in a
    row have it.  Each is logged once, up to a limit for each audit; all are counted in the metric.  So are claims that could not be
    compared with their devices, and each reason for that is logged once as long as it lasts.
    """

    cluster: AuditedCluster
    metrics: Metrics
    settings: AuditSettings
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last_findings: frozenset[AuditFinding] = frozenset()
        self._counted: frozenset[AuditFinding] = frozenset()
        self._unjudged = UnjudgedClaims()

    async def keep_auditing(self) -> None:
        """Audit until cancelled; return at once if the setting says so."""
        while self.settings.enabled:
            await self.sleep(self.settings.interval_seconds)
            await self.audit()

    async def audit(self) -> tuple[AuditFinding, ...]:
        """Audit once; return the findings of both this audit and the one before, errors first."""
        findings = await self._find()
        lasting = findings & self._last_findings
        self._last_findings = findings
        self._report(lasting)
        return sort_findings(lasting)

    def notes(self) -> Mapping[str, str]:
        counts = Counter(finding.check.value for finding in self._counted)
        text = ", ".join(f"{check} {number}" for check, number in sorted(counts.items()))
        unjudged = len(self._unjudged.claims)
        notes = {"audit": text, "audit, claims not judged": str(unjudged) if unjudged else ""}
        return {name: note for name, note in notes.items() if note}

    async def _find(self) -> frozenset[AuditFinding]:
        findings: set[AuditFinding] = set()
        turns = Turns(self.sleep, self.monotonic)
        unjudged = UnjudgedClaims()
        for finding in audit_steps(self.cluster, unjudged):
            if finding is not None:
                findings.add(finding)
            if turns.over:
                await turns.pause()
        self.metrics.audited(turns.worked)
        self._report_unjudged(unjudged)
        return frozenset(findings)

    def _report_unjudged(self, unjudged: UnjudgedClaims) -> None:
        self.metrics.audit_unjudged_claims.set(len(unjudged.claims))
        new = {reason: claims for reason, claims in unjudged.reasons.items() if reason not in self._unjudged.reasons}
        for reason, claims in islice(new.items(), _MOST_LOGGED):
            _LOG.warning("the audit cannot compare claims with their devices", claims=claims, reason=reason)
        if len(new) > _MOST_LOGGED:
            _LOG.warning("the audit has further reasons", number=len(new) - _MOST_LOGGED)
        self._unjudged = unjudged

    def _report(self, lasting: frozenset[AuditFinding]) -> None:
        counts = Counter(finding.check for finding in lasting)
        for check in Check:
            self.metrics.audit_findings.labels(check.value, check.severity.value).set(counts[check])
        new = sort_findings(lasting - self._counted)
        for finding in new[:_MOST_LOGGED]:
            _LOG.warning(
                "the audit has a finding", check=finding.check.value, about=finding.about, detail=finding.detail
            )
        if len(new) > _MOST_LOGGED:
            _LOG.warning("the audit has further findings", number=len(new) - _MOST_LOGGED)
        self._counted = lasting
