from typing import Protocol


class Observer(Protocol):
    """Counts what the adapters do.  Calls are synchronous and must not raise."""

    def watch_event(self, kind: str, event: str) -> None:
        """One watch event of a kind ("pods") arrived: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
        ...

    def listed(self, kind: str, objects: int, seconds: float) -> None:
        """A kind was listed completely."""
        ...

    def relisting(self, kind: str, reason: str) -> None:
        """A kind must be listed again: "gone" (the server does not know our version) or "asked"."""
        ...

    def watch_failed(self, kind: str, reason: str) -> None:
        """A list or watch failed: the HTTP status, or "stalled", "connection", "closed" or "internal".

        Stalled means no answer in time, closed that a watch ended without an event, internal a fault of ours.
        """
        ...

    def unreadable(self, kind: str) -> None:
        """An object could not be read and was passed over."""
        ...

    def background_failed(self, task: str) -> None:
        """A task in the background raised; it starts again."""
        ...

    def api_request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        """A request ended: API verb ("update"), resource ("resourceclaims/status"), HTTP status or "none" without an answer."""
        ...

    def pod_event(self, outcome: str) -> None:
        """An Event about a pod was "written", "repeated", "limited" (rate), "overflowed" (queue) or "failed"."""
        ...


class NullObserver:
    """Counts nothing."""

    def watch_event(self, kind: str, event: str) -> None:
        """Nothing."""

    def listed(self, kind: str, objects: int, seconds: float) -> None:
        """Nothing."""

    def relisting(self, kind: str, reason: str) -> None:
        """Nothing."""

    def watch_failed(self, kind: str, reason: str) -> None:
        """Nothing."""

    def unreadable(self, kind: str) -> None:
        """Nothing."""

    def background_failed(self, task: str) -> None:
        """Nothing."""

    def api_request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        """Nothing."""

    def pod_event(self, outcome: str) -> None:
        """Nothing."""
