"""Whether a cluster is sound, by its API objects only: the findings of every check, and the checks that could not be made."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from dra_extender.inspection.audit.cluster_audit import AuditedCluster, audit_steps, sort_findings
from dra_extender.inspection.audit.findings import AuditFinding, Check
from dra_extender.inspection.audit.requests import UnjudgedCheck, UnjudgedClaims
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.holders import HeldDevices, held_devices
from dra_extender.inspection.objects import KINDS, Origin, require_any, unknown_text, unread
from dra_extender.model.api_json import Value
from dra_extender.model.fields import Gate

FORMAT: Final = "dra-extender.io/audit/v1"


class Soundness(StrEnum):
    """The answer in one word; UNKNOWN: nothing was found, but something could not be judged."""

    SOUND = "sound"
    UNSOUND = "unsound"
    UNKNOWN = "unknown"


class AuditReport(Value, frozen=True):
    """What was looked at (objects by plural kind), what was found, and what could not be judged.

    `held`: what a running extender holds for pods that wait.
    """

    format: str
    origin: Origin
    verdict: Soundness
    objects: dict[str, int]
    findings: tuple[AuditFinding, ...] = ()
    unjudged: tuple[UnjudgedCheck, ...] = ()
    held: tuple[HeldDevices, ...] = ()


def audit_report(view: ClusterView, policy_messages: Iterable[str] = (), namespace: str | None = None) -> AuditReport:
    """Find everything that is wrong with the cluster; `policy_messages`: a sentence for each rule without effect.

    With a `namespace` findings about pods and claims of other namespaces are left out; devices have none.

    Raises:
        UnreadKindsError: nothing could be read.
    """
    require_any(view.origin)
    messages = tuple(policy_messages)
    cluster = AuditedCluster(
        view.ledger,
        lambda: view.now,
        view.options.binding_timeout_seconds,
        policy_messages=lambda: messages,
        device_taints=view.origin.may_be_on(Gate.DEVICE_TAINTS),
    )
    unjudged = UnjudgedClaims()
    unread_kinds = unread(view.origin, KINDS)
    missing = frozenset(kind.kind for kind in view.origin.missing if kind.served)
    # Checks that need a kind that could not be read are not made.
    steps = (step for step in audit_steps(cluster, unjudged) if step is not None and not step.check.kinds & missing)
    findings = sort_findings(step for step in steps if namespace in (None, step.namespace or namespace))
    left_out = []
    checks = tuple(check for check in Check if check.kinds & {kind.kind for kind in unread_kinds})
    if checks:
        reason = f"{unknown_text(unread_kinds)}: {unread_kinds[0].reason}"
        left_out.append(UnjudgedCheck(checks=checks, reason=reason))
    for unreadable in view.unreadable:
        checks = tuple(check for check in Check if unreadable.kind in check.kinds)
        left_out.append(UnjudgedCheck(checks=checks, reason=f"left out: {unreadable.reason}"))
    ledger = view.ledger
    counts = {
        "nodes": len(ledger.nodes),
        "resourceslices": len(ledger.slices),
        "resourceclaims": len(ledger.claims),
        "pods": len(ledger.pods),
        "deviceclasses": len(ledger.classes),
    }
    not_judged = (*left_out, *unjudged.checks(missing))
    return AuditReport(
        format=FORMAT,
        origin=view.origin,
        verdict=_verdict(findings, not_judged),
        objects={kind: number for kind, number in counts.items() if kind not in missing},
        findings=findings,
        unjudged=not_judged,
        held=held_devices(view.ledger, view.hold_report),
    )


def lasting(first: AuditReport, second: AuditReport) -> AuditReport:
    """Return the second report with only those findings that the first has, too.

    The kinds of a running cluster are read one after the other, and controllers clean up after pods in their own time.  A finding
    that two readings have is there.
    """
    first_findings = frozenset(first.findings)
    both = tuple(finding for finding in second.findings if finding in first_findings)
    return msgspec.structs.replace(second, findings=both, verdict=_verdict(both, second.unjudged))


def _verdict(findings: Sequence[AuditFinding], unjudged: Sequence[UnjudgedCheck]) -> Soundness:
    return Soundness.UNSOUND if findings else Soundness.UNKNOWN if unjudged else Soundness.SOUND
