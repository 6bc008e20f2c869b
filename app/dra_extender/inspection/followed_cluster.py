"""The objects of a running cluster, kept up to date by watches, cut to the fields that decisions read."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dra_extender.inspection.extender_view import ExtenderView, read_view, viewed
from dra_extender.inspection.live import objects_of
from dra_extender.inspection.objects import BUDGETS, KINDS, ClusterObjects, kept
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.reading import ClusterFollower
from dra_extender.model.api_json import ModelError, decode
from dra_extender.runtime.clock import SystemClock

_DECODER: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])

PAUSE_SECONDS: Final = 1.0
"""Seconds after a change in which further ones are gathered."""
HOLD_SECONDS: Final = 5.0
"""Seconds between two looks at what an extender holds, while nothing else changes."""
FRESH_SECONDS: Final = 2.0
"""Seconds for which what it held then is taken for what it holds now."""

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
        """Return the objects as JSON, in the order of their keys."""
        return [data for _, data in sorted(self._objects.items())]

    def changed(self, data: bytes) -> None:
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
        self._digests.pop((namespace, name), None)
        if self._objects.pop((namespace, name), None) is not None:
            self._on_change()

    def listing(self) -> None:
        pass

    def synced(self) -> None:
        self._on_change()

    def absent(self) -> None:
        """See EventSink."""


async def readings(
    settings: KubeSettings,
    extender_url: str = "",
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    namespace: str | None = None,
) -> AsyncGenerator[ClusterObjects, None]:
    """Yield the objects of a cluster with what its extender holds: at once, and again after each change, until it is closed.

    Changes within a second are one; if an extender runs, its holds are asked for every five seconds.  `namespace`: as in
    ClusterFollower.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    followed = FollowedCluster(settings, extender_url, namespace=namespace)
    try:
        await followed.start()
        while True:
            yield await followed.objects()
            await followed.change()
            await sleep(PAUSE_SECONDS)
    finally:
        await followed.stop()


class FollowedCluster:
    """A running cluster that is watched: `objects` has it as of now, `change` returns after the next change.

    What a running extender holds is in no API object: it is asked for it from time to time, as `extender_view` says.
    """

    def __init__(
        self, settings: KubeSettings, extender_url: str = "", *, decisions: bool = False, namespace: str | None = None
    ) -> None:
        """`decisions`: ask the extender for its latest decisions, too; `namespace` as in ClusterFollower."""
        self._namespace = namespace
        self._settings = settings
        self._url = extender_url
        self._asks_decisions = decisions
        self._follower = ClusterFollower(settings)
        self._clock = SystemClock()
        self._changed = asyncio.Event()
        self._sinks = {kind: KeptObjects(kind, self._changed.set) for kind in (*KINDS, BUDGETS)}
        self._view = ExtenderView(None)
        self._viewed_at = -math.inf

    async def start(self) -> None:
        """Return when all kinds have been listed that can be.

        Raises:
            ConfigurationError: there is no usable kubeconfig.
            ClusterError: the API server does not answer, or is too old.
        """
        await self._follower.start(self._sinks, self._namespace)
        await self._follower.listed()

    async def change(self) -> None:
        """Returns when something has changed since the last call of `objects`; of the extender, what it holds."""
        while not self._changed.is_set():
            try:
                async with asyncio.timeout(HOLD_SECONDS if self._view.said else None):
                    await self._changed.wait()
            except TimeoutError:
                before = _held(self._view)
                await self._ask_extender()
                if _held(self._view) != before:
                    return

    async def objects(self) -> ClusterObjects:
        """Return all objects as they are now; kinds that could not be read are missing."""
        self._changed.clear()
        objects = objects_of(self._follower.reading({kind: sink.all() for kind, sink in self._sinks.items()}))
        if self._clock.monotonic() - self._viewed_at >= FRESH_SECONDS:
            await self._ask_extender()
        return viewed(objects, self._view)

    async def _ask_extender(self) -> None:
        pods = self._sinks["pods"].all()
        self._view = await read_view(self._settings, pods, self._url, decisions=self._asks_decisions)
        self._viewed_at = self._clock.monotonic()

    def extender(self) -> ExtenderView:
        return self._view

    def contact_ages(self) -> Mapping[str, float]:
        """Return seconds since the API server last answered the list or watch of each kind."""
        return self._follower.contact_ages()

    def problems(self) -> Sequence[str]:
        """Return a sentence for each kind that is not followed now, and for objects that cannot be read."""
        return self._follower.problems()

    async def stop(self) -> None:
        await self._follower.stop()


def _held(view: ExtenderView) -> object:
    """Return what is held and planned; the ends of holds move with each answer, and are left out."""
    if view.report is None:
        return view.said
    return [(hold.claim_uid, hold.nominated, hold.nodes) for hold in view.report.holds], view.report.plans
