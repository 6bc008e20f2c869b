from collections.abc import Callable


class ReadinessGate:
    """Whether the verbs are answered at all.

    Closed while the service starts or stops and while another replica leads.  Kept-alive connections outlive a Service's endpoints,
    so a closed gate answers in words and asks the caller to connect anew.
    """

    __slots__ = ("_told",)

    def __init__(self, reason: str | None = "the extender is starting") -> None:
        self._told: Callable[[], str | None] = lambda: reason

    @property
    def reason(self) -> str | None:
        """Why it is closed; None when it is open."""
        return self._told()

    def open(self, permit: Callable[[], str | None] | None = None) -> None:
        """Let calls through, as long as `permit` returns None: it is asked at every call, and otherwise says why not."""
        self._told = permit or (lambda: None)

    def close(self, reason: str | Callable[[], str]) -> None:
        """Turn calls away with this sentence."""
        self._told = reason if callable(reason) else lambda: reason
