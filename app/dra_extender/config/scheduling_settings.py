"""Settings of the decisions: how pods are placed, which optional parts of DRA are in use, and the time limits that follow."""

from dataclasses import fields
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from dra_extender.allocator.state.features import Features
from dra_extender.cel.environment import LATEST, Release
from dra_extender.config.service_settings import SettingsGroup
from dra_extender.ledger.claim_record import NAMESPACE_BYTES
from dra_extender.ledger.pod_groups import GroupEntryPolicy
from dra_extender.scheduling.ports.options import (
    DevicesBesideCounters,
    Options,
    PlacementPolicy,
    YieldPolicy,
)

FILTER_HTTP_SECONDS: Final = 5.0
"""The `httpTimeout` of the stanza with filter, prioritize and preempt: the scheduling loop stands still for as long."""
BIND_MARGIN_SECONDS: Final = 60.0
"""By how much the `httpTimeout` of the stanza with bind exceeds the binding timeout, for everything else a bind does."""
WRITE_SECONDS: Final = 15.0
"""The longest that one write to the API server may take."""
_OFFERED_NODES: Final = {PlacementPolicy.UPSTREAM: 8, PlacementPolicy.PRESERVE: 4}
_ON: Final = Features()


def bind_http_seconds(binding_timeout: float) -> float:
    """Return the `httpTimeout` of the stanza with bind, in seconds, for a binding timeout in seconds."""
    return binding_timeout + BIND_MARGIN_SECONDS


