"""The settings of the service: command line over environment over file over defaults.

Environment variables are DRA_EXTENDER_ + group + __ + setting, e.g. DRA_EXTENDER_SERVER__PORT.  The double underscore keeps clear
of the variables that Kubernetes sets in every pod for a Service named dra-extender (DRA_EXTENDER_PORT and others).
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from dra_extender.allocator.state.features import Features
from dra_extender.cel.library.environment import LATEST, Release
from dra_extender.config.timeouts import BIND_MARGIN_SECONDS, FILTER_HTTP_SECONDS, WRITE_SECONDS
from dra_extender.ledger.index.pod_groups import GroupReservation
from dra_extender.ledger.state.kept_claims import NAMESPACE_BYTES
from dra_extender.manifests.yaml_text import YamlError, read_yaml
from dra_extender.scheduling.ports.options import DevicesBesideCounters, Options, YieldPolicy
from dra_extender.telemetry.logging import LogFormat, LogLevel

ENV_PREFIX: Final = "DRA_EXTENDER_"
_DELIMITER: Final = "__"
_ON: Final = Features()
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class InvalidSettingsError(ValueError):
    """A setting cannot be used; the message names each such setting and what was expected."""


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServerSettings(_Group):
    """The HTTP server that kube-scheduler calls."""

    host: str = Field("0.0.0.0", min_length=1, description="Address to listen on")  # noqa: S104 - kube-scheduler calls over the pod network
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 chooses a free one")
    body_limit_bytes: int = Field(
        8 * 1024 * 1024, ge=1024, le=1024**3, description="Largest request body accepted, in bytes"
    )
    in_flight_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024,
        le=1024**4,
        description="Most bytes of requests that are not answered and of answers that are not sent, over all callers",
    )
    receive_seconds: float = Field(
        10.0,
        ge=1,
        le=3600,
        description="Seconds for sending a request, or for taking an answer; waiting for one is not limited",
    )
    connections: int = Field(
        4096,
        ge=16,
        le=65536,
        description="Most connections; fewer where the process may not open so many files."
        " Whoever has most of them loses the one that has been idle for longest",
    )
    keep_alive_seconds: int = Field(
        120,
        gt=90,
        le=3600,
        description="Idle connections are closed after this many seconds; must exceed the 90 s for which Go keeps them",
    )
    stop_seconds: int = Field(
        25, ge=1, le=3600, description="On stop, seconds until calls that are still unanswered are given up"
    )

    @model_validator(mode="after")
    def _room_for_bodies(self) -> Self:
        if self.in_flight_bytes < 2 * self.body_limit_bytes:
            raise ValueError(
                f"in_flight_bytes ({self.in_flight_bytes}) must be at least twice body_limit_bytes ({self.body_limit_bytes}), "
                "or one caller could keep all others out"
            )
        return self


class ClusterSettings(_Group):
    """The API server."""

    kubeconfig: Path | None = Field(
        None, description="kubeconfig file; default: $KUBECONFIG, else the pod's service account, else ~/.kube/config"
    )
    context: str | None = Field(None, min_length=1, description="Context of the kubeconfig; default: its current one")
    patience_seconds: float = Field(
        60.0,
        ge=0,
        le=3600,
        description="At start, seconds for which an API server that does not answer, or refuses with 403, is waited for",
    )


class LeaderElectionSettings(_Group):
    """Several replicas, of which one acts at a time (docs/high-availability.md)."""

    enabled: bool = Field(False, description="Act only while this replica holds the Lease")
    lease_name: str = Field("dra-extender", min_length=1, max_length=253, description="Name of the Lease")
    namespace: str | None = Field(
        None, min_length=1, max_length=63, description="Namespace of Lease and Service; default: the pod's own"
    )
    duration_seconds: int = Field(
        15, ge=1, le=3600, description="Seconds without renewal after which another replica may lead"
    )
    renew_seconds: float = Field(
        10.0, gt=0, le=3600, description="Seconds without successful renewal after which the leader stops to act"
    )
    retry_seconds: float = Field(2.0, gt=0, le=600, description="Seconds between two tries to get or renew the Lease")
    follow_lease: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="Lease of kube-schedulers that each call the replica in their own pod: lead beside the one that holds it",
    )
    host: str | None = Field(
        None, min_length=1, max_length=253, description="Name of this replica's pod; default: the host name"
    )
    service: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="Service without selector that is pointed at the leader; default: none is",
    )
    address: IPvAnyAddress | None = Field(
        None, description="Address of this replica (its pod's), for that Service's endpoint"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.duration_seconds <= self.renew_seconds:
            raise ValueError(
                f"duration_seconds ({self.duration_seconds}) must be greater than renew_seconds ({self.renew_seconds:g}), "
                "or two replicas would act at once"
            )
        if self.renew_seconds < 2 * self.retry_seconds:
            raise ValueError(
                f"renew_seconds ({self.renew_seconds:g}) must be at least twice retry_seconds ({self.retry_seconds:g}), "
                "or one failed renewal would end the term"
            )
        if self.service is not None and self.address is None:
            raise ValueError("service is set, but address is not: the Service could not be pointed anywhere")
        return self

    def known_namespace(self) -> str | None:
        """The namespace of this service: the one that is set, else the pod's own; None where there is neither."""
        if self.namespace is not None:
            return self.namespace
        try:
            return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
        except OSError:
            return None


