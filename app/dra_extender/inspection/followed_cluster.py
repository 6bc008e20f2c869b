"""The objects of a running cluster, kept up to date by watches, cut to the fields that decisions read."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from dra_extender.inspection.extender_view import with_holds
from dra_extender.inspection.kept_fields import kept
from dra_extender.inspection.objects import KINDS, ClusterObjects, MissingKind, Origin, assumed_gates
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.follower import ClusterFollower
from dra_extender.model.api_json import ModelError, decode
from dra_extender.runtime.clock import SystemClock

_DECODER: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])

PAUSE_SECONDS: Final = 1.0
"""Seconds after a change in which further ones are gathered."""
HOLD_SECONDS: Final = 5.0
"""Seconds between two looks at what an extender holds."""

Key = tuple[str, str]


class KeptObjects:
    """The sink of one kind: what decisions read of its objects, by namespace and name.

    `changed` is called when that changes; a new version that differs in nothing else replaces the old one in silence.
    """

    def __init__(self, kind: str, on_change: Callable[[], None]) -> None:
        self._kind = kind
        self._on_change = on_change
        self._objects: dict[Key, bytes] = {}
        self._digests: dict[Key, int] = {}

    def all(self) -> Sequence[bytes]:
        """The objects as JSON, in the order of their keys."""
        return [data for _, data in sorted(self._objects.items())]

    def changed(self, data: bytes) -> None:
        """See EventSink."""
        found: dict[str, Any] = decode(self._kind, _DECODER, data)
        if not isinstance(found.get("metadata"), dict):
            raise ModelError(f"{self._kind}: field metadata: expected an object")
        item = kept(self._kind, found)
        metadata = item["metadata"]
        key = (str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        self._objects[key] = msgspec.json.encode(item)
        without_version = {**item, "metadata": {**metadata, "resourceVersion": ""}}
        digest = hash(msgspec.json.encode(without_version))
        if self._digests.get(key) != digest:
            self._digests[key] = digest
            self._on_change()

    def deleted(self, namespace: str, name: str, uid: str) -> None:  # noqa: ARG002 - objects are known by name
        """See EventSink."""
        self._digests.pop((namespace, name), None)
        if self._objects.pop((namespace, name), None) is not None:
            self._on_change()

    def synced(self) -> None:
        """See EventSink."""
        self._on_change()

    def absent(self) -> None:
        """See EventSink."""


async def readings(
    settings: KubeSettings, extender_url: str = "", sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncGenerator[ClusterObjects, None]:
    """The objects of a cluster with what its extender holds: at once, and again after each change, until it is closed.

    Changes within a second are one; where an extender answers, its holds are asked for every five seconds.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    followed = FollowedCluster(settings)
    try:
        await followed.start()
        while True:
            objects = followed.objects()
            objects = await with_holds(objects, settings, extender_url)
            yield objects
            with suppress(TimeoutError):
                async with asyncio.timeout(None if objects.holds is None else HOLD_SECONDS):
                    await followed.change()
            await sleep(PAUSE_SECONDS)
    finally:
        await followed.stop()


class FollowedCluster:
    """A running cluster that is watched: `objects` has it as of now, `change` returns after the next change.

    Raises (in `start`):
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """

    def __init__(self, settings: KubeSettings) -> None:
        self._follower = ClusterFollower(settings)
        self._clock = SystemClock()
        self._changed = asyncio.Event()
        self._sinks = {kind: KeptObjects(kind, self._changed.set) for kind in KINDS}

    async def start(self) -> None:
        """Returns when all kinds that the account may list have been listed."""
        await self._follower.start(self._sinks)
        await self._follower.listed()

    async def change(self) -> None:
        """Returns when something has changed since the last call of `objects`."""
        await self._changed.wait()

    def objects(self) -> ClusterObjects:
        """All objects as they are now; kinds that the account may not list are missing."""
        self._changed.clear()
        forbidden, not_served = self._follower.forbidden(), self._follower.not_served()
        missing = (
            *(MissingKind(kind=kind, reason=reason) for kind, reason in forbidden.items()),
            *(MissingKind(kind=kind, reason=reason, served=False) for kind, reason in not_served.items()),
        )
        origin = Origin(
            source=self._follower.source,
            taken_at=self._clock.now(),
            release=self._follower.release,
            missing=missing,
            gates=() if self._follower.facts is None else assumed_gates(self._follower.facts),
        )
        unread = {*forbidden, *not_served}
        by_kind = {kind: sink.all() for kind, sink in self._sinks.items() if kind not in unread}
        return ClusterObjects(origin, by_kind, self._follower.namespace)

    def contact_ages(self) -> Mapping[str, float]:
        """Seconds since the API server last answered the list or watch of each kind."""
        return self._follower.contact_ages()

    def problems(self) -> Sequence[str]:
        """A sentence for each kind that is not followed now, and for objects that cannot be read."""
        return self._follower.problems()

    async def stop(self) -> None:
        """End the watches."""
        await self._follower.stop()
