"""The cluster of an inspection, as the use cases need one: the time is that of the objects, and nothing is ever written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NoReturn

from dra_extender.model.pod import Pod
from dra_extender.scheduling.ports.cluster import Claims, Clock, Pods, RequestRejectedError

_REFUSAL: Final = "an inspection writes nothing and reads nothing beyond the objects that it was given"


@dataclass(frozen=True, slots=True)
class InspectionClock:
    """The wall clock stands at the time when the objects were read; `elapsed` are seconds that go on."""

    taken_at: float
    elapsed: Callable[[], float] = monotonic

    def now(self) -> float:
        """See Clock."""
        return self.taken_at

    def monotonic(self) -> float:
        """See Clock."""
        return self.elapsed()


class _NoObjects:
    """Any object store: every call is refused."""

    keeps_groups: Final = False
    api_version: Final = ""

    def __getattr__(self, name: str) -> Any:
        async def refuse(*_: object, **__: object) -> NoReturn:
            raise RequestRejectedError(f"{name}: {_REFUSAL}")

        return refuse


class _NoEvents:
    """Events go nowhere."""

    def about_pod(self, pod: Pod, *, warning: bool, reason: str, message: str) -> None:
        """See Events."""


class ReadOnlyCluster:
    """Implements Cluster for the use cases of an inspection.  None of them writes before it has answered."""

    def __init__(
        self,
        taken_at: float,
        *,
        devices_beside_counters: bool,
        keeps_extended_claims: bool = True,
        elapsed: Callable[[], float] = monotonic,
    ) -> None:
        """See InspectionClock; `devices_beside_counters` and `keeps_extended_claims` as in Cluster."""
        nothing = _NoObjects()
        self.clock: Clock = InspectionClock(taken_at, elapsed)
        self.claims: Claims = nothing
        self.pods: Pods = nothing
        self.claim_templates = self.pod_groups = self.waker = nothing
        self.events = _NoEvents()
        self.keeps_extended_claims = keeps_extended_claims
        self.has_devices_beside_counters = devices_beside_counters

    def health(self) -> Mapping[str, str | None]:
        """See Cluster."""
        return {}

    def notes(self) -> Mapping[str, str]:
        """See Cluster."""
        return {}
