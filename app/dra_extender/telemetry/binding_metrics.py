from collections.abc import Sequence

from dra_extender.telemetry.bounded_labels import Catalogue


class BindingMetrics:
    """What is counted of binding conditions (KEP-5007); see `Metrics`."""

    def __init__(self, make: Catalogue) -> None:
        self._attempts = make.counter("bindingconditions_attempts")
        self._devices = make.counter("bindingconditions_allocations")
        self._prebind = make.histogram("bindingconditions_prebind_duration_seconds")
        self._waits = make.histogram("bindingconditions_wait_duration_seconds")
        self._waiting = make.plain_gauge("bindingconditions_waiting_pods")

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
