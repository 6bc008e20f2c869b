"""How long kube-scheduler waits for an answer, and what that leaves us: both ends of each time limit come from here."""

from typing import Final

FILTER_HTTP_SECONDS: Final = 5.0
"""The `httpTimeout` of the stanza with filter, prioritize and preempt: the scheduling loop stands still for as long."""

BIND_MARGIN_SECONDS: Final = 60.0
"""By how much the `httpTimeout` of the stanza with bind is longer than the binding timeout, for everything else a bind does."""

WRITE_SECONDS: Final = 15.0
"""The longest that one write to the API server may take."""


def bind_http_seconds(binding_timeout: float) -> float:
    """The `httpTimeout` of the stanza with bind, in seconds, for a binding timeout in seconds."""
    return binding_timeout + BIND_MARGIN_SECONDS
