"""Metrics of the ResourceClaims that decisions read and write."""

from dra_extender.telemetry.declaration import MetricGroup, counter, plain_counter, plain_gauge


class ClaimMetrics(MetricGroup):
    """Writes of claims, claims of PodGroups, claims in memory, orphans."""

    claim_writes = counter("Writes of ResourceClaims by step and outcome", "step", "outcome")
    group_claims = counter(
        "What the controller of PodGroup claims did (docs/concepts/workloads.md), by step: make, record, tell (a member), "
        "withdraw, let_go (a PodGroup), and outcome: done, changed (looked at again), failed",
        "step",
        "outcome",
        limit=16,
    )
    group_trials = counter(
        "Pods bound with nothing but the reservation of their PodGroup (docs/concepts/workloads.md), by outcome: proven (the "
        "kubelet starts such pods), outdated (started, but the node has rebooted or its kubelet has another version since), unable "
        "(not started in time, reserved by itself then), full (the same, without room for that)",
        "outcome",
        limit=8,
    )
    group_claims_refused = plain_gauge(
        "1 after the controller of PodGroup claims has stopped because another one is at work, else 0",
    )
    claims_kept_bytes = plain_gauge("Bytes that are kept of ResourceClaims, by estimate")
    claims_kept_short = plain_gauge(
        "ResourceClaims without their specs in memory, because those of their namespace take more than "
        "`scheduling.namespace_claim_bytes`",
    )
    claims_read_again = counter(
        "Reads of such claims when a decision needed their specs, by outcome: ok, gone, changed (another one than the watch has "
        "brought, or too large), failed (no answer)",
        "outcome",
        limit=4,
    )
    contradicted_snapshots = plain_gauge(
        "Claims whose compatibility groups in the allocation, which count, differ from those in our annotation",
    )
    orphaned_allocations = plain_gauge("Allocations of deleted claims that count because pods still use their devices")
    claims_deleted_in_use = plain_counter("Claims that were deleted while pods used their devices")
    stripped_fields = counter(
        "Written fields that the API server did not keep (a feature gate there is off)",
        "field",
    )
