"""Settings of the decisions: how pods are placed, and which optional parts of DRA are in use."""

from dataclasses import fields
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from dra_extender.allocator.state.features import Features
from dra_extender.cel.library.environment import LATEST, Release
from dra_extender.config.service_settings import SettingsGroup
from dra_extender.config.timeouts import BIND_MARGIN_SECONDS, FILTER_HTTP_SECONDS, WRITE_SECONDS
from dra_extender.ledger.index.pod_groups import GroupReservation
from dra_extender.ledger.state.kept_claims import NAMESPACE_BYTES
from dra_extender.scheduling.ports.options import DevicesBesideCounters, Options, YieldPolicy

_ON: Final = Features()


class SchedulingSettings(SettingsGroup):
    """How pods are placed."""

    offered_nodes: int = Field(
        8,
        ge=1,
        le=1000,
        description="A pod with claims is offered at most this many nodes, on which devices are held for it",
    )
    hold_seconds: float = Field(30.0, ge=1, le=3600, description="Seconds after which a hold without nomination ends")
    settle_wait_seconds: float = Field(
        0.05, ge=0, le=1, description="Seconds to wait for the bind of the pod before, when only its hold is in the way"
    )
    binding_timeout_seconds: float = Field(
        600.0,
        ge=1,
        le=86400,
        description="Seconds to wait for a device's binding conditions; bind's httpTimeout must be longer",
    )
    device_cool_down_seconds: float = Field(
        30.0,
        ge=0,
        le=86400,
        description="Seconds for which a pod leaves a device alone that failed or took too long to become ready for it",
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
        description="Seconds that any call may search at a stretch; everything else goes on between two slices",
    )
    selector_cache_bytes: int = Field(
        64 * 2**20,
        ge=32 * 2**20,
        le=2**32,
        description="Bytes for what is kept of selectors: compiled expressions, patterns, what claims ask for, verdicts",
    )
    namespace_claim_bytes: int = Field(
        NAMESPACE_BYTES,
        ge=0,
        le=2**40,
        description="Bytes kept of the claims of one namespace; the specs of what goes beyond are read again when they are"
        " needed; 0: no limit",
    )
    search_burst_seconds: float = Field(
        0.5,
        gt=0,
        le=60,
        description="Most seconds of searching in further slices that are saved up, of each namespace and of all together",
    )
    search_namespace_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Share of the time that further slices for pods of one namespace may take while pods of others wait",
    )
    search_share: float = Field(0.3, gt=0, le=1, description="The same for further slices of all namespaces together")
    search_alone_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="The same while no pods but those of one namespace wait; a pod that waits alone may search all the time",
    )
    watch_lag_seconds: float = Field(
        10.0, gt=0, le=600, description="Seconds to wait until the watch has delivered a claim that was written"
    )
    shared_claim_wait_seconds: float = Field(
        30.0, gt=0, le=600, description="Seconds that a bind waits for another one that is writing a shared claim"
    )
    yield_policy: YieldPolicy = Field(
        YieldPolicy.GUARD,
        description="What happens, before the Binding, to an allocation of ours that overlaps one of another scheduler: it is"
        " cleared (clear), or cleared and replaced by a guard claim (guard), or it stays and the pod waits (wait)",
    )
    new_claim_wait_seconds: float = Field(
        1.0,
        ge=0,
        le=4,
        description="Seconds that a preempt call waits for a claim which is just being made from a template",
    )
    wake_delay_seconds: float = Field(
        0.05, ge=0, le=60, description="Seconds by which waking rejected pods is put off, to catch further changes"
    )
    wake_interval_seconds: float = Field(0.25, ge=0.01, le=60, description="Least seconds between two wake-ups")
    reclaim_enabled: bool = Field(
        True, description="Give back reservations and allocations of ours that nobody uses (docs/reclaim.md)"
    )
    reclaim_grace_seconds: float = Field(
        30.0,
        ge=0,
        le=86400,
        description="Seconds for which something must have been unused before it is given back",
    )
    reclaim_unfit_seconds: float = Field(
        0.5,
        ge=0,
        le=86400,
        description="The same where the devices failed, or their nodes do not suit the pod that waits for them",
    )
    reclaim_interval_seconds: float = Field(
        5.0, ge=0.05, le=3600, description="Seconds between two looks at all claims for something unused"
    )
    reclaim_pause_seconds: float = Field(
        0.05, ge=0, le=3600, description="Least seconds between two claims that are given back"
    )
    remembered_answers: int = Field(200_000, ge=0, description="Most search results kept for later calls")
    scheduler_config: Path | None = Field(
        None,
        description="The configuration of the kube-scheduler that calls; the start is refused if the two do not fit",
    )
    policy_file: Path | None = Field(
        None, description="Policy for devices in YAML (docs/policy.md); one that does not exist yet means no policy"
    )
    policy_check_seconds: float = Field(
        5.0, ge=0.05, le=3600, description="Seconds between two looks at the policy file"
    )
    devices_beside_counters: DevicesBesideCounters = Field(
        DevicesBesideCounters.AUTO,
        description="Devices that a slice has beside its counter sets, as in Kubernetes 1.34: serve them (always), or take the "
        "slice for its counters alone, as later releases do (never); auto: as the API server's release has it",
    )
    ready_devices_first: bool = Field(
        True,
        description="Within a pool, prefer devices without binding conditions; off: in the order of the pool, as upstream",
    )
    rewrite_attribute_suffixes: bool = Field(
        False,
        description="Read `.string`, `.int` and unqualified names in selectors as their author meant them; upstream refuses them",
    )
    reserve_for_pod_groups: GroupReservation = Field(
        GroupReservation.AUTO,
        description="Reserve claims of PodGroups for the group (always), for each pod (never), or for up to 200 pods and beyond"
        " that for the group on nodes whose kubelets are known to accept it (auto); kubelets without DRAWorkloadResourceClaims"
        " refuse pods that are reserved through their group alone",
    )
    pod_group_trial_seconds: float = Field(
        60.0,
        ge=1,
        le=3600,
        description="Seconds within which a pod that is reserved through its PodGroup alone must start; otherwise it gets a"
        " reservation of its own, and its node counts as one that does not start such pods",
    )
    group_claims_enabled: bool = Field(
        False,
        description="Make the claims that PodGroups have from templates, where kube-controller-manager does not (its gate"
        " DRAWorkloadResourceClaims is off); never beside another controller that does (docs/workloads.md)",
    )
    group_claims_grace_seconds: float = Field(
        5.0,
        ge=1,
        le=3600,
        description="Seconds that another controller has for a PodGroup before ours makes its claims",
    )
    selector_libraries: Release = Field(
        LATEST, description="Kubernetes release whose CEL libraries selectors may use and are evaluated with"
    )
    alternatives_weight: int = Field(
        4,
        ge=0,
        le=100,
        description="How much it counts for a node that early alternatives of firstAvailable requests are chosen there; 0: nothing",
    )
    readiness_weight: int = Field(
        2,
        ge=0,
        le=100,
        description="How much it counts for a node that its devices need no wait for binding conditions; 0: nothing",
    )
    packing_weight: int = Field(
        1,
        ge=0,
        le=100,
        description="How much it counts for a node that partitions come next to other partitions; 0: nothing",
    )
    field_manager: str = Field(
        "dra-extender",
        min_length=1,
        max_length=128,
        description="Name under which claims are written and recognised as ours",
    )

    scheduler_names: tuple[str, ...] = Field(
        (),
        max_length=64,
        description="Names of the kube-scheduler profiles that call (`spec.schedulerName`): no pod of another scheduler is placed."
        " Empty: those in `scheduler_config`, and without it pods of any",
    )

    @model_validator(mode="after")
    def _within_the_margin(self) -> Self:
        waits = self.shared_claim_wait_seconds + self.watch_lag_seconds
        most = BIND_MARGIN_SECONDS - WRITE_SECONDS
        if waits > most:
            raise ValueError(
                f"shared_claim_wait_seconds and watch_lag_seconds may be {most:g} s together, not {waits:g}: bind's httpTimeout is "
                f"{BIND_MARGIN_SECONDS:g} s longer than the binding timeout, and a write may take {WRITE_SECONDS:g} s"
            )
        return self

    def options(self, *, extended_resources: bool = True, pod_group_claims: bool = True) -> Options:
        """What the use cases are given of these, and of the features that are theirs."""
        given = {
            each.name: getattr(self, each.name) for each in fields(Options) if each.name in type(self).model_fields
        }
        return Options(**given, extended_resources=extended_resources, pod_group_claims=pod_group_claims)


