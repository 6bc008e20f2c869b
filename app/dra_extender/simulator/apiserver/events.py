import msgspec

from dra_extender.model.pod import Pod


class PodEvent(msgspec.Struct, frozen=True):
    """What was said about a pod; equal sayings count up."""

    pod: str
    uid: str
    warning: bool
    reason: str
    message: str
    count: int = 1


class EventLog:
    """Keeps Events in memory, the newest saying of each pod and reason last.  Implements ports.Events."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str, str], PodEvent] = {}

    def about_pod(self, pod: Pod, *, warning: bool, reason: str, message: str) -> None:
        """Record an Event on the pod; an equal one counts up and moves to the end."""
        key = (pod.uid, reason, message)
        before = self._said.pop(key, None)
        count = before.count + 1 if before is not None else 1
        self._said[key] = PodEvent(pod.key, pod.uid, warning, reason, message, count)

    def of(self, uid: str) -> list[PodEvent]:
        """Events of the pod with this UID, oldest first."""
        return [event for event in self._said.values() if event.uid == uid]