class SchedulingSettings(_Group):
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


class FeatureSettings(_Group):
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


class LogSettings(_Group):
    """Log lines on standard error."""

    format: LogFormat = Field(LogFormat.JSON, description="json for machines, text for people")
    level: LogLevel = Field(LogLevel.INFO, description="Messages below this level are left out")


class Settings(BaseSettings):
    """All settings of the service.  Constructing it reads no environment; `load_settings` does."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENV_PREFIX, env_nested_delimiter=_DELIMITER
    )

    server: ServerSettings = ServerSettings()
    cluster: ClusterSettings = ClusterSettings()
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    features: FeatureSettings = FeatureSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the hook's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is passed, and nothing else."""
        return (init_settings,)


def load_settings(file: Path | None = None, flags: Mapping[str, Mapping[str, Any]] | None = None) -> Settings:
    """The settings in force; `flags` (group -> setting -> value) win over the environment, which wins over the YAML file.

    Raises:
        BadSettings: the file cannot be read, or a setting is unknown or out of bounds; each is named with what was expected.
    """
    given = _merged(_from_file(file) if file else {}, _from_environment())
    given = _merged(given, flags or {})
    try:
        return Settings(**given)
    except ValidationError as problem:
        raise InvalidSettingsError("; ".join(_sentence(each) for each in problem.errors())) from problem


def _from_environment() -> Mapping[str, Any]:
    for name in os.environ:
        group, delimiter, _ = name.upper().removeprefix(ENV_PREFIX).partition(_DELIMITER)
        if name.upper().startswith(ENV_PREFIX) and delimiter and group.lower() not in Settings.model_fields:
            raise InvalidSettingsError(f"environment variable {name}: there is no group {group.lower()!r}; {_groups()}")
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as problem:
        raise InvalidSettingsError(
            f"environment variables {ENV_PREFIX}*: {problem}; expected JSON for a whole group"
        ) from problem


def _from_file(path: Path) -> Mapping[str, Any]:
    try:
        documents = read_yaml(path)
    except OSError as problem:
        raise InvalidSettingsError(f"settings file {path}: {problem.strerror}") from problem
    except YamlError as problem:
        raise InvalidSettingsError(f"settings file {path}: {problem}") from problem
    if not documents:
        return {}
    if len(documents) > 1:
        raise InvalidSettingsError(f"settings file {path}: expected YAML: one document, found {len(documents)}")
    loaded = documents[0]
    if not isinstance(loaded, dict):
        raise InvalidSettingsError(f"settings file {path}: expected a mapping of groups; {_groups()}")
    for key in loaded:
        if key not in Settings.model_fields:
            raise InvalidSettingsError(f"settings file {path}: there is no group {key!r}; {_groups()}")
    return {key: {} if value is None else value for key, value in loaded.items()}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def _sentence(problem: ErrorDetails) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    variable = ENV_PREFIX + _DELIMITER.join(str(part).upper() for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"setting {name} ({variable}) does not exist"
    if problem["type"] == "value_error":
        return f"setting {name} ({variable}): {problem['ctx']['error']}"
    text = problem["msg"].removeprefix("Input should be ")
    return f"setting {name} ({variable}): expected {text}, got {problem['input']!r}"


def _groups() -> str:
    return f"the groups are {', '.join(Settings.model_fields)}"
