"""What an API server serves, and which optional fields it keeps."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog

from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.objects import CLAIM_TEMPLATES, DISRUPTION_BUDGETS, WARNINGS, WATCHED, ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.model.fields import Gate
from dra_extender.scheduling.ports.cluster import NotFoundError, RequestRejectedError, ServerUnavailableError

_Shape = TypeVar("_Shape")

RESOURCE_GROUP: Final = "resource.k8s.io"
SCHEDULING_GROUP: Final = "scheduling.k8s.io"
NEEDED_MINOR: Final = 34
# The last two are served by no release: a later version, and that of the first draft of KEP-5729.
POD_GROUP_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2", "v1", "v1alpha1")
TAINT_RULE_VERSIONS: Final = ("v1", "v1beta2", "v1alpha3")
_GATE = re.compile(rb'^kubernetes_feature_enabled\{[^}\n]*\bname="([^"]+)"[^}\n]*\} ([01])\b', re.MULTILINE)

_LOG = structlog.get_logger(__name__)


class Support(StrEnum):
    """Whether an API server stores an optional field."""

    KEPT = "kept"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


class OptionalField(NamedTuple):
    """Fields that an API server drops without an error while a feature gate is off, and what does not work without them."""

    name: str
    gate: Gate
    lost: str


EXTENDED_RESOURCES: Final = "extended-resources"
DEVICES_BESIDE_COUNTERS_UNTIL: Final = 34
"""The last minor release of Kubernetes 1 whose slices may have devices beside counter sets; later ones refuse such slices."""
OPTIONAL_FIELDS: Final = (
    OptionalField("compatibility-groups", Gate.COMPATIBILITY_GROUPS, "drivers cannot publish groups"),
    OptionalField("partitionable-devices", Gate.PARTITIONABLE_DEVICES, "drivers cannot publish shared counters"),
    OptionalField(
        "consumable-capacity", Gate.CONSUMABLE_CAPACITY, "devices cannot be shared, nor consumed capacity stored"
    ),
    OptionalField("binding-conditions", Gate.BINDING_CONDITIONS, "drivers cannot publish conditions to wait for"),
    OptionalField("device-status", Gate.DEVICE_STATUS, "drivers cannot report conditions of devices"),
    OptionalField(
        EXTENDED_RESOURCES,
        Gate.EXTENDED_RESOURCES,
        "pods cannot be told of a claim, so extended resources are served by nodes that list them and by no device class",
    ),
    OptionalField("device-taints", Gate.DEVICE_TAINTS, "devices cannot be tainted"),
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What an API server is and serves.

    `minor` is the release of Kubernetes 1 as which it behaves (an emulated version counts, not the build).
    `pod_groups` and `taint_rules`: the kinds to watch, None where they are not served.
    `fields`: support by name of `OPTIONAL_FIELDS`.
    `allocation_groups`: whether the API's schema has `compatibilityGroups` in allocation results as KEP-5963 plans it.
    """

    git_version: str
    minor: int
    pod_groups: ResourceKind | None
    taint_rules: ResourceKind | None
    fields: Mapping[str, Support]
    allocation_groups: Support = Support.UNKNOWN

    def kinds(self) -> Mapping[str, ResourceKind]:
        """Return the kinds that a reader may ask for, by plural name."""
        optional = {kind.plural: kind for kind in (self.pod_groups, self.taint_rules) if kind is not None}
        unwatched = {kind.plural: kind for kind in (CLAIM_TEMPLATES, WARNINGS, DISRUPTION_BUDGETS)}
        return {**WATCHED, **unwatched, **optional}

    def notes(self) -> Mapping[str, str]:
        """Return sentences for people, by name: the version, and each field or kind that is missing or uncertain."""
        notes = {"api-server": f"{self.git_version}, behaves as 1.{self.minor}"}
        for field in OPTIONAL_FIELDS:
            support = self.fields.get(field.name, Support.UNKNOWN)
            if support is Support.UNKNOWN:
                notes[field.name] = (
                    f"unknown until an object carries it: /metrics does not tell us about gate {field.gate.gate_name}"
                )
            elif support is Support.DROPPED:
                is_older = self.minor < field.gate.since
                reason = f"behaves as 1.{self.minor}" if is_older else f"gate {field.gate.gate_name} is off"
                notes[field.name] = f"not served by this API server ({reason}): {field.lost}"
        if self.allocation_groups is Support.KEPT:
            notes["allocation-groups"] = "the groups of allocated devices are written to the allocation, too"
        elif self.allocation_groups is Support.UNKNOWN:
            notes["allocation-groups"] = "the API's schema cannot be read: groups are kept only in the annotation"
        if self.pod_groups is None:
            notes["pod-groups"] = "not served by this API server: pods are placed one by one"
        if self.taint_rules is None:
            notes["device-taint-rules"] = "not served by this API server: only taints in slices count"
        return notes


