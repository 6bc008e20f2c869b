"""Metrics of binding conditions (KEP-5007)."""

from collections.abc import Sequence
from typing import Final

from dra_extender.telemetry.declaration import MetricGroup, counter, histogram, plain_gauge

_CONDITION_SECONDS: Final = tuple(0.1 * 2**power for power in range(14))
_PREBIND_SECONDS: Final = (0.005, 0.01, *_CONDITION_SECONDS)


class BindingMetrics(MetricGroup):
    """See `metrics.Metrics`."""

    _devices = counter(
        "bindingconditions_allocations",
        "Devices with binding conditions that a bind waited for, by scheduler (`profile`), driver and status: success, failed, "
        "timeout, error (ended otherwise); as upstream's `scheduler_dra_bindingconditions_allocations_total`",
        "profile",
        "driver",
        "status",
        limit=120,
        upstream="scheduler_dra_bindingconditions_allocations",
    )
    _waits = histogram(
        "bindingconditions_wait_duration_seconds",
        "Duration of waits for binding conditions, one count per driver of the pod's devices; as upstream's "
        "`scheduler_dra_bindingconditions_wait_duration_seconds`",
        "profile",
        "driver",
        "status",
        buckets=_CONDITION_SECONDS,
        limit=120,
        upstream="scheduler_dra_bindingconditions_wait_duration_seconds",
    )
    _attempts = counter(
        "bindingconditions_attempts",
        "Binds of pods whose devices have binding conditions, by status: success, timeout, failure (also one that ended for "
        "another reason); each bind counts once, as KEP-5007 describes `scheduler_dra_bindingconditions_allocations_total`",
        "status",
    )
    _prebind = histogram(
        "bindingconditions_prebind_duration_seconds",
        "Time from the decision to the Binding for all pods with claims, waiting for a gang left out, by status and by whether a "
        "device has binding conditions; as KEP-5007 describes `scheduler_dra_bindingconditions_prebind_duration_seconds`",
        "status",
        "requires_bindingconditions",
        buckets=_PREBIND_SECONDS,
        upstream="scheduler_dra_bindingconditions_prebind_duration_seconds",
    )
    _waiting = plain_gauge("bindingconditions_waiting_pods", "Pods whose bind waits for binding conditions now")

    def waited(self, profile: str, drivers: Sequence[str], status: str, seconds: float) -> None:
        """A wait ended; `drivers` names the driver of each device with conditions."""
        for driver in drivers:
            self._devices.of(profile, driver, status).inc()
        for driver in sorted(set(drivers)):
            self._waits.of(profile, driver, status).observe(seconds)

    def waiting(self, pods: int) -> None:
        """How many binds wait now."""
        self._waiting.set(pods)

    def prebind(self, status: str, seconds: float, *, requires_conditions: bool) -> None:
        """A bind of a pod with claims has come to its Binding, or ended before."""
        self._prebind.of(status, "true" if requires_conditions else "false").observe(seconds)
        if requires_conditions:
            self._attempts.of(status).inc()
