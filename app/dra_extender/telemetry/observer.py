"""What the adapters of the API server count."""


class Observer:
    """Counts nothing.  Calls are synchronous and must not raise."""

    def watch_event(self, kind: str, event: str) -> None:
        """Count a watch event of a kind ("pods"): ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    def listed(self, kind: str, objects: int, seconds: float) -> None:
        """Count a complete list of a kind."""

    def relisting(self, kind: str, reason: str) -> None:
        """Count that a kind must be listed again: "gone" (the server does not know our version) or "asked"."""

    def watch_failed(self, kind: str, reason: str) -> None:
        """Count a list or watch that failed: the HTTP status, or "stalled", "connection", "closed" or "internal".

        Stalled means no answer in time, closed that a watch ended without an event, internal a fault of ours.
        """

    def unreadable(self, kind: str) -> None:
        """Count an object that could not be read and was passed over."""

    def background_failed(self, task: str) -> None:
        """Count a task in the background that raised; it starts again."""

    def api_request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        """Count a request: API verb ("update"), resource ("resourceclaims/status"), HTTP status or "none" without an answer."""

    def pod_event(self, outcome: str) -> None:
        """Count an Event about a pod: "written", "repeated", "limited" (rate), "overflowed" (queue) or "failed"."""