class SchedulingSettings(SettingsGroup):
    """How pods are placed."""

    offered_nodes: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="Most feasible nodes that filter returns for a pod with claims; devices are held for the pod"
        " on each of them.  Default: 4 where `placement` is preserve, otherwise 8",
    )
    hold_seconds: float = Field(
        30.0, ge=1, le=3600, description="Seconds after which a hold of a pod without a nominated node ends"
    )
    hold_wait_seconds: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Seconds for which filter waits for the bind of another pod when only that pod's hold is in"
        " the way",
    )
    binding_timeout_seconds: float = Field(
        600.0,
        ge=1,
        le=86400,
        description="Seconds to wait for a device's binding conditions; bind's httpTimeout must be longer",
    )
    device_backoff_seconds: float = Field(
        30.0,
        ge=0,
        le=86400,
        description="Seconds of backoff for a device that failed, or did not become ready in time, for a pod:"
        " the pod does not get it meanwhile",
    )
    filter_budget_seconds: float = Field(
        4.0,
        gt=0,
        lt=FILTER_HTTP_SECONDS,
        description="Seconds that one filter call may search; must be less than filter's httpTimeout (5 s)",
    )
    search_slice_seconds: float = Field(
        0.02,
        gt=0,
        le=0.1,
        description="Seconds that a call may search without a pause; other calls run between two such slices",
    )
    selector_cache_bytes: int = Field(
        64 * 2**20,
        ge=32 * 2**20,
        le=2**32,
        description="Bytes of the caches for selectors: compiled expressions, patterns, requests of claims,"
        " results on devices",
    )
    namespace_claim_bytes: int = Field(
        NAMESPACE_BYTES,
        ge=0,
        le=2**40,
        description="Bytes of claims that are kept in memory for one namespace; the specs of further claims are"
        " read from the API server when they are needed; 0: no limit",
    )
    search_burst_seconds: float = Field(
        0.5,
        gt=0,
        le=60,
        description="Most seconds of further slices that accumulate unused, for each namespace and for all together",
    )
    search_namespace_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Share of the time for further slices of one namespace while pods of other namespaces wait",
    )
    search_share: float = Field(
        0.3, gt=0, le=1, description="Share of the time for further slices of all namespaces together"
    )
    search_alone_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the time for further slices while only pods of one namespace wait; a single"
        " waiting pod is not limited",
    )
    watch_lag_seconds: float = Field(
        10.0, gt=0, le=600, description="Seconds to wait until the watch delivers a claim that this service has written"
    )
    shared_claim_wait_seconds: float = Field(
        30.0, gt=0, le=600, description="Seconds for which a bind waits for another bind that writes the same claim"
    )
    yield_policy: YieldPolicy = Field(
        YieldPolicy.GUARD,
        description="What to do before the Binding if our allocation overlaps that of another scheduler: clear"
        " ours (clear), clear it"
        " and keep the device with a guard claim (guard), or keep ours and let the pod wait (wait)",
    )
    new_claim_wait_seconds: float = Field(
        1.0,
        ge=0,
        le=4,
        description="Seconds for which a filter call waits for a claim that exists and that the watch has not delivered yet, and"
        " a preempt call for a claim that is being created from a template; 0: neither waits",
    )
    wake_delay_seconds: float = Field(
        0.05,
        ge=0,
        le=60,
        description="Seconds by which the requeue of rejected pods is delayed, so that further changes join it",
    )
    wake_interval_seconds: float = Field(
        0.25, ge=0.01, le=60, description="Least seconds between two requeues of rejected pods"
    )
    reclaim_enabled: bool = Field(
        True, description="Remove our reservations and allocations that no pod uses (docs/concepts/reclaim.md)"
    )
    reclaim_grace_seconds: float = Field(
        30.0,
        ge=0,
        le=86400,
        description="Seconds for which a reservation or an allocation must have been unused before it is removed",
    )
    reclaim_unfit_seconds: float = Field(
        0.5,
        ge=0,
        le=86400,
        description="The same where devices failed, or where the pod that waits for them does not fit on their nodes",
    )
    reclaim_interval_seconds: float = Field(
        5.0,
        ge=0.05,
        le=3600,
        description="Seconds between two scans of all claims for unused reservations and allocations",
    )
    reclaim_pause_seconds: float = Field(0.05, ge=0, le=3600, description="Least seconds between two removals")
    result_cache_entries: int = Field(200_000, ge=0, description="Most search results that are cached for later calls")
    scheduler_config: Path | None = Field(
        None,
        description="Configuration file of the kube-scheduler that calls; the service does not start if it"
        " contradicts the settings",
    )
    policy_file: Path | None = Field(
        None,
        description="Device policy in YAML (docs/concepts/policy.md); while the file does not exist, there is no policy",
    )
    policy_check_seconds: float = Field(
        5.0, ge=0.05, le=3600, description="Seconds between two checks whether the policy file has changed"
    )
    devices_beside_counters: DevicesBesideCounters = Field(
        DevicesBesideCounters.AUTO,
        description="Devices in a slice that also has counter sets, which Kubernetes 1.34 permits: serve them"
        " (always), ignore them as later releases do (never), or do as the API server's release does (auto)",
    )
    ready_devices_first: bool = Field(
        True,
        description="Prefer devices without binding conditions within a pool; off: use the order of the pool, as"
        " kube-scheduler does",
    )
    placement: PlacementPolicy = Field(
        PlacementPolicy.PRESERVE,
        description="Which of the nodes and devices that fit come first: those after which most of the expected pods still"
        " fit (preserve, docs/concepts/scoring.md), or the first devices in their order, as kube-scheduler takes them"
        " (upstream)",
    )
    rewrite_attribute_suffixes: bool = Field(
        False,
        description="Accept `.string`, `.int` and unqualified attribute names in selectors; kube-scheduler"
        " refuses them",
    )
    reserve_for_pod_groups: GroupEntryPolicy = Field(
        GroupEntryPolicy.AUTO,
        description="Reserve claims of PodGroups for the group (always), for each pod (never), or for up to 200"
        " pods, and further pods through the group on nodes whose kubelets accept that (auto); kubelets without"
        " DRAWorkloadResourceClaims do not start pods that are reserved only through their group",
    )
    pod_group_trial_seconds: float = Field(
        60.0,
        ge=1,
        le=3600,
        description="Seconds within which a pod that is reserved only through its PodGroup must start; after"
        " that it gets a reservation of its own, and its node counts as one that does not start such pods",
    )
    group_claims_enabled: bool = Field(
        False,
        description="Create claims from the templates of PodGroups where kube-controller-manager does not (its gate"
        " DRAWorkloadResourceClaims is off); must be off where another controller creates them (docs/concepts/workloads.md)",
    )
    group_claims_grace_seconds: float = Field(
        5.0,
        ge=1,
        le=3600,
        description="Seconds for which this service leaves the claims of a new PodGroup to another controller",
    )
    selector_libraries: Release = Field(LATEST, description="Kubernetes release whose CEL libraries evaluate selectors")
    alternatives_weight: int = Field(
        4,
        ge=0,
        le=100,
        description="Weight of early alternatives of firstAvailable requests in the score of a node; 0: none",
    )
    readiness_weight: int = Field(
        2,
        ge=0,
        le=100,
        description="Weight of devices without binding conditions in the score of a node; 0: none",
    )
    packing_weight: int = Field(
        1,
        ge=0,
        le=100,
        description="Weight of partitions beside partitions that are in use in the score of a node; 0: none",
    )
    alignment_weight: int = Field(
        2,
        ge=0,
        le=100,
        description="Weight of devices that agree in the attributes that a claim or class prefers in the score of a node; 0: none",
    )
    field_manager: str = Field(
        "dra-extender",
        min_length=1,
        max_length=128,
        description="Field manager of our writes; also distinguishes our allocations from those of other schedulers",
    )

    scheduler_names: tuple[str, ...] = Field(
        (),
        max_length=64,
        description="Names of the kube-scheduler profiles that call; pods with another `spec.schedulerName` are"
        " not placed."
        " Empty: the profiles in `scheduler_config`; without that, pods of all schedulers are placed",
    )

    @model_validator(mode="after")
    def _within_the_margin(self) -> Self:
        waits = self.shared_claim_wait_seconds + self.watch_lag_seconds
        limit = BIND_MARGIN_SECONDS - WRITE_SECONDS
        if waits > limit:
            raise ValueError(
                f"shared_claim_wait_seconds and watch_lag_seconds may be {limit:g} s together, not {waits:g}: bind's "
                f"httpTimeout is {BIND_MARGIN_SECONDS:g} s longer than the binding timeout, and a write may take "
                f"{WRITE_SECONDS:g} s"
            )
        return self

    def options(self, *, extended_resources: bool = True, pod_group_claims: bool = True) -> Options:
        """Return the options of the use cases: these settings, and the features that the use cases implement."""
        values = {
            option.name: getattr(self, option.name)
            for option in fields(Options)
            if option.name in type(self).model_fields
        }
        if self.offered_nodes is None:
            values["offered_nodes"] = _OFFERED_NODES[self.placement]
        return Options(**values, extended_resources=extended_resources, pod_group_claims=pod_group_claims)


