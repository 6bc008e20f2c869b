import asyncio
import json
from dataclasses import dataclass, field

from dra_extender.model.api_json import ModelError
from dra_extender.telemetry.observer import Observer


@dataclass
class RecordingSink:
    """Remembers what it was told, as short lines; refuses objects by name."""

    unreadable: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    lists: int = 0

    def changed(self, data: bytes) -> None:
        name = json.loads(data)["metadata"]["name"]
        if name in self.unreadable:
            raise ModelError(f"Thing: {name} makes no sense")
        if name in self.broken:
            raise RuntimeError(f"a fault at {name}")
        self.told.append(f"+{name}")
        self.raw.append(data)

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """`-name uid`, with the namespace before the name if there is one."""
        self.told.append(f"-{'/'.join(filter(None, (namespace, name)))} {uid}")

    def listing(self) -> None:
        """Tell nothing."""

    def synced(self) -> None:
        """Count a completed list."""
        self.lists += 1

    def absent(self) -> None:
        """Remember that there is no such kind."""
        self.told.append("absent")

    def take(self) -> list[str]:
        """What was told since the last call."""
        told, self.told = self.told, []
        return told


class CountingObserver(Observer):
    """Remembers each report as a tuple; durations are left out."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, ...]] = []

    def watch_event(self, kind: str, event: str) -> None:
        self.reports.append(("watch_event", kind, event))

    def listed(self, kind: str, objects: int, seconds: float) -> None:
        self.reports.append(("listed", kind, str(objects)))

    def relisting(self, kind: str, reason: str) -> None:
        self.reports.append(("relisting", kind, reason))

    def watch_failed(self, kind: str, reason: str) -> None:
        self.reports.append(("watch_failed", kind, reason))

    def unreadable(self, kind: str) -> None:
        self.reports.append(("unreadable", kind))

    def background_failed(self, task: str) -> None:
        self.reports.append(("background_failed", task))

    def api_request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        self.reports.append(("request", verb, resource, status))

    def pod_event(self, outcome: str) -> None:
        self.reports.append(("pod_event", outcome))

    def of(self, report: str) -> list[tuple[str, ...]]:
        """The reports of one name, without it."""
        return [each[1:] for each in self.reports if each[0] == report]


class Sleeper:
    """Pauses that take no time; after `limit` of them a pause lasts for ever, so that nothing runs wild."""

    def __init__(self, limit: int = 100) -> None:
        self.pauses: list[float] = []
        self._limit = limit

    async def __call__(self, seconds: float) -> None:
        """Note the pause."""
        self.pauses.append(seconds)
        if len(self.pauses) >= self._limit:
            await asyncio.Event().wait()
        await asyncio.sleep(0)


@dataclass(slots=True)
class ManualClock:
    """A clock that a test sets."""

    time: float = 1_700_000_000.0
    steady: float = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.steady

    def pass_by(self, seconds: float) -> None:
        """Both clocks go on."""
        self.time += seconds
        self.steady += seconds
