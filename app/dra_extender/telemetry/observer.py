from dra_extender.telemetry.metrics import Metrics


class ClusterObserver:
    """Counts what the adapters to an API server report while they work; implements their Observer."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def watch_event(self, kind: str, event: str) -> None:
        """One watch event of a kind arrived."""
        self._metrics.watch_event(kind, event)

    def listed(self, kind: str, objects: int, seconds: float) -> None:  # noqa: ARG002 - one counter is enough here
        """A kind was listed completely."""
        self._metrics.listed(kind)

    def relisting(self, kind: str, reason: str) -> None:  # noqa: ARG002 - the reason is in the log
        """A kind must be listed again."""
        self._metrics.relist(kind)

    def watch_failed(self, kind: str, reason: str) -> None:
        """A list or watch failed."""
        self._metrics.watch_failed(kind, reason)

    def unreadable(self, kind: str) -> None:
        """An object could not be read and was passed over."""
        self._metrics.unreadable(kind)

    def background_failed(self, task: str) -> None:
        """See Observer."""
        self._metrics.background_failed(task)

    def request(self, verb: str, resource: str, status: str, seconds: float) -> None:
        """A request ended with an HTTP status, or with none."""
        self._metrics.api_request(verb, resource, status, seconds)

    def pod_event(self, outcome: str) -> None:
        """What became of an Event about a pod."""
        self._metrics.pod_event(outcome)


class TermCounter:
    """Counts terms as leader; implements the adapters' TermObserver."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def leads(self, leads: bool) -> None:
        """A term began or ended."""
        self._metrics.term("won" if leads else "lost")
