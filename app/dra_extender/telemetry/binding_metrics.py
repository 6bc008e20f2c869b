"""Metrics of the waits for binding conditions (KEP-5007)."""

from collections.abc import Sequence
from typing import Final

from dra_extender.telemetry.declaration import MetricGroup, counter, histogram, plain_gauge

_CONDITION_SECONDS: Final = tuple(0.1 * 2**power for power in range(14))
_PREBIND_SECONDS: Final = (0.005, 0.01, *_CONDITION_SECONDS)


class BindingMetrics(MetricGroup):
    """Waits for binding conditions."""

    _scheduler_dra_bindingconditions_allocations = counter(
        "Devices with binding conditions that a bind waited for, by scheduler (`profile`), driver and status: success, failed, "
        "timeout, error (ended otherwise); KEP-5007",
        "profile",
        "driver",
        "status",
        limit=120,
        prefix="",
    )
    _scheduler_dra_bindingconditions_wait_duration_seconds = histogram(
        "Duration of waits for binding conditions, one count per driver of the pod's devices; KEP-5007",
        "profile",
        "driver",
        "status",
        buckets=_CONDITION_SECONDS,
        limit=120,
        prefix="",
    )
    _bindingconditions_attempts = counter(
        "Binds of pods whose devices have binding conditions, by status: success, timeout, failure (also one that ended for "
        "another reason); each bind counts once, as KEP-5007 describes `scheduler_dra_bindingconditions_allocations_total`",
        "status",
    )
    _scheduler_dra_bindingconditions_prebind_duration_seconds = histogram(
        "Time from the decision to the Binding for all pods with claims, waiting for a gang left out, by status and by whether a "
        "device has binding conditions; KEP-5007",
        "status",
        "requires_bindingconditions",
        buckets=_PREBIND_SECONDS,
        prefix="",
    )
    bindingconditions_waiting_pods = plain_gauge("Pods whose bind waits for binding conditions now")

    def waited(self, profile: str, drivers: Sequence[str], status: str, seconds: float) -> None:
        """Count a wait that ended; `drivers` names the driver of each device with conditions."""
        for driver in drivers:
            self._scheduler_dra_bindingconditions_allocations.labels(profile, driver, status).inc()
        for driver in sorted(set(drivers)):
            self._scheduler_dra_bindingconditions_wait_duration_seconds.labels(profile, driver, status).observe(seconds)

    def prebind(self, status: str, seconds: float, *, requires_conditions: bool) -> None:
        """Count a bind of a pod with claims that has come to its Binding, or ended before."""
        self._scheduler_dra_bindingconditions_prebind_duration_seconds.labels(
            status, "true" if requires_conditions else "false"
        ).observe(seconds)
        if requires_conditions:
            self._bindingconditions_attempts.labels(status).inc()
