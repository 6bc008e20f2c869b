"""When each alert fires and when it does not: series as they come in, and what must come of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TARGET: Final = 'namespace="dra-extender",pod="dra-extender-5d9c7b8f6-x2x7q",instance="10.0.0.7:8080"'
"""The labels that a Prometheus of the operator adds to what it scrapes."""
OTHER_REPLICA: Final = 'namespace="dra-extender",pod="dra-extender-5d9c7b8f6-k4m9z",instance="10.0.0.8:8080"'
OTHER_RELEASE: Final = 'namespace="dra-extender",pod="dra-extender-b-5d9c7b8f6-x2x7q",instance="10.0.0.9:8080"'
INSTANCE: Final = {"instance": "10.0.0.7:8080", "pod": "dra-extender-5d9c7b8f6-x2x7q"}
Series = dict[str, str]
"""Series and its values, one a minute, as promtool takes them."""


@dataclass(frozen=True, slots=True)
class AlertCase:
    """An alert fires at `at` with `fires` coming in, with these labels beside name and severity; with `quiet`, not at all."""

    name: str
    at: str
    fires: Series
    quiet: Series
    description: str
    labels: Mapping[str, str] = field(default_factory=dict)


def one(metric: str, values: str, labels: str = "", target: str = TARGET) -> Series:
    """A series of one replica."""
    return {f"dra_extender_{metric}{{{target}{',' if labels else ''}{labels}}}": values}


def answered(values: str, *bounds: str, verb: str = "filter") -> Series:
    """Calls of the verb that took no longer than each of these bounds in seconds."""
    return {
        name: values
        for bound in bounds
        for name in one("request_duration_seconds_bucket", "", f'verb="{verb}",le="{bound}"')
    }


LEADS: Final = one("leader", "1x100")

CASES: Final = (
    AlertCase(
        "DRAExtenderNoLeader",
        "5m",
        one("leader", "0x20") | one("leader", "1x20", target=OTHER_RELEASE),
        one("leader", "0x20") | one("leader", "1x20", target=OTHER_REPLICA),
        "No replica leads, or Prometheus scrapes none of them. Pods with claims are not placed.",
    ),
    AlertCase(
        "DRAExtenderTwoLeaders",
        "5m",
        one("leader", "1x20") | one("leader", "1x20", target=OTHER_REPLICA),
        one("leader", "1x20") | one("leader", "0 0 1 0x20", target=OTHER_REPLICA),
        "2 replicas lead at the same time.",
    ),
    AlertCase(
        "DRAExtenderWatchStale",
        "10m",
        one("watch_age_seconds", "60+60x20", 'kind="pods"'),
        one("watch_age_seconds", "0 60 120 179x20", 'kind="pods"'),
        "The API server has said nothing about pods to dra-extender-5d9c7b8f6-x2x7q for 11m 0s.",
        {**INSTANCE, "kind": "pods"},
    ),
    AlertCase(
        "DRAExtenderAllocationOverlap",
        "12m",
        # The counter appears with its first value.
        one("allocation_overlaps_total", "_x10 1x20", 'kind="device",outcome="reported",writer="foreign"'),
        # What was released before a pod was bound hurts nobody.
        one("allocation_overlaps_total", "0x20", 'kind="device",outcome="reported",writer="foreign"')
        | one("allocation_overlaps_total", "_x10 1x20", 'kind="device",outcome="yielded",writer="foreign"'),
        "Two claims have the same device; writer of the other allocation: foreign.",
        {"kind": "device", "writer": "foreign"},
    ),
    AlertCase(
        "DRAExtenderOverAllocated",
        "8m",
        one("audit_findings", "2x20", 'check="double_allocation",severity="error"'),
        one("audit_findings", "2x20", 'check="stale_reservation",severity="error"'),
        "The audit finds 2 errors of the check double_allocation.",
        {"check": "double_allocation"},
    ),
    AlertCase(
        "DRAExtenderAuditFindings",
        "8m",
        one("audit_findings", "2x20", 'check="stale_reservation",severity="error"'),
        one("audit_findings", "2x20", 'check="class_without_devices",severity="warning"')
        | one("audit_findings", "2x20", 'check="groups",severity="error"'),
        "The audit finds 2 errors of the check stale_reservation.",
        {"check": "stale_reservation"},
    ),
    AlertCase(
        "DRAExtenderPolicyRefused",
        "10m",
        one("policy_current", "1 1 0x20")
        | one("policy_reads_total", "1x20", 'outcome="taken"')
        | one("policy_reads_total", "_ _ 1x20", 'outcome="refused"'),
        # There never was a policy.
        one("policy_current", "0x20") | one("policy_reads_total", "1x20", 'outcome="missing"'),
        "The policy file of dra-extender-5d9c7b8f6-x2x7q was refused or is gone; the last valid policy stays in force.",
        INSTANCE,
    ),
    AlertCase(
        "DRAExtenderFieldsStripped",
        "100m",
        one("stripped_fields_total", "_x90 1x20", 'field="compatibilityGroups"'),
        # What was counted long ago is no news.
        one("stripped_fields_total", "3x200", 'field="compatibilityGroups"'),
        "The API server does not keep the field compatibilityGroups: a feature gate is off there.",
        {"field": "compatibilityGroups"},
    ),
    AlertCase(
        "DRAExtenderReclaimFailing",
        "20m",
        one("reclaims_total", "0+1x30", 'reason="orphan",outcome="failed"'),
        one("reclaims_total", "0x10 2x20", 'reason="orphan",outcome="failed"')
        | one("reclaims_total", "0+9x30", 'reason="orphan",outcome="done"'),
        "Unused devices could not be released 15 times in 15 minutes (orphan).",
        {"reason": "orphan"},
    ),
    AlertCase(
        "DRAExtenderBackgroundTaskFailing",
        "20m",
        one("background_failures_total", "_x18 3x20", 'task="audit"'),
        one("background_failures_total", "_x18 2x20", 'task="audit"'),
        "The background task audit has failed 3 times in 15 minutes.",
        {"task": "audit"},
    ),
    AlertCase(
        "DRAExtenderPodsWaitLong",
        "90m",
        LEADS | one("waiting_pods_longest_seconds", "0+60x100"),
        # A standby that led once has not heard of the end of the wait.
        one("leader", "0x100") | one("waiting_pods_longest_seconds", "0+60x100"),
        "The pod that waits longest has waited for 1h 30m 0s.",
        INSTANCE,
    ),
    AlertCase(
        "DRAExtenderFilterSlow",
        "20m",
        answered("0+98x30", "0.25", "1.0") | answered("0+100x30", "5.0", "+Inf"),
        answered("0+100x30", "0.25", "+Inf") | answered("0+100x30", "+Inf", verb="bind"),
        "One filter call in a hundred takes longer than 3s; kube-scheduler waits meanwhile.",
    ),
    AlertCase(
        "DRAExtenderSearchesRefused",
        "20m",
        one("search_refusals_total", "0+1x30", 'pod_namespace="team-a"'),
        one("search_refusals_total", "0x10 1+0.1x30", 'pod_namespace="team-a"'),
        "Searches for pods of team-a were denied more time 15 times in 15 minutes.",
        {"pod_namespace": "team-a"},
    ),
    AlertCase(
        "DRAExtenderCertificateExpiring",
        "30m",
        one("certificate_expiration_timestamp_seconds", "88200x40", 'certificate="server"'),
        # Far away; and none at all.
        one("certificate_expiration_timestamp_seconds", "700000x40", 'certificate="server"')
        | one("certificate_expiration_timestamp_seconds", "0x40", 'certificate="none"'),
        "The certificate server of dra-extender-5d9c7b8f6-x2x7q expires in 1d 0h 0m 0s.",
        {**INSTANCE, "namespace": "dra-extender", "certificate": "server"},
    ),
)
