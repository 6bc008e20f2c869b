import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
import structlog

from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.discovery.server_features import ServerFacts, Support, supports
from dra_extender.scheduling.ports.cluster import NotFoundError, RequestRejectedError, ServerUnavailableError

RESOURCE_GROUP: Final = "resource.k8s.io"
SCHEDULING_GROUP: Final = "scheduling.k8s.io"
NEEDED_MINOR: Final = 34
# The last two are served by no release: a later version, and that of the first draft of KEP-5729.
POD_GROUP_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2", "v1", "v1alpha1")
TAINT_RULE_VERSIONS: Final = ("v1", "v1beta2", "v1alpha3")

_LOG = structlog.get_logger(__name__)
_NOT_FOUND = 404
_GATE = re.compile(rb'^kubernetes_feature_enabled\{[^}\n]*\bname="([^"]+)"[^}\n]*\} ([01])\b', re.MULTILINE)


_Shape = TypeVar("_Shape")


class _AbsentError(NotFoundError):
    """There is nothing at this path."""


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = "an unknown version"
    minor: str = ""
    emulation_minor: str = ""

    def behaving(self) -> int:
        # Providers append to it ("34+").
        digits = re.match(r"[0-9]{1,9}", self.emulation_minor or self.minor)
        return int(digits.group()) if digits else 0


class _Named(msgspec.Struct, frozen=True):
    version: str = ""
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_Named, ...] = ()


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Named, ...] = ()


_RESULT: Final = ".v1.DeviceRequestAllocationResult"
_GROUPS: Final = "compatibilityGroups"


class _Type(msgspec.Struct, frozen=True):
    properties: dict[str, Any] = {}


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, msgspec.Raw] = {}


class _Document(msgspec.Struct, frozen=True):
    components: _Components = _Components()


_FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "string"}},
}


class Discovery:
    """Reads the release of an API server and what it serves."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings) -> None:
        self._transport = transport
        self._timeouts = settings.timeouts

    async def facts(self) -> ServerFacts:
        """Read everything that has to be known before the first watch.

        Raises:
            RequestRejectedError: the server is too old or does not serve what we need; the message says what it serves.
            ClusterError: it does not answer.
        """
        version = await self._read("/version", _Version)
        resource = await self._versions(RESOURCE_GROUP)
        self._refuse_unless_served(version, resource)
        scheduling = await self._versions(SCHEDULING_GROUP)
        minor = version.behaving()
        return ServerFacts(
            git_version=version.git_version,
            minor=minor,
            resource_versions=resource,
            scheduling_versions=scheduling,
            pod_groups=await self._kind("podgroups", SCHEDULING_GROUP, POD_GROUP_VERSIONS, scheduling, namespaced=True),
            taint_rules=await self._kind(
                "devicetaintrules", RESOURCE_GROUP, TAINT_RULE_VERSIONS, resource, namespaced=False
            ),
            fields=supports(minor, await self._gates()),
            allocation_groups=await self._allocation_groups(),
        )

    @staticmethod
    def _refuse_unless_served(version: _Version, served: tuple[str, ...]) -> None:
        if "v1" in served:
            return
        said = f"{RESOURCE_GROUP} only as {', '.join(served)}" if served else f"nothing of {RESOURCE_GROUP}"
        raise RequestRejectedError(
            f"This API server ({version.git_version}, behaves as 1.{version.behaving()}) serves {said}. "
            f"dra-extender needs {RESOURCE_GROUP}/v1: Kubernetes 1.{NEEDED_MINOR} or newer, with that version not disabled."
        )

    async def _versions(self, group: str) -> tuple[str, ...]:
        """Return the served versions of a group, the server's favourite first; none if it has no such group."""
        try:
            served = await self._read(f"/apis/{group}", _Group)
        except _AbsentError:
            return ()
        return tuple(version.version for version in served.versions)

    async def _kind(
        self, plural: str, group: str, candidates: tuple[str, ...], served: tuple[str, ...], *, namespaced: bool
    ) -> ResourceKind | None:
        """Return a kind in the newest version that serves it: a version may be served without it."""
        for candidate in candidates:
            if candidate not in served:
                continue
            try:
                listed = await self._read(f"/apis/{group}/{candidate}", _Resources)
            except _AbsentError:
                continue
            if any(resource.name == plural for resource in listed.resources):
                return ResourceKind(plural, f"{group}/{candidate}", namespaced)
        return None

    async def _gates(self) -> dict[str, bool] | None:
        """Return the feature gates by name; None if the server does not publish them."""
        try:
            page = await self._transport.send(
                ApiCall(RequestIntent("get", "/metrics"), "GET", "/metrics", self._timeouts.page)
            )
        except ApiCallError as failed:
            _LOG.info("feature gates of the API server are not readable", problem=str(failed))
            return None
        return {name.decode(): value == b"1" for name, value in _GATE.findall(page)} or None

    async def _allocation_groups(self) -> Support:
        """Return whether the schema has groups in allocations; a gate that is off shows only in what is written."""
        path = f"/openapi/v3/apis/{RESOURCE_GROUP}/v1"
        try:
            document = await self._transport.send(ApiCall(RequestIntent("get", path), "GET", path, self._timeouts.page))
            return Support.KEPT if has_allocation_groups(document) else Support.DROPPED
        except (ApiCallError, msgspec.DecodeError, UnicodeDecodeError) as failed:
            _LOG.info("schema of the API server is not readable", problem=str(failed))
            return Support.UNKNOWN

    async def _read(self, path: str, shape: type[_Shape]) -> _Shape:
        intent = RequestIntent("get", path)
        try:
            body = await self._transport.send(ApiCall(intent, "GET", path, self._timeouts.read))
            return msgspec.json.decode(body, type=shape)
        except ApiCallError as failed:
            if failed.status is not None and failed.status.code == _NOT_FOUND:
                raise _AbsentError(str(failed)) from failed
            raise failed.as_cluster_error() from failed
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise ServerUnavailableError(
                f"{intent}: the answer cannot be read, is this an API server? {problem}"
            ) from problem


def has_allocation_groups(document: bytes) -> bool:
    """Return whether results of allocations have `compatibilityGroups` in the form of KEP-5963: counter set -> list of groups.

    `document` is the OpenAPI v3 document of resource.k8s.io/v1.  A field of that name and of another form is none that we know.

    Raises:
        msgspec.DecodeError: this is no such document: it does not describe the results of allocations.
    """
    schemas = msgspec.json.decode(document, type=_Document).components.schemas
    described = next((schema for name, schema in schemas.items() if name.endswith(_RESULT)), None)
    if described is None:
        raise msgspec.DecodeError(f"no schema {_RESULT.removeprefix('.v1.')}")
    return _has_form(msgspec.json.decode(described, type=_Type).properties.get(_GROUPS), _FORM)


def _has_form(schema: Any, form: Mapping[str, Any]) -> bool:
    """Return whether the schema says all that the form says; it may say more, such as a description."""
    return isinstance(schema, dict) and all(
        _has_form(schema.get(key), value) if isinstance(value, Mapping) else schema.get(key) == value
        for key, value in form.items()
    )
