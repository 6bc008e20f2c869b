"""What objects in files refer to and do not find, and what they would change although an API server refuses the change."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.alignment import DOMAIN
from dra_extender.cel.lint.findings import warning
from dra_extender.cel.values.quantity import parse_quantity
from dra_extender.inspection.near_names import names_there, nearest_name_text
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.lint.codes import ManifestCode
from dra_extender.lint.read import LintFile, PlacedFinding, as_v1, list_at, object_label, placed, value_at
from dra_extender.manifests.api_defaults import bodies, fill_in
from dra_extender.manifests.documents import FieldPath, YamlDocument
from dra_extender.manifests.problems import path_text
from dra_extender.model.api_json import ModelError, decode_object
from dra_extender.model.device_class import IMPLICIT_RESOURCE_PREFIX
from dra_extender.model.pod import is_extended
from dra_extender.simulator.apiserver.objects import KIND_OF, NAMESPACE, Json, Key, StoredKind

_TEMPLATE: Final[FieldPath] = ("spec", "template", "spec")
_POD_SPECS: Final[Mapping[str, FieldPath]] = {
    "Pod": ("spec",),
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
}
CLAIM_SOURCES: Final[Mapping[str, StoredKind]] = {
    "resourceClaimName": StoredKind.CLAIM,
    "resourceClaimTemplateName": StoredKind.TEMPLATE,
}
_CLAIM_SPECS: Final[Mapping[StoredKind, FieldPath]] = {
    StoredKind.CLAIM: ("spec", "devices"),
    StoredKind.TEMPLATE: ("spec", "spec", "devices"),
}
_CONFIGURED: Final[Mapping[str, FieldPath]] = {
    StoredKind.CLASS.singular: ("spec", "config"),
    **{kind.singular: (*path, "config") for kind, path in _CLAIM_SPECS.items()},
}
"""Where objects have configuration for drivers."""
_OF_CLAIMS: Final = ("requests", "constraints")
_NAMED: Final = (StoredKind.CLAIM, StoredKind.TEMPLATE, StoredKind.POD_GROUP, StoredKind.CLASS)
"""The kinds that pods and PodGroups name."""
_POLICY: Final = ("spec", "schedulingPolicy")
_FIXED: Final[Mapping[StoredKind, Sequence[FieldPath]]] = {
    **{kind: tuple((*path, field) for field in _OF_CLAIMS) for kind, path in _CLAIM_SPECS.items()},
    StoredKind.POD_GROUP: (("spec", "resourceClaims"), _POLICY),
    StoredKind.POD: (("spec", "resourceClaims"), ("spec", "schedulingGroup")),
}
"""Fields that no update may change."""
_SELECTOR: Final = ("spec", "deviceSelector")
_TAINTS_NOTHING: Final = "the rule taints nothing"
_MOST_COMPARED: Final = 200_000
"""Pairs of names that are compared in all to find what was meant."""


class _Written(NamedTuple):
    """An object of a file; `item` is the mapping of fields that the document has."""

    file: str
    document: YamlDocument
    kind: str
    namespace: str
    item: Json

    @property
    def label(self) -> str:
        return object_label(self.item)

    def finding(self, field: FieldPath, code: ManifestCode, message: str, advice: str = "") -> PlacedFinding:
        where = self.document.position_of(field)
        return placed(self.file, where, self.label, warning(code, 0, message, advice), path_text(field))


class _Names(NamedTuple):
    """Names that exist; `complete`: all of them are known."""

    names: Collection[str]
    complete: bool


class _ExistingObjects:
    """The claims, claim templates, PodGroups, classes, drivers and extended resources of files and cluster.

    `source` says where they are.
    """

    def __init__(self, objects: ClusterObjects | None, written: Sequence[_Written]) -> None:
        self.source = "these files" if objects is None else f"{objects.origin.source} or these files"
        self.stored: dict[Key, Json] = {}
        unread = {missing.kind for missing in objects.origin.missing} if objects is not None else set(StoredKind)
        self._complete = frozenset(kind for kind in StoredKind if kind.value not in unread)
        for kind in dict.fromkeys((*_FIXED, *_NAMED)) if objects is not None else ():
            for data in objects.of_kind(kind.value) if objects is not None else ():
                item: Json = msgspec.json.decode(data)
                self.stored[_key(kind, item["metadata"].get("namespace", NAMESPACE), item)] = item
        own = {
            _key(KIND_OF[entry.kind], entry.namespace, entry.item): entry.item
            for entry in written
            if entry.kind in KIND_OF
        }
        self._by_key = self.stored | own
        self._slices = [entry.item for entry in written if entry.kind == StoredKind.SLICE.singular]
        asks = any(entry.kind == StoredKind.TAINT_RULE.singular or _configured(entry) for entry in written)
        for data in objects.of_kind(StoredKind.SLICE.value) if objects is not None and asks else ():
            with suppress(ModelError):
                self._slices.append(decode_object("ResourceSlice", data))
        self._names: dict[tuple[StoredKind, str], set[str]] = {}
        for key in self._by_key:
            self._names.setdefault((key.kind, key.namespace), set()).add(key.name)
        self._nodes = () if objects is None else objects.of_kind(StoredKind.NODE.value)
        self._written_nodes = [entry.item for entry in written if entry.kind == StoredKind.NODE.singular]
        self._compared = 0

    @cached_property
    def published(self) -> Mapping[str, Mapping[str, Collection[str]]]:
        """The names of devices by driver and pool."""
        devices: dict[str, dict[str, set[str]]] = {}
        for item in self._slices:
            driver, pool = (str(value_at(item, ("spec", *path))) for path in (("driver",), ("pool", "name")))
            names = (str(value_at(device, ("name",))) for device in list_at(item, ("spec", "devices")))
            devices.setdefault(driver, {}).setdefault(pool, set()).update(names)
        return devices

    def of_slices(self, names: Collection[str]) -> _Names:
        """Return names in slices, which are all if all slices are known."""
        return _Names(names, StoredKind.SLICE in self._complete)

    @cached_property
    def resources(self) -> _Names:
        """The extended resources that nodes have, and those that DeviceClasses serve by a name of their own."""
        nodes = (*map(msgspec.json.decode, self._nodes), *self._written_nodes)
        allocatable = (value_at(node, ("status", "allocatable")) for node in nodes)
        names = {str(name) for amounts in allocatable if isinstance(amounts, dict) for name in amounts}
        names.update(
            str(value_at(item, ("spec", "extendedResourceName")))
            for key, item in self._by_key.items()
            if key.kind is StoredKind.CLASS
        )
        complete = bool(self._nodes) and self._complete >= {StoredKind.NODE, StoredKind.CLASS}
        return _Names(frozenset(filter(is_extended, names)), complete)

    def find(self, key: Key) -> Json | None:
        return self._by_key.get(key)

    def names(self, kind: StoredKind, namespace: str) -> _Names:
        return _Names(self._names.get((kind, namespace), ()), kind in self._complete)

    def instead(self, missing: str, existing: _Names) -> str:
        """Return what exists instead of a name that does not, as `names_there` does, until many names were compared."""
        self._compared += len(existing.names)
        if self._compared > _MOST_COMPARED:
            return ""
        return (names_there if existing.complete else nearest_name_text)(missing, existing.names)


def unknown_names(
    objects: ClusterObjects | None, files: Iterable[LintFile], own_namespace: str = NAMESPACE
) -> Iterator[PlacedFinding]:
    """Yield a warning for each claim, template, PodGroup, class, request, driver or extended resource that does not exist.

    Also yield a warning for each object whose requests, claims or group differ from those of the object of the same name in the
    cluster: they cannot be changed.

    Args:
        objects: The cluster; None: names are reported only if the files have a name that resembles them.
        files: What cannot be read is left out.
        own_namespace: Where objects are whose files name none.
    """
    written: list[_Written] = []
    for file in files:
        for document in file.objects:
            item = document.value
            metadata = value_at(item, ("metadata",))
            if isinstance(metadata, dict):
                namespace = str(metadata.get("namespace") or own_namespace)
                written.append(_Written(file.name, document, str(item.get("kind")), namespace, item))
    existing = _ExistingObjects(objects, written)
    for entry in written:
        if entry.kind in _POD_SPECS:
            yield from _unknown_in(entry, _POD_SPECS[entry.kind], existing, pods=True)
        elif entry.kind == StoredKind.POD_GROUP.singular:
            yield from _unknown_in(entry, ("spec",), existing, pods=False)
        elif entry.kind == "Workload":
            for index, _ in enumerate(list_at(entry.item, ("spec", "podGroupTemplates"))):
                yield from _unknown_in(entry, ("spec", "podGroupTemplates", index), existing, pods=False)
        elif entry.kind == StoredKind.TAINT_RULE.singular:
            yield from _unselected(entry, existing)
        # With a cluster, such a claim is found because no node can ever serve it.
        for field in _classes_asked_for(entry) if objects is None else ():
            name = value_at(entry.item, field)
            yield from _missing_object(entry, field, Key(StoredKind.CLASS, "", str(name)), existing)
        for field in _configured(entry):
            yield from _unknown_driver(entry, field, "nothing reads this configuration", existing)
        yield from _changed(entry, existing)


def _classes_asked_for(written: _Written) -> Iterator[FieldPath]:
    """Yield the fields in which the requests of a claim, or of a claim template, name a class."""
    devices = next((path for kind, path in _CLAIM_SPECS.items() if kind.singular == written.kind), None)
    requests: FieldPath = () if devices is None else (*devices, "requests")
    for index, request in enumerate(list_at(written.item, requests) if requests else ()):
        field = (*requests, index)
        alternatives = list_at(request, ("firstAvailable",))
        # In v1beta1, a request has the fields of `exactly`.
        bodies_of_request = (field, (*field, "exactly"))
        for body in (*bodies_of_request, *((*field, "firstAvailable", number) for number in range(len(alternatives)))):
            if isinstance(value_at(written.item, (*body, "deviceClassName")), str):
                yield (*body, "deviceClassName")


def _configured(written: _Written) -> Sequence[FieldPath]:
    """Return the fields that name a driver for which the object has configuration."""
    configurations = _CONFIGURED.get(written.kind, ())
    return [
        (*configurations, index, "opaque", "driver")
        for index, _ in enumerate(list_at(written.item, configurations) if configurations else ())
    ]


def _unknown_driver(
    written: _Written, field: FieldPath, consequence: str, existing: _ExistingObjects
) -> Iterator[PlacedFinding]:
    name = value_at(written.item, field)
    if isinstance(name, str) and name != DOMAIN:
        message = f"no ResourceSlice in {existing.source} is of driver {name}, and {consequence}"
        yield from _missing(written, field, name, existing.of_slices(existing.published), message, existing)


def _unselected(rule: _Written, existing: _ExistingObjects) -> Iterator[PlacedFinding]:
    """Yield a finding if no device has the driver, the pool, or the name that a DeviceTaintRule selects."""
    values = (value_at(rule.item, (*_SELECTOR, name)) for name in ("driver", "pool", "device"))
    driver, pool, device = (value if isinstance(value, str) else "" for value in values)
    if driver and driver not in existing.published:
        yield from _unknown_driver(rule, (*_SELECTOR, "driver"), _TAINTS_NOTHING, existing)
        return
    pools: dict[str, set[str]] = {}
    for pools_of_driver in (existing.published.get(driver, {}),) if driver else existing.published.values():
        for name, devices in pools_of_driver.items():
            pools.setdefault(name, set()).update(devices)
    of_driver = f" of driver {driver}" if driver else ""
    if pool and pool not in pools:
        message = f"no ResourceSlice in {existing.source} is of pool {pool}{of_driver}, and {_TAINTS_NOTHING}"
        yield from _missing(rule, (*_SELECTOR, "pool"), pool, existing.of_slices(pools), message, existing)
    elif device:
        names = set().union(*([pools[pool]] if pool else pools.values()))
        of_pool = f" of pool {pool}" if pool else ""
        message = (
            f"no ResourceSlice{of_driver}{of_pool} in {existing.source} has device {device}, and {_TAINTS_NOTHING}"
        )
        yield from _missing(rule, (*_SELECTOR, "device"), device, existing.of_slices(names), message, existing)


def _key(kind: StoredKind, namespace: str, item: Json) -> Key:
    return Key(kind, namespace if kind.namespaced else "", str(item["metadata"].get("name", "")))


def _unknown_in(
    written: _Written, spec: FieldPath, existing: _ExistingObjects, *, pods: bool
) -> Iterator[PlacedFinding]:
    group = (*spec, "schedulingGroup", "podGroupName")
    if pods:
        yield from _unknown(written, group, StoredKind.POD_GROUP, existing)
    claims: dict[str, tuple[StoredKind, str]] = {}
    entries = (*spec, "resourceClaims")
    for index, entry in enumerate(list_at(written.item, entries)):
        for field, kind in CLAIM_SOURCES.items():
            name = value_at(entry, (field,))
            if isinstance(name, str):
                claims[str(entry.get("name"))] = kind, name
                yield from _unknown(written, (*entries, index, field), kind, existing)
    for field in ("initContainers", "containers") if pods else ():
        for number, _ in enumerate(list_at(written.item, (*spec, field))):
            yield from _unknown_resources(written, (*spec, field, number, "resources"), existing)
            uses = (*spec, field, number, "resources", "claims")
            for index, use in enumerate(list_at(written.item, uses)):
                if isinstance(use, dict) and str(use.get("name")) in claims:
                    yield from _unknown_request(written, (*uses, index, "request"), claims[str(use["name"])], existing)


def _unknown_resources(written: _Written, resources: FieldPath, existing: _ExistingObjects) -> Iterator[PlacedFinding]:
    """Yield a finding for each resource that a container asks for and that neither a DeviceClass nor a node provides."""
    asked: dict[str, tuple[FieldPath, Any]] = {}
    for field in ("requests", "limits"):
        amounts = value_at(written.item, (*resources, field))
        for resource, amount in amounts.items() if isinstance(amounts, dict) else ():
            asked[str(resource)] = (*resources, field, resource), amount
    for name, (path, amount) in asked.items():
        if name.startswith(IMPLICIT_RESOURCE_PREFIX):
            class_name = name.removeprefix(IMPLICIT_RESOURCE_PREFIX)
            yield from _missing_object(written, path, Key(StoredKind.CLASS, "", class_name), existing)
        elif is_extended(name) and str(amount) != "0":
            message = f"no node in {existing.source} has {name}, and no DeviceClass there serves it"
            yield from _missing(written, path, name, existing.resources, message, existing)


def _unknown(
    written: _Written, field: FieldPath, kind: StoredKind, existing: _ExistingObjects
) -> Iterator[PlacedFinding]:
    name = value_at(written.item, field)
    if isinstance(name, str):
        yield from _missing_object(written, field, Key(kind, written.namespace, name), existing)


def _missing_object(
    written: _Written, field: FieldPath, key: Key, existing: _ExistingObjects
) -> Iterator[PlacedFinding]:
    full_name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    message = f"{key.kind.singular} {full_name} is not in {existing.source}"
    yield from _missing(written, field, key.name, existing.names(key.kind, key.namespace), message, existing)


def _missing(
    written: _Written, field: FieldPath, name: str, names: _Names, message: str, existing: _ExistingObjects
) -> Iterator[PlacedFinding]:
    """Yield a finding if the name does not exist, as far as all names are known, or one resembles it."""
    if name not in names.names:
        instead = existing.instead(name, names)
        if names.complete or instead:
            yield written.finding(field, ManifestCode.UNKNOWN_NAME, message + instead)


def _unknown_request(
    written: _Written, field: FieldPath, claim: tuple[StoredKind, str], existing: _ExistingObjects
) -> Iterator[PlacedFinding]:
    """Yield a finding if a container names a request that the claim does not have: the container gets no device then."""
    kind, name = claim
    request_name, item = value_at(written.item, field), existing.find(Key(kind, written.namespace, name))
    if not isinstance(request_name, str) or item is None:
        return
    requests = [str(value_at(request, ("name",))) for request in list_at(item, (*_CLAIM_SPECS[kind], "requests"))]
    if requests and request_name not in requests:
        message = f"{kind.singular} {name} has no request {request_name}, and the container gets no device"
        yield written.finding(field, ManifestCode.UNKNOWN_NAME, message + names_there(request_name, requests))


def _changed(written: _Written, existing: _ExistingObjects) -> Iterator[PlacedFinding]:
    kind = KIND_OF.get(written.kind)
    stored = None if kind is None else existing.stored.get(_key(kind, written.namespace, written.item))
    if kind is None or stored is None:
        return
    try:
        declared, stored_value = _comparable(kind, as_v1(written.item)), _comparable(kind, stored)
    except (AttributeError, TypeError, KeyError, ValueError):
        # A field has a wrong type, which is a finding of its own.
        return
    for field in _FIXED.get(kind, ()):
        if value_at(declared, field) != value_at(stored_value, field):
            message = (
                f"{written.label} exists in namespace {written.namespace} with another value, which cannot be changed"
            )
            yield written.finding(field, ManifestCode.IMMUTABLE, message, "another name, or delete the object first")


def _comparable(kind: StoredKind, item: Json) -> Any:
    """Return a copy with the defaults of an API server, amounts as numbers, and without what is empty."""
    item = msgspec.json.decode(msgspec.json.encode(item))
    fill_in(kind.value, item)
    for body in bodies(value_at(item, _CLAIM_SPECS[kind][:-1])) if kind in _CLAIM_SPECS else ():
        amounts = value_at(body, ("capacity", "requests")) or {}
        amounts.update({name: parse_quantity(str(amount)) for name, amount in amounts.items()})
    if kind is StoredKind.POD_GROUP:
        # A group may not become a gang, nor a gang another group; how many members a gang needs may change.
        item["spec"][_POLICY[-1]] = dict.fromkeys(value_at(item, _POLICY) or (), True)
    return _without_empty(item)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {name: _without_empty(item) for name, item in value.items()}
        return {name: item for name, item in fields.items() if item}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value