class FeatureSettings(SettingsGroup):
    """Optional parts of DRA; off means what the Kubernetes feature gate means when it is off."""

    admin_access: bool = Field(_ON.admin_access, description="DRAAdminAccess: requests with admin access")
    compatibility_groups: bool = Field(
        _ON.compatibility_groups, description="DRADeviceCompatibilityGroups: devices that only some others may join"
    )
    consumable_capacity: bool = Field(
        _ON.consumable_capacity, description="DRAConsumableCapacity: devices shared by capacity"
    )
    derived_attributes: bool = Field(_ON.derived_attributes, description="DRADerivedAttributes: computed attributes")
    device_binding_and_status: bool = Field(
        _ON.device_binding_and_status,
        description="DRADeviceBindingConditions: wait for devices to be ready before binding; off: such devices are like others",
    )
    device_taints: bool = Field(_ON.device_taints, description="DRADeviceTaints: taints and tolerations of devices")
    extended_resources: bool = Field(
        True,
        description="DRAExtendedResource: claims for extended resources that a device class backs",
    )
    fractional_capacity_range: bool = Field(
        _ON.fractional_capacity_range, description="DRAFractionalCapacityRange: capacity steps below one"
    )
    list_type_attributes: bool = Field(
        _ON.list_type_attributes, description="DRAListTypeAttributes: attributes that are lists"
    )
    optional_node_operations: bool = Field(
        _ON.optional_node_operations,
        description="DRAOptionalNodeOperations: devices that need nothing done on the node",
    )
    partitionable_devices: bool = Field(
        _ON.partitionable_devices, description="DRAPartitionableDevices: devices that share counters"
    )
    pod_group_claims: bool = Field(
        True, description="DRAWorkloadResourceClaims: claims of PodGroups, reserved for the group"
    )
    prioritized_list: bool = Field(_ON.prioritized_list, description="DRAPrioritizedList: requests with alternatives")

    def features(self) -> Features:
        """The switches of the allocator."""
        return Features(**self.model_dump(exclude={"extended_resources", "pod_group_claims"}))
