"""What the use cases need from a cluster.  `dra_extender.kube` implements it for an API server, `dra_extender.simulator` in memory.

Each call may raise a ClusterError, whose kinds are what the caller can do about it:

    ClusterError
    ├── NotFoundError            the object does not exist: stop
    ├── ConflictError            another client wrote, so that the guard of the call fails: read again, decide again
    ├── RequestRejectedError     the API server refused (validation, admission, rights): report, retry much later
    └── ServerUnavailableError   no answer, or try again later: the outcome of a write is unknown, read before repeating it
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup

NOTE_BYTES: Final = 1024
"""The longest note of an Event (events.k8s.io/v1) that the API server accepts, in UTF-8."""

UNAVAILABLE_REASON: Final = "DevicesUnavailable"
"""The reason of the Event that says why a pod gets its devices on no node."""
_ELLIPSIS: Final = "…".encode()


class ClusterError(Exception):
    """A call to the cluster failed; the message names verb, object and the server's reason."""


class NotFoundError(ClusterError):
    """The object does not exist (any more)."""


class ConflictError(ClusterError):
    """The object changed since it was read, or is already bound, or already exists."""


class RequestRejectedError(ClusterError):
    """The server understood and refused: invalid, forbidden, or denied by admission."""


class ServerUnavailableError(ClusterError):
    """No usable answer; a write may or may not have happened."""


class Claims(Protocol):
    """Reads and writes of ResourceClaims as raw objects (JSON bytes); every write but `delete` returns what is stored."""

    @property
    def keeps_groups(self) -> bool:
        """Whether the API has `results[].compatibilityGroups` in the KEP's form; what is written there may still be dropped."""

    async def read(self, namespace: str, name: str) -> bytes: ...

    async def create(self, namespace: str, body: bytes) -> bytes:
        """Store a new claim; a ConflictError says that there is one of that name."""

    async def delete(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        """Delete the claim with this UID, in this resourceVersion if one is given; with finalizers it is only marked."""

    async def update(self, namespace: str, name: str, change: MetadataChange) -> bytes:
        """Change finalizers and annotations and nothing else, guarded by the UID and the version of the change."""

    async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Replace the status; `body` carries the resourceVersion it was made from."""


class Pods(Protocol):
    """Reads, nominates and binds pods."""

    async def read(self, namespace: str, name: str) -> Pod: ...

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Post the Binding, guarded by the UID; a pod that is bound already or being deleted is a ConflictError, too."""

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Publish where the pod is going (`status.nominatedNodeName`), guarded by the UID; an empty node takes it back."""

    async def record_extended_claim(
        self, namespace: str, name: str, uid: str, claim: str, mappings: Sequence[tuple[str, str, str]]
    ) -> bool:
        """Publish which claim serves the pod's extended resources, guarded by the UID: `status.extendedResourceClaimStatus`.

        `mappings`: (container, resource, request of the claim), each.  Return whether the API server keeps the field.
        """

    async def record_claims(self, namespace: str, name: str, uid: str, version: str, claims: Mapping[str, str]) -> None:
        """Record claims made for entries of the pod ({entry: claim}) beside those in its status, guarded by the version."""


class ClaimTemplates(Protocol):
    """Reads ResourceClaimTemplates."""

    async def read(self, namespace: str, name: str) -> bytes: ...


class PodGroups(Protocol):
    """Reads and writes of PodGroups, in the version that the cluster serves."""

    @property
    def api_version(self) -> str:
        """`apiVersion` of the PodGroups that are served, empty where none are."""

    async def read(self, namespace: str, name: str) -> PodGroup:
        """Read the live object.  Raises NotFoundError also where none are served."""

    async def record_claims(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        """Record claims made for entries of the group ({entry: claim}) beside those in its status, guarded by its version."""

    async def unprotect(self, group: PodGroup, finalizer: str) -> None: ...


class Events(Protocol):
    """Records Events about pods.  Never blocks, never raises; repeated Events are aggregated and limited in rate."""

    def about_pod(self, pod: Pod, *, warning: bool, reason: str, message: str) -> None:
        """Record an Event on the pod with a CamelCase reason and a text of any length (cut to what the API accepts)."""


class SchedulerWaker(Protocol):
    """Makes kube-scheduler try again the pods that we rejected."""

    async def wake(self) -> None:
        """Move every pod that an extender rejected back to the active queue, by one write."""


class Clock(Protocol):
    """Time, injectable."""

    def now(self) -> float:
        """Return the time of the wall clock in seconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""


class Cluster(Protocol):
    """Everything above in one place, as the composition root hands it over."""

    @property
    def claims(self) -> Claims: ...

    @property
    def pods(self) -> Pods: ...

    @property
    def claim_templates(self) -> ClaimTemplates: ...

    @property
    def pod_groups(self) -> PodGroups: ...

    @property
    def events(self) -> Events: ...

    @property
    def waker(self) -> SchedulerWaker: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def keeps_extended_claims(self) -> bool:
        """Return whether the API server keeps `status.extendedResourceClaimStatus` of pods; true as long as that is unknown."""

    @property
    def has_devices_beside_counters(self) -> bool:
        """Return whether the API has slices with devices beside their counter sets, as Kubernetes 1.34 has and no later release."""

    def health(self) -> Mapping[str, str | None]:
        """Return named checks of the connection to the cluster for `/readyz`: None is healthy, a sentence says what is wrong."""

    def notes(self) -> Mapping[str, str]:
        """Return named facts for `/readyz?verbose` that do not make the service unready, such as a field that is not served."""


def shorten(text: str, limit: int = NOTE_BYTES) -> str:
    """Return the text of a note, at most this many bytes long in UTF-8; never cut inside a character."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    return data[: max(0, limit - len(_ELLIPSIS))].decode(errors="ignore") + _ELLIPSIS.decode()


def joined_note(parts: Sequence[str], separator: str, limit: int = NOTE_BYTES) -> str:
    """Return the parts of a note with the separator between them, at most this many bytes long in UTF-8.

    Where they are too long together, the longest parts are cut to an equal length, so that each is seen.
    """
    note = separator.join(parts)
    if len(note.encode(errors="replace")) <= limit:
        return note
    sizes = sorted(len(part.encode(errors="replace")) for part in parts)
    room, share = limit - len(separator.encode()) * (len(parts) - 1), 0
    for index, size in enumerate(sizes):
        share = room // (len(sizes) - index)
        if size > share:
            break
        room -= size
    return shorten(separator.join(shorten(part, share) for part in parts), limit)
