"""How long pods with claims take from the decision to the Binding, and how that ends: the metrics that KEP-5007 names."""

from types import TracebackType
from typing import Final, Self

from dra_extender.scheduling.claims.releaser import ClaimReleasedError
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.telemetry.metrics import Metrics

SUCCESS: Final = "success"
FAILURE: Final = "failure"
TIMEOUT: Final = "timeout"


class BindingTimeoutError(ClaimReleasedError):
    """Binding conditions were not met in time."""


class PreBind:
    """What the KEP calls PreBind, as a context: claims are written, devices are waited for.

    On the way out it is observed: a success if nothing was left to do, a time-out if BindingTimeoutError ends it, else a failure.
    """

    __slots__ = ("_clock", "_metrics", "_passed", "_requires", "_seconds", "_since")

    def __init__(self, clock: Clock, metrics: Metrics, *, requires_conditions: bool) -> None:
        self._clock = clock
        self._metrics = metrics
        self._requires = requires_conditions
        self._since = 0.0
        self._seconds = 0.0
        self._passed = False

    def __enter__(self) -> Self:
        self._since = self._clock.monotonic()
        return self

    def pause(self) -> None:
        """Nothing is left to do, for now: the pod waits for its gang, or the Binding is posted; neither is PreBind upstream."""
        self._seconds += self._clock.monotonic() - self._since
        self._passed = True

    def go_on(self) -> None:
        """There is more to do."""
        self._since = self._clock.monotonic()
        self._passed = False

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = SUCCESS
        if not self._passed:
            self._seconds += self._clock.monotonic() - self._since
            status = TIMEOUT if isinstance(problem, BindingTimeoutError) else FAILURE
        self._metrics.binding.prebind(status, self._seconds, requires_conditions=self._requires)
