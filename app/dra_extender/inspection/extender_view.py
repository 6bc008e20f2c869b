"""What a running extender holds, plans and has decided: read from its pod by port-forward, or from an address.

API objects do not show them.  Without the right to open a port-forward, or without an extender, answers do without them and say so.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from dra_extender.inspection.objects import ClusterObjects, unread
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.port_forward import get_at, get_through
from dra_extender.model.api_json import ModelError, decode
from dra_extender.model.metadata import decoded_moment
from dra_extender.model.pod import WholePod
from dra_extender.scheduling.hold_report import FORMAT, HoldReport
from dra_extender.scheduling.recent_decisions import FORMAT as DECISIONS_FORMAT
from dra_extender.scheduling.recent_decisions import DecisionReport

PATH: Final = "/debug/holds"
DECISIONS_PATH: Final = "/debug/decisions"
SECONDS: Final = 5.0
MOST_PODS: Final = 4
"""The most pods of an extender that are asked, one after the other, until one leads."""
_MARK: Final = b"dra-extender"
_PORT: Final = 8080


class ExtenderView(NamedTuple):
    """What was found out: the report of the replica that leads, and a sentence for the answer; empty where no extender runs.

    `decisions` are those of the same replica, None if they were not asked for; `decisions_said` says why they could not be read.
    """

    report: HoldReport | None
    said: str = ""
    decisions: DecisionReport | None = None
    decisions_said: str = ""


class _Place(NamedTuple):
    namespace: str
    pod: str
    port: int


_PODS: Final = frozenset({"pods"})
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
        at_url = partial(_get_at, url.rstrip("/"))
        return await _asked(f"the extender at {url}", at_url, decisions=decisions)
    places = list(_places(pods))[:MOST_PODS]
    if not places:
        return ExtenderView(None)
    transport = ApiTransport(settings)
    await transport.open()
    said: list[str] = []
    try:
        for place in places:
            through_pod = partial(get_through, transport, *place, seconds=SECONDS)
            view = await _asked(f"pod {place.namespace}/{place.pod}", through_pod, decisions=decisions)
            if view.report is not None:
                return view
            said.append(view.said)
    finally:
        await transport.close()
    return ExtenderView(None, said[0])


async def _get_at(url: str, path: str) -> bytes:
    return await get_at(f"{url}{path}", seconds=SECONDS)


async def _asked(where: str, get: Callable[[str], Awaitable[bytes]], *, decisions: bool) -> ExtenderView:
    """Return the view of the extender that answers there, if it leads; an older extender does not tell its decisions."""
    try:
        report = read_report(await get(PATH))
    except (ApiCallError, ModelError) as problem:
        return ExtenderView(None, f"not read: {problem}")
    if not report.leads:
        return ExtenderView(None, f"not read: {where} does not lead")
    more = f", {report.left_out} more not shown" if report.left_out else ""
    view = ExtenderView(report, f"{len(report.holds)} claims, {len(report.plans)} plans of gangs, from {where}{more}")
    if not decisions:
        return view
    try:
        return view._replace(decisions=read_decisions(await get(DECISIONS_PATH)))
    except (ApiCallError, ModelError) as problem:
        return view._replace(decisions_said=f"not read: {problem}")


async def with_holds(objects: ClusterObjects, settings: KubeSettings, url: str = "") -> ClusterObjects:
    """Return the objects with what the extender of this cluster holds, as far as that can be read."""
    return viewed(objects, await read_view(settings, objects.of_kind("pods"), url))


def viewed(objects: ClusterObjects, view: ExtenderView) -> ClusterObjects:
    """Return the objects with what an extender holds; whether one runs is not known without the pods of all namespaces."""
    unknown = not view.said and unread(objects.origin, _PODS)
    origin = msgspec.structs.replace(objects.origin, holds=_PODS_UNREAD if unknown else view.said)
    return objects._replace(origin=origin, holds=view.report)


def read_report(data: bytes) -> HoldReport:
    """Read the report in an answer.

    Raises:
        ModelError: it is none, or of another format.
    """
    report = decode("holds", _REPORT, data)
    if report.format != FORMAT:
        raise ModelError(f"holds: has format {report.format!r}; this version reads {FORMAT}")
    return report


def read_decisions(data: bytes) -> DecisionReport:
    """As `read_report`, of the latest decisions."""
    report = decode("decisions", _DECISIONS, data)
    if report.format != DECISIONS_FORMAT:
        raise ModelError(f"decisions: has format {report.format!r}; this version reads {DECISIONS_FORMAT}")
    return report


def _places(pods: Sequence[bytes]) -> Iterator[_Place]:
    """Yield where extenders run, by the labels of the shipped manifests and the chart."""
    for data in pods:
        if _MARK not in data:
            continue
        try:
            pod = decode("Pod", _POD, data)
        except ModelError:
            continue
        labels = pod.metadata.labels or {}
        ours = ("dra-extender", "extender")
        found = (labels.get("app.kubernetes.io/name"), labels.get("app.kubernetes.io/component"))
        if found == ours and pod.status.phase == "Running":
            containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
            ports = (port for each in containers if each.name == "extender" for port in each.ports or ())
            port = next((port.container_port for port in ports if port.name == "http"), _PORT)
            yield _Place(pod.metadata.namespace, pod.metadata.name, port)
