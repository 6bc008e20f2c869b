class Gate:
    """Whether the verbs are answered at all.

    Closed while the service starts or stops and while another replica leads.  Kept-alive connections outlive a Service's endpoints,
    so a closed gate answers in words and asks the caller to connect anew.
    """

    __slots__ = ("_reason",)

    def __init__(self, reason: str | None = "the extender is starting") -> None:
        self._reason = reason

    @property
    def reason(self) -> str | None:
        """Why it is closed; None when it is open."""
        return self._reason

    def open(self) -> None:
        """Let calls through."""
        self._reason = None

    def close(self, reason: str) -> None:
        """Turn calls away with this sentence."""
        self._reason = reason