def supports(minor: int, gates: Mapping[str, bool] | None) -> Mapping[str, Support]:
    """Return the support of each optional field at a release, given the gates that the server publishes (None: none)."""
    return MappingProxyType({field.name: _support(field.gate, minor, gates) for field in OPTIONAL_FIELDS})


def _support(gate: Gate, minor: int, gates: Mapping[str, bool] | None) -> Support:
    if minor < gate.since:
        return Support.DROPPED
    if gate.always is not None and minor >= gate.always:
        return Support.KEPT
    if gates is None:
        return Support.UNKNOWN
    # A server that reports its gates but not this one has outgrown it.
    return Support.KEPT if gates.get(gate.gate_name, True) else Support.DROPPED


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
        minor = version.behaving()
        if "v1" not in resource:
            versions = f"{RESOURCE_GROUP} only as {', '.join(resource)}" if resource else f"nothing of {RESOURCE_GROUP}"
            raise RequestRejectedError(
                f"This API server ({version.git_version}, behaves as 1.{minor}) serves {versions}. "
                f"dra-extender needs {RESOURCE_GROUP}/v1: Kubernetes 1.{NEEDED_MINOR} or newer, with that version not disabled."
            )
        scheduling = await self._versions(SCHEDULING_GROUP)
        return ServerFacts(
            git_version=version.git_version,
            minor=minor,
            pod_groups=await self._kind("podgroups", SCHEDULING_GROUP, POD_GROUP_VERSIONS, scheduling, namespaced=True),
            taint_rules=await self._kind(
                "devicetaintrules", RESOURCE_GROUP, TAINT_RULE_VERSIONS, resource, namespaced=False
            ),
            fields=supports(minor, await self._gates()),
            allocation_groups=await self._allocation_groups(),
        )

    async def _versions(self, group: str) -> tuple[str, ...]:
        """Return the served versions of a group, the server's favourite first; none if it has no such group."""
        try:
            served = await self._read(f"/apis/{group}", _Group)
        except NotFoundError:
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
            except NotFoundError:
                continue
            if any(resource.name == plural for resource in listed.resources):
                return ResourceKind(plural, f"{group}/{candidate}", namespaced)
        return None

    async def _gates(self) -> dict[str, bool] | None:
        """Return the feature gates by name; None if the server does not publish them."""
        try:
            page = await self._get("/metrics", self._timeouts.page)
        except ApiCallError as failed:
            _LOG.info("feature gates of the API server are not readable", problem=str(failed))
            return None
        return {name.decode(): value == b"1" for name, value in _GATE.findall(page)} or None

    async def _allocation_groups(self) -> Support:
        """Return whether the schema has groups in allocations; a gate that is off shows only in what is written."""
        try:
            document = await self._get(f"/openapi/v3/apis/{RESOURCE_GROUP}/v1", self._timeouts.page)
            return Support.KEPT if has_allocation_groups(document) else Support.DROPPED
        except (ApiCallError, msgspec.DecodeError, UnicodeDecodeError) as failed:
            _LOG.info("schema of the API server is not readable", problem=str(failed))
            return Support.UNKNOWN

    async def _get(self, path: str, seconds: float) -> bytes:
        return await self._transport.send(ApiCall(RequestIntent("get", path), "GET", path, seconds))

    async def _read(self, path: str, shape: type[_Shape]) -> _Shape:
        try:
            return msgspec.json.decode(await self._get(path, self._timeouts.read), type=shape)
        except ApiCallError as failed:
            raise failed.as_cluster_error() from failed
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise ServerUnavailableError(
                f"get {path}: the answer cannot be read, is this an API server? {problem}"
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
