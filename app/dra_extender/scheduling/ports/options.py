"""The options of the use cases: what settings and tests may change of them."""

from dataclasses import dataclass
from enum import StrEnum

from dra_extender.cel.environment import LATEST, Release
from dra_extender.ledger.pod_groups import GroupEntryPolicy


class DevicesBesideCounters(StrEnum):
    """Devices that a slice has beside its counter sets count always, never, or (AUTO) where the API server behaves as 1.34."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class YieldPolicy(StrEnum):
    """The treatment, before the Binding, of an allocation of ours whose device a claim of another scheduler has, too.

    CLEAR releases it at once: the other scheduler may then give the device to a second pod of its own (see `ledger.guards`).
    GUARD keeps it while a pod of another scheduler is pending that could be that second pod; then a guard claim replaces it.
    WAIT keeps it until the other allocation has ended.
    """

    CLEAR = "clear"
    GUARD = "guard"
    WAIT = "wait"


class PlacementPolicy(StrEnum):
    """The order in which feasible nodes and devices are preferred.

    PRESERVE: those whose loss costs the pods that are expected least.  UPSTREAM: the first devices of a node in their order; nodes
    by counter sets that are in use already.
    """

    PRESERVE = "preserve"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the use cases; times in seconds.  `SchedulingSettings` has equal defaults, and the bounds.

    The weights are those of the score terms of a node; 0 leaves a term out.
    """

    offered_nodes: int = 4
    hold_seconds: float = 30.0
    hold_wait_seconds: float = 0.05
    filter_budget_seconds: float = 4.0
    search_slice_seconds: float = 0.02
    search_burst_seconds: float = 0.5
    search_namespace_share: float = 0.1
    search_share: float = 0.3
    search_alone_share: float = 0.5
    binding_timeout_seconds: float = 600.0
    device_backoff_seconds: float = 30.0
    watch_lag_seconds: float = 10.0
    shared_claim_wait_seconds: float = 30.0
    new_claim_wait_seconds: float = 1.0
    wake_delay_seconds: float = 0.05
    wake_interval_seconds: float = 0.25
    reclaim_enabled: bool = True
    reclaim_grace_seconds: float = 30.0
    reclaim_unfit_seconds: float = 0.5
    reclaim_interval_seconds: float = 5.0
    reclaim_pause_seconds: float = 0.05
    group_claims_enabled: bool = False
    group_claims_grace_seconds: float = 5.0
    field_manager: str = "dra-extender"
    own_namespace: str = "dra-extender"
    yield_policy: YieldPolicy = YieldPolicy.GUARD
    scheduler_names: tuple[str, ...] = ()
    result_cache_entries: int = 200_000
    extended_resources: bool = True
    selector_cache_bytes: int = 64 * 2**20
    rewrite_attribute_suffixes: bool = False
    devices_beside_counters: DevicesBesideCounters = DevicesBesideCounters.AUTO
    ready_devices_first: bool = True
    placement: PlacementPolicy = PlacementPolicy.PRESERVE
    binding_conditions: bool = True
    reserve_for_pod_groups: GroupEntryPolicy = GroupEntryPolicy.AUTO
    pod_group_claims: bool = True
    pod_group_trial_seconds: float = 60.0
    selector_libraries: Release = LATEST
    alternatives_weight: int = 4
    readiness_weight: int = 2
    packing_weight: int = 1
    alignment_weight: int = 2
