"""What the use cases answer; the HTTP side turns it into the extender protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FilterResponse:
    """Which of the offered nodes fit, and why each other one does not.

    `failed`: eviction of other pods might help there.  `unresolvable`: it would not; devices are never freed by kube-scheduler's
    preemption, so shortages of devices belong here.
    """

    fitting: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


class RetryableError(Exception):
    """The question cannot be answered now; the message becomes the protocol's `Error`, and kube-scheduler tries the pod again."""