class FeatureSettings(SettingsGroup):
    """Optional parts of DRA; off has the effect of the Kubernetes feature gate being off."""

    admin_access: bool = Field(_ON.admin_access, description="DRAAdminAccess: requests with admin access")
    compatibility_groups: bool = Field(
        _ON.compatibility_groups,
        description="DRADeviceCompatibilityGroups: devices that share counters only with devices of a common group",
    )
    consumable_capacity: bool = Field(
        _ON.consumable_capacity, description="DRAConsumableCapacity: devices shared by capacity"
    )
    derived_attributes: bool = Field(_ON.derived_attributes, description="DRADerivedAttributes: computed attributes")
    device_binding_and_status: bool = Field(
        _ON.device_binding_and_status,
        description="DRADeviceBindingConditions: wait until devices are ready before binding; off: bind at once",
    )
    device_taints: bool = Field(_ON.device_taints, description="DRADeviceTaints: taints and tolerations of devices")
    extended_resources: bool = Field(
        True,
        description="DRAExtendedResource: claims for extended resources that device classes back",
    )
    fractional_capacity_range: bool = Field(
        _ON.fractional_capacity_range, description="DRAFractionalCapacityRange: capacity steps below one"
    )
    list_type_attributes: bool = Field(
        _ON.list_type_attributes, description="DRAListTypeAttributes: attributes that are lists"
    )
    optional_node_operations: bool = Field(
        _ON.optional_node_operations,
        description="DRAOptionalNodeOperations: devices for which the kubelet skips node operations",
    )
    partitionable_devices: bool = Field(
        _ON.partitionable_devices, description="DRAPartitionableDevices: devices that share counters"
    )
    pod_group_claims: bool = Field(
        True, description="DRAWorkloadResourceClaims: claims of PodGroups, reserved for the group"
    )
    prioritized_list: bool = Field(_ON.prioritized_list, description="DRAPrioritizedList: requests with alternatives")

    def features(self) -> Features:
        """Return the features that the allocator implements."""
        return Features(**self.model_dump(exclude={"extended_resources", "pod_group_claims"}))
