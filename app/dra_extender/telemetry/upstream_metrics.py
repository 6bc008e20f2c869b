"""Metrics that the in-tree plugin DynamicResources and its controller have, under their names and with their labels.

Dashboards and alerts that were made for them work on these, if they do not choose by `job`.  kube-scheduler has none of the values
counted here when it leaves devices to this service, so that nothing is counted twice.  docs/reference/metrics.md has what differs.
"""

from collections.abc import Mapping
from heapq import nlargest
from time import perf_counter
from types import TracebackType
from typing import Final, Self

from prometheus_client import Histogram

from dra_extender.telemetry.declaration import OTHER, Bounded, MetricGroup, counter, gauge, histogram

PLUGIN: Final = "DynamicResources"
SUCCESS: Final = "Success"
UNSCHEDULABLE: Final = "Unschedulable"
ERROR: Final = "Error"
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0, 600.0)
_MOST_PROFILES: Final = 20


class Execution:
    """One execution of an extension point, as a context; `status` is what it ends with unless it raises."""

    __slots__ = ("_began", "_durations", "_extension_point", "status")

    def __init__(self, durations: Bounded[Histogram], extension_point: str) -> None:
        self._durations = durations
        self._extension_point = extension_point
        self.status = SUCCESS

    def __enter__(self) -> Self:
        self._began = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = self.status if kind is None else ERROR
        self._durations.labels(PLUGIN, self._extension_point, status).observe(perf_counter() - self._began)


class UpstreamMetrics(MetricGroup):
    """Metrics under upstream's names."""

    _scheduler_plugin_execution_duration_seconds = histogram(
        "Duration of a call's work, `plugin` DynamicResources, by extension point (Filter, with all nodes of the pod; PreBind, "
        "from the bind call to the Binding; PostFilter) and status (Success, Unschedulable, Error); KEP-5963",
        "plugin",
        "extension_point",
        "status",
        buckets=_SECONDS,
        limit=9,
        prefix="",
    )
    _scheduler_unschedulable_pods = gauge(
        "As `dra_extender_waiting_pods`, by scheduler (`profile`), `plugin` DynamicResources; KEP-4381",
        "plugin",
        "profile",
        limit=_MOST_PROFILES + 1,
        prefix="",
    )
    _dynamic_resource_allocation_resourceclaim_creates = counter(
        "ResourceClaims that this program made, for extended resources or for PodGroups, by status (success, failure), whether "
        "they ask for administrative access, and API group and kind of their owner; KEP-5729",
        "status",
        "admin_access",
        "owner_api_group",
        "owner_api_kind",
        limit=8,
        prefix="",
    )

    def execution(self, extension_point: str) -> Execution:
        """Return the context in which an extension point runs; an exception is its error."""
        return Execution(self._scheduler_plugin_execution_duration_seconds, extension_point)

    def unschedulable(self, pods: Mapping[str, int]) -> None:
        """Set how many pods of each scheduler wait.

        Who creates a pod names its scheduler: those with fewest pods share a value.
        """
        shown = dict(nlargest(_MOST_PROFILES, pods.items(), key=lambda item: (item[1], item[0])))
        remaining = sum(number for profile, number in pods.items() if profile not in shown)
        if remaining:
            shown[OTHER] = shown.get(OTHER, 0) + remaining
        self._scheduler_unschedulable_pods.keep([(PLUGIN, profile) for profile in shown])
        for profile, number in shown.items():
            self._scheduler_unschedulable_pods.labels(PLUGIN, profile).set(number)

    def claim_made(self, owner: tuple[str, str], *, admin_access: bool, success: bool) -> None:
        """Count a claim that was created, or could not be, for an owner: API group and kind."""
        labels = ("success" if success else "failure", "true" if admin_access else "false", *owner)
        self._dynamic_resource_allocation_resourceclaim_creates.labels(*labels).inc()
