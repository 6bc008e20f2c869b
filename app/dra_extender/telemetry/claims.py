"""Metrics of ResourceClaims: writes, claims of PodGroups, claims in memory, orphans."""

from dra_extender.telemetry.declaration import MetricGroup, counter, plain_counter, plain_gauge


class ClaimMetrics(MetricGroup):
    """See `metrics.Metrics`."""

    _writes = counter("claim_writes", "Writes of ResourceClaims by step and outcome", "step", "outcome")
    _group_claims = counter(
        "group_claims",
        "What the controller of PodGroup claims did (docs/workloads.md), by step: make, record, tell (a member), withdraw, let_go "
        "(a PodGroup), and outcome: done, changed (looked at again), failed",
        "step",
        "outcome",
        limit=16,
    )
    _group_trials = counter(
        "group_trials",
        "Pods bound with nothing but the reservation of their PodGroup (docs/workloads.md), by outcome: proven (the kubelet starts "
        "such pods), outdated (started, but the node has rebooted or its kubelet has another version since), unable (not started "
        "in time, reserved by itself then), full (the same, without room for that)",
        "outcome",
        limit=8,
    )
    _group_claims_refused = plain_gauge(
        "group_claims_refused",
        "1 after the controller of PodGroup claims has stopped because another one is at work, else 0",
    )
    _kept = plain_gauge("claims_kept_bytes", "Bytes that are kept of ResourceClaims, by estimate")
    _short = plain_gauge(
        "claims_kept_short",
        "ResourceClaims without their specs in memory, because those of their namespace take more than "
        "`scheduling.namespace_claim_bytes`",
    )
    _read_again = counter(
        "claims_read_again",
        "Reads of such claims when a decision needed their specs, by outcome: ok, gone, changed (another one than the watch has "
        "brought, or too large), failed (no answer)",
        "outcome",
        limit=4,
    )
    _contradicted = plain_gauge(
        "contradicted_snapshots",
        "Claims whose compatibility groups in the allocation, which count, differ from those in our annotation",
    )
    _orphaned = plain_gauge(
        "orphaned_allocations", "Allocations of deleted claims that count because pods still use their devices"
    )
    _deleted_in_use = plain_counter("claims_deleted_in_use", "Claims that were deleted while pods used their devices")
    _stripped = counter(
        "stripped_fields",
        "Written fields that the API server did not keep (a feature gate there is off)",
        "field",
    )

    def claim_write(self, step: str, outcome: str) -> None:
        """A ResourceClaim was written, or was not."""
        self._writes.of(step, outcome).inc()

    def group_claim(self, step: str, outcome: str) -> None:
        """The controller of PodGroup claims did something, or could not."""
        self._group_claims.of(step, outcome).inc()

    def group_trial(self, outcome: str) -> None:
        """A pod that is reserved through its PodGroup alone has shown whether its kubelet starts it."""
        self._group_trials.of(outcome).inc()

    def group_claims_refused(self, *, refused: bool) -> None:
        """Whether that controller has stopped because of another one."""
        self._group_claims_refused.set(1 if refused else 0)

    def claims_kept(self, size: int, short: int) -> None:
        """How many bytes are kept of claims, and of how many claims the specs are not."""
        self._kept.set(size)
        self._short.set(short)

    def claim_read_again(self, outcome: str) -> None:
        """A claim whose spec is not kept in memory was read, or could not be."""
        self._read_again.of(outcome).inc()

    def contradicted(self, claims: int) -> None:
        """How many claims are allocated whose two snapshots of groups differ."""
        self._contradicted.set(claims)

    def orphaned(self, allocations: int) -> None:
        """How many allocations of deleted claims are counted because pods still use their devices."""
        self._orphaned.set(allocations)

    def claim_deleted_in_use(self) -> None:
        """A claim was deleted while pods use its devices."""
        self._deleted_in_use.inc()

    def stripped(self, field: str) -> None:
        """The API server did not keep a field that was written."""
        self._stripped.of(field).inc()
