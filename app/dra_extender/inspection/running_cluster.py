"""The objects of a running cluster, read once or followed, and what its extender holds, plans and has decided."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dra_extender.inspection.objects import (
    BUDGETS,
    EVENTS,
    KINDS,
    AssumedGate,
    ClusterObjects,
    GateState,
    MissingKind,
    Origin,
    keep_fields,
    unread,
)
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery import OPTIONAL_FIELDS, Support
from dra_extender.kube.port_forward import get_at, get_through
from dra_extender.kube.reading import ClusterFollower, ClusterReading, read_cluster
from dra_extender.model.api_json import ModelError, decode
from dra_extender.model.metadata import Moment, decoded_moment
from dra_extender.model.pod import WholePod
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.hold_report import FORMAT, HOLDS_PATH, HoldReport
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.scheduling.recent_decisions import DECISIONS_PATH, DecisionReport
from dra_extender.scheduling.recent_decisions import FORMAT as DECISIONS_FORMAT

R = TypeVar("R", HoldReport, DecisionReport)
_STATES: Final = {Support.KEPT: GateState.ON, Support.DROPPED: GateState.OFF, Support.UNKNOWN: GateState.UNKNOWN}


async def read_live(
    settings: KubeSettings, namespace: str | None = None, kinds: Sequence[str] = KINDS
) -> ClusterObjects:
    """Return all objects of these kinds that the account may list; `origin.missing` names the kinds that could not be read.

    If the account may list a kind in one namespace only, the objects of `namespace` are there (None: the namespace of the context).

    Raises:
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
    """
    return objects_of(await read_cluster(settings, kinds, namespace))


async def with_events(objects: ClusterObjects, settings: KubeSettings) -> ClusterObjects:
    """Return the objects with the Events as they are now; without Events if the API server does not answer."""
    try:
        events = objects_of(await read_cluster(settings, (EVENTS,), objects.namespace))
    except ClusterError:
        return objects
    missing = (*objects.origin.missing, *events.origin.missing)
    origin = msgspec.structs.replace(objects.origin, missing=missing)
    return objects._replace(origin=origin, by_kind={**objects.by_kind, **events.by_kind})


def objects_of(reading: ClusterReading) -> ClusterObjects:
    missing = [
        MissingKind(kind=kind, reason=reason, namespace=reading.namespace if kind in reading.one_namespace else "")
        for kind, reason in reading.forbidden.items()
    ]
    missing += [
        MissingKind(kind=kind, reason=reason, forbidden=False)
        for kind, reason in reading.failed.items()
        if kind not in reading.forbidden
    ]
    missing += [
        MissingKind(kind=kind, reason=reason, served=False, forbidden=False)
        for kind, reason in reading.not_served.items()
    ]
    facts = reading.facts
    origin = Origin(
        source=reading.source,
        taken_at=Moment(reading.taken_at),
        release=facts.git_version,
        missing=tuple(missing),
        gates=tuple(
            AssumedGate(gate=field.gate.gate_name, state=_STATES[facts.fields.get(field.name, Support.UNKNOWN)])
            for field in OPTIONAL_FIELDS
        ),
    )
    return ClusterObjects(origin, reading.by_kind, reading.namespace)


SECONDS: Final = 5.0
MOST_PODS: Final = 4
"""The most pods of an extender that are asked, one after the other, until one leads."""
_MARK: Final = b"dra-extender"
_PORT: Final = 8080


class ExtenderView(NamedTuple):
    """The report of the replica that leads, and a sentence for the answer (`summary`); empty where no extender runs.

    `decisions` are those of the same replica, None if they were not asked for; `decisions_problem` says why they could not be read.
    """

    report: HoldReport | None
    summary: str = ""
    decisions: DecisionReport | None = None
    decisions_problem: str = ""


_PODS_UNREAD: Final = "not known: the pods of the extender could not be listed"
_POD: Final = msgspec.json.Decoder(WholePod)
_REPORT: Final = msgspec.json.Decoder(HoldReport, dec_hook=decoded_moment)
_DECISIONS: Final = msgspec.json.Decoder(DecisionReport, dec_hook=decoded_moment)


async def read_view(
    settings: KubeSettings, pods: Sequence[bytes], url: str = "", *, decisions: bool = False
) -> ExtenderView:
    """Return the view of the extender at `url`, else of the one whose pods are among these; raises nothing of the network.

    `decisions`: ask for the latest decisions, too.
    """
    if url:

        async def at_url(path: str) -> bytes:
            return await get_at(f"{url.rstrip('/')}{path}", seconds=SECONDS)

        return await _ask(f"the extender at {url}", at_url, decisions=decisions)
    places = list(_places(pods))[:MOST_PODS]
    if not places:
        return ExtenderView(None)
    transport = ApiTransport(settings)
    await transport.open()
    problems: list[str] = []
    try:
        for namespace, pod, port in places:
            through_pod = partial(get_through, transport, namespace, pod, port, seconds=SECONDS)
            view = await _ask(f"pod {namespace}/{pod}", through_pod, decisions=decisions)
            if view.report is not None:
                return view
            problems.append(view.summary)
    finally:
        await transport.close()
    return ExtenderView(None, problems[0])


async def _ask(where: str, get: Callable[[str], Awaitable[bytes]], *, decisions: bool) -> ExtenderView:
    """Return the view of the extender that answers there, if it leads; an older extender does not tell its decisions."""
    try:
        report = read_report(await get(HOLDS_PATH), _REPORT, FORMAT)
    except (ApiCallError, ModelError) as problem:
        return ExtenderView(None, f"not read: {problem}")
    if not report.leads:
        return ExtenderView(None, f"not read: {where} does not lead")
    more = f", {report.left_out} more not shown" if report.left_out else ""
    view = ExtenderView(report, f"{len(report.holds)} claims, {len(report.plans)} plans of gangs, from {where}{more}")
    if not decisions:
        return view
    try:
        return view._replace(decisions=read_report(await get(DECISIONS_PATH), _DECISIONS, DECISIONS_FORMAT))
    except (ApiCallError, ModelError) as problem:
        return view._replace(decisions_problem=f"not read: {problem}")


def with_view(objects: ClusterObjects, view: ExtenderView) -> ClusterObjects:
    """Return the objects with what an extender holds; whether one runs is not known without the pods of all namespaces."""
    unknown = not view.summary and unread(objects.origin, {"pods"})
    origin = msgspec.structs.replace(objects.origin, holds=_PODS_UNREAD if unknown else view.summary)
    return objects._replace(origin=origin, holds=view.report)


def read_report(data: bytes, decoder: "msgspec.json.Decoder[R]", version: str) -> R:
    """Read the report in an answer.

    Raises:
        ModelError: it is none, or of another format.
    """
    what = version.split("/")[1]
    report = decode(what, decoder, data)
    if report.format != version:
        raise ModelError(f"{what}: has format {report.format!r}; this version reads {version}")
    return report


def _places(pods: Sequence[bytes]) -> Iterator[tuple[str, str, int]]:
    """Yield where extenders run (namespace, pod, port), by the labels of the shipped manifests and the chart."""
    for data in pods:
        if _MARK not in data:
            continue
        try:
            pod = decode("Pod", _POD, data)
        except ModelError:
            continue
        labels = pod.metadata.labels or {}
        ours = ("dra-extender", "extender")
        labelled = (labels.get("app.kubernetes.io/name"), labels.get("app.kubernetes.io/component"))
        if labelled == ours and pod.status.phase == "Running":
            containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
            ports = (port for container in containers if container.name == "extender" for port in container.ports or ())
            port = next((port.container_port for port in ports if port.name == "http"), _PORT)
            yield pod.metadata.namespace, pod.metadata.name, port


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
        decoded: dict[str, Any] = decode(self._kind, _DECODER, data)
        if not isinstance(decoded.get("metadata"), dict):
            raise ModelError(f"{self._kind}: field metadata: expected an object")
        item = keep_fields(self._kind, decoded)
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
        pass


class FollowedCluster:
    """A running cluster that is watched: `objects` has it as of now, `change` returns after the next change.

    What a running extender holds is in no API object: it is asked for it from time to time, as `read_view` says.
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
        """Return when something has changed since the last call of `objects`; of the extender, what it holds."""
        while not self._changed.is_set():
            try:
                async with asyncio.timeout(HOLD_SECONDS if self._view.summary else None):
                    await self._changed.wait()
            except TimeoutError:
                before = _holds_and_plans(self._view)
                await self._ask_extender()
                if _holds_and_plans(self._view) != before:
                    return

    async def objects(self) -> ClusterObjects:
        """Return all objects as they are now; kinds that could not be read are missing."""
        self._changed.clear()
        objects = objects_of(self._follower.reading({kind: sink.all() for kind, sink in self._sinks.items()}))
        if self._clock.monotonic() - self._viewed_at >= FRESH_SECONDS:
            await self._ask_extender()
        return with_view(objects, self._view)

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


def _holds_and_plans(view: ExtenderView) -> object:
    """Return the holds and plans; the ends of holds move with each answer, and are left out."""
    if view.report is None:
        return view.summary
    return [(hold.claim_uid, hold.nominated, hold.nodes) for hold in view.report.holds], view.report.plans
