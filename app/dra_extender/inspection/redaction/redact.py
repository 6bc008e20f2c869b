"""The objects of a snapshot with other names: order, equality and amounts are as they were, names and sentences are gone."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from dra_extender.allocator.demand.alignment import DOMAIN, PreferencesError, read_preferences
from dra_extender.inspection.objects import ALL_KINDS, ClusterObjects, MissingKind, keep_fields
from dra_extender.inspection.redaction.names import REDACTED, ClusterNames
from dra_extender.inspection.why.reported import mark_of, reworded
from dra_extender.ledger.guard_index import DEVICE_ANNOTATION
from dra_extender.model.allocation import DeviceResult, OpaqueConfiguration
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, Snapshot, allocation_digest
from dra_extender.model.api_json import Value, decode_object
from dra_extender.model.device import PHYSICAL_DEVICE, AttributeBody, DeviceBody
from dra_extender.model.fields import (
    Anything,
    Flag,
    Format,
    ListOf,
    MapOf,
    Mark,
    Number,
    Record,
    Shape,
    Text,
    fields_of,
)
from dra_extender.model.node_selector import NodeSelectorRequirement
from dra_extender.model.objects import WATCHED
from dra_extender.model.pod import PodObject
from dra_extender.model.resource_claim import EXTENDED_ANNOTATION
from dra_extender.model.resource_slice import SliceSpec
from dra_extender.model.templated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION
from dra_extender.nodefit.node_fit import CONDITION_TAINTS
from dra_extender.scheduling.claims.extended_need import REQUEST_NAME

Rule = Callable[[Any, ClusterNames], Any]
"""From a value in decoded JSON to what stands in its place.  A text in a place where the API has none is a name."""
TextRule = Callable[[ClusterNames, str], str | None]

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_NUMBER: Final = re.compile(r"-?\d{1,20}")
_INSUFFICIENT: Final = "Insufficient "
_SCHEDULER_REASONS: Final = frozenset(
    {
        "Too many pods",
        "node(s) didn't find available persistent volumes to bind",
        "node(s) didn't have free ports for the requested pod ports",
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod topology spread constraints (missing required label)",
        "node(s) didn't match the requested node name",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "node(s) exceed max volume count",
        "node(s) had no available volume zone",
        "node(s) had volume node affinity conflict",
        "node(s) were unschedulable",
    }
)
"""Reasons of kube-scheduler in which nothing is named."""
_GROUPS: Final = "compatibilityGroups["
_SUPPLIED: Final = (
    "bindingConditions",
    "bindingFailureConditions",
    "bindsToNode",
    "compatibleOnlyWith",
    "compatibilityGroups",
)
_OF_THE_API: Final = frozenset(
    {
        *("v1", "apps/v1", "batch/v1", "resource.k8s.io", "scheduling.k8s.io", "pods", "podgroups", "Pod", "PodGroup"),
        *("TCP", "UDP", "SCTP", "0.0.0.0"),  # noqa: S104 - words of ports
        *("DoNotSchedule", "ScheduleAnyway"),
        *("Warning", "FailedScheduling", "FailedResourceClaimCreation", "FailedCreate", "ResourceClaim", "Workload"),
        *("ReplicaSet", "Job", "StatefulSet", "DaemonSet", "Deployment", "JobSet"),
        *("True", "False", "Unknown", "Pending", "Running", "Succeeded", "Failed", "Always"),
        *(
            "NoSchedule",
            "NoExecute",
            "PreferNoSchedule",
            "None",
            "Exists",
            "Equal",
            "DoesNotExist",
            "In",
            "NotIn",
            "Gt",
            "Lt",
        ),
        *("ExactCount", "All", "FromClass", "FromClaim", "metadata.name", "true", "false"),
        *("PodScheduled", "PodReadyToStartContainers", "Ready", "Initialized", "ContainersReady", "Unschedulable"),
        *("SchedulerError", "SchedulingGated", "DRAOptionalNodeOperations"),
        "node.kubernetes.io/unschedulable",
        *(word for (condition, _), key in CONDITION_TAINTS.items() for word in (condition, key)),
        *("resource.kubernetes.io/delete-protection", "scheduling.k8s.io/podgroup-protection"),
    }
)
"""Words of the API itself; any other word may be a name."""


def _rule_of(shape: Shape, attribute: str = "") -> Rule:
    """Return the rule for values of this shape; `attribute` is the attribute of a device (domain/name) that they belong to."""
    match shape:
        case Record(struct):
            return _SPECIAL.get(struct) or partial(_redact_record, _record(struct, attribute))
        case ListOf(item):
            return partial(_redact_list, _rule_of(item, attribute))
        case MapOf(labels=True):
            return _redact_labels
        case MapOf(value=Text(Format.ANNOTATION)):
            return _redact_annotations
        case MapOf(key, value):
            return partial(_redact_map, _rule_of(key), _rule_of(value))
        case Text(Format.ATTRIBUTE_TEXT):
            return partial(_redact_text, lambda names, text: names.value(attribute, text))
        case Text(text_format, one_of):
            return partial(_redact_text, partial(_redact_choice, one_of) if one_of else _TEXT_RULES[text_format])
        case Number() | Flag():
            return _misplaced
        case Anything():
            return partial(_redact_record, {})
        case _:
            assert_never(shape)


def _record(struct: type[Value], attribute: str = "") -> Mapping[str, Rule]:
    return {
        field.name: _rule_of(field.shape, attribute) for field in fields_of(struct) if Mark.LEFT_OUT not in field.marks
    }


def _redact_record(fields: Mapping[str, Rule], value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return _misplaced(value, names)
    return {name: rule(value[name], names) for name, rule in fields.items() if name in value}


def _redact_list(rule: Rule, value: Any, names: ClusterNames) -> Any:
    return [rule(item, names) for item in value] if isinstance(value, list) else _misplaced(value, names)


def _redact_map(keys: Rule, values: Rule, value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return _misplaced(value, names)
    return {keys(name, names): values(item, names) for name, item in value.items()}


def _redact_text(rule: TextRule, value: Any, names: ClusterNames) -> Any:
    return rule(names, value) if isinstance(value, str) else _misplaced(value, names)


def _misplaced(value: Any, names: ClusterNames) -> Any:
    """Keep a number or nothing; a text becomes a name, and of anything else the type is left."""
    if isinstance(value, str):
        return names.text(value)
    return type(value)() if isinstance(value, list | dict) else value


def _redact_reason(names: ClusterNames, text: str) -> str:
    """Redact a reason of kube-scheduler, or any other sentence, and keep the words by which `why` tells its kind."""
    if text in _SCHEDULER_REASONS:
        return text
    if text.startswith(_INSUFFICIENT) and " " not in text.removeprefix(_INSUFFICIENT):
        return _INSUFFICIENT + names.resource(text.removeprefix(_INSUFFICIENT))
    words, _ = mark_of(text)
    return f"{REDACTED}: {words}" if words else REDACTED


def _redact_choice(choices: tuple[str | bool, ...], names: ClusterNames, text: str) -> str:
    return text if text in choices else _redact_word(names, text)


def _redact_word(names: ClusterNames, text: str) -> str:
    return text if text in _OF_THE_API else names.text(text)


def _redact_label(names: ClusterNames, text: str) -> str:
    """Redact a name, and keep that of a request for extended resources: it is found by its place in the pod."""
    return text if REQUEST_NAME.fullmatch(text) else names.text(text)


def _redact_path(names: ClusterNames, text: str) -> str:
    """Redact names that slashes join."""
    return "/".join(map(names.text, text.split("/")))


def _redact_counter_set(names: ClusterNames, text: str) -> str:
    prefix = PHYSICAL_DEVICE if text.startswith(PHYSICAL_DEVICE) else ""
    return prefix + _redact_path(names, text.removeprefix(prefix))


def _redact_supplied(names: ClusterNames, text: str) -> str:
    """Redact the name of a field of a device that a policy supplied."""
    if text.startswith(_GROUPS) and text.endswith("]"):
        return f"{_GROUPS}{_redact_counter_set(names, text[len(_GROUPS) : -1])}]"
    return text if text in _SUPPLIED else names.text(text)


def _redact_labels(value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return _misplaced(value, names)
    return {names.text(key): names.label(key, text) for key, text in value.items() if isinstance(text, str)}


def _redact_annotations(value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return _misplaced(value, names)
    return {key: rule(value[key], names) for key, rule in _ANNOTATIONS.items() if key in value}


def _redact_snapshot(value: Any, names: ClusterNames) -> Any:
    """Redact the annotation that freezes an allocation; `digest` is put right when the allocation is redacted."""
    try:
        snapshot = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, TypeError):
        return names.text(value) if isinstance(value, str) else None
    return msgspec.json.encode(_FROZEN(snapshot, names)).decode()


def _redact_requirement(value: Any, names: ClusterNames) -> Any:
    """Redact a requirement of a node selector; with Gt and Lt it compares numbers."""
    requirement = _redact_record(_REQUIREMENT, value, names)
    if isinstance(value, Mapping) and value.get("operator") in ("Gt", "Lt") and isinstance(value.get("key"), str):
        numbers = value.get("values")
        if isinstance(numbers, list):
            requirement["values"] = [names.compared(value["key"], text) for text in numbers if isinstance(text, str)]
    return requirement


def _redact_slice_spec(value: Any, names: ClusterNames) -> Any:
    """Redact the spec of a slice; attributes without a domain are those of the slice's driver."""
    spec = _redact_record(_SLICE_SPEC, value, names)
    if not isinstance(value, Mapping) or not isinstance(value.get("devices"), list):
        return spec
    own = value.get("driver")
    for device, redacted in zip(value["devices"], spec["devices"], strict=True):
        if isinstance(device, Mapping) and "attributes" in device:
            redacted["attributes"] = _attributes(own if isinstance(own, str) else "", device["attributes"], names)
    return spec


def _attributes(own: str, value: Any, names: ClusterNames) -> Any:
    if not isinstance(value, Mapping):
        return _misplaced(value, names)
    attributes = {}
    for key, attribute in value.items():
        domain, _, short = key.rpartition("/")
        attributes[names.qualified(key)] = _redact_record(
            _record(AttributeBody, f"{domain or own}/{short}"), attribute, names
        )
    return attributes


def _redact_pod(value: Any, names: ClusterNames) -> Any:
    """Redact a pod; the UID of one that is not bound matters beyond its order."""
    pod = _redact_record(_POD, value, names)
    metadata, spec = pod.get("metadata"), pod.get("spec")
    is_bound = isinstance(spec, dict) and spec.get("nodeName")
    if isinstance(metadata, dict) and isinstance(metadata.get("uid"), str) and not is_bound:
        metadata["uid"] = names.waiting_pod(value["metadata"]["uid"])
    return pod


_DEVICE: Final[dict[str, Rule]] = {}


def _redact_opaque(value: Any, names: ClusterNames) -> Any:
    """Redact configuration of a driver without its parameters; of our own domain the preferred attributes stay, renamed."""
    if isinstance(value, Mapping) and value.get("driver") == DOMAIN:
        try:
            preferences = read_preferences(msgspec.json.encode(value.get("parameters")))
        except PreferencesError:
            return {"driver": DOMAIN}
        attributes = tuple(map(names.qualified, preferences.match_attributes))
        renamed = msgspec.structs.replace(preferences, match_attributes=attributes)
        return {"driver": DOMAIN, "parameters": msgspec.to_builtins(renamed)}
    return _redact_record(_OPAQUE, value, names)


_TEXT_RULES: Final[Mapping[Format, TextRule]] = MappingProxyType(
    {
        Format.NAME: ClusterNames.text,
        Format.SUBDOMAIN: ClusterNames.text,
        Format.POOL: ClusterNames.text,
        Format.LABEL_VALUE: ClusterNames.text,
        Format.WORD: _redact_word,
        Format.LABEL_KEY: _redact_word,
        Format.TOLERATION_KEY: _redact_word,
        Format.DRIVER: ClusterNames.driver,
        Format.QUALIFIED_NAME: ClusterNames.qualified,
        Format.FULLY_QUALIFIED_NAME: ClusterNames.qualified,
        Format.CAPACITY: ClusterNames.qualified,
        Format.QUANTITY: ClusterNames.amount,
        Format.RESOURCE: ClusterNames.resource,
        Format.EXTENDED_RESOURCE: ClusterNames.resource,
        Format.DNS_LABEL: _redact_label,
        Format.REQUEST: lambda names, text: "/".join(_redact_label(names, label) for label in text.split("/")),
        Format.COUNTER_SET: _redact_counter_set,
        Format.SUPPLIED_FIELD: _redact_supplied,
        Format.EXPRESSION: ClusterNames.expression,
        Format.UNCOMPILED_EXPRESSION: ClusterNames.expression,
        Format.VERSION: ClusterNames.version,
        Format.ATTRIBUTE_VERSION: ClusterNames.version,
        Format.RESOURCE_VERSION: lambda names, text: text if _NUMBER.fullmatch(text) else names.text(text),
        Format.TIME: lambda _, text: text if _TIME.fullmatch(text) else None,
        Format.DIGEST: lambda _names, _text: "",
        Format.SENTENCE: lambda names, text: reworded(text, partial(_redact_reason, names)),
        Format.PLAIN: lambda _, text: REDACTED if text else text,
    }
)
"""The rule for texts of each format; attributes and annotations have their own."""
_OPAQUE: Final[Mapping[str, Rule]] = {"driver": partial(_redact_text, ClusterNames.driver)}
_SPECIAL: Final[Mapping[type[Value], Rule]] = {
    NodeSelectorRequirement: _redact_requirement,
    DeviceBody: partial(_redact_record, _DEVICE),
    SliceSpec: _redact_slice_spec,
    PodObject: _redact_pod,
    OpaqueConfiguration: _redact_opaque,
}
_ANNOTATIONS: Final[Mapping[str, Rule]] = {
    SNAPSHOT_ANNOTATION: _redact_snapshot,
    **dict.fromkeys((ENTRY_ANNOTATION, DRAFTED_ENTRY_ANNOTATION), partial(_redact_text, ClusterNames.text)),
    EXTENDED_ANNOTATION: partial(_redact_text, _redact_word),
    DEVICE_ANNOTATION: partial(_redact_text, _redact_path),
}
_DEVICE.update({name: rule for name, rule in _record(DeviceBody).items() if name != "attributes"})
_REQUIREMENT: Final = _record(NodeSelectorRequirement)
_SLICE_SPEC: Final = _record(SliceSpec)
_POD: Final = _record(PodObject)
_FROZEN: Final = _rule_of(Record(Snapshot))

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {kind: _rule_of(Record(struct)) for kind, struct in WATCHED.items()}
)
"""The rule for objects of each kind."""


_SOURCE: Final = "a redacted snapshot"


class Redacted(NamedTuple):
    """The objects with other names, and the names that had to stay; `names` has both, and is not to be kept."""

    objects: ClusterObjects
    kept_names: tuple[str, ...]
    names: ClusterNames


def redacted(objects: ClusterObjects, random: Random) -> Redacted:
    """Return the objects with other names, which `random` draws.

    Decisions about them are those about the objects, with other names.

    Raises:
        ModelError: an object is no JSON object.
        UnorderableNameError: names that have to stay leave no room for another one between them.
    """
    decoded = {
        kind: [keep_fields(kind, decode_object(kind, data)) for data in objects.of_kind(kind)]
        for kind in ALL_KINDS
        if kind in objects.by_kind
    }
    names = ClusterNames()
    for kind, items in decoded.items():
        for item in items:
            RULES[kind](item, names)
    _missing(objects, names)
    names.resolve(random)
    by_kind: dict[str, list[bytes]] = {}
    for kind, items in decoded.items():
        redacted_items = [RULES[kind](item, names) for item in items]
        for before, after in zip(items, redacted_items, strict=True) if kind == "resourceclaims" else ():
            _put_digest_right(before, after)
        by_kind[kind] = [msgspec.json.encode(item) for item in redacted_items]
    origin = msgspec.structs.replace(objects.origin, source=_SOURCE, missing=_missing(objects, names))
    return Redacted(ClusterObjects(origin, by_kind), names.kept_names, names)


def _missing(objects: ClusterObjects, names: ClusterNames) -> tuple[MissingKind, ...]:
    """Return what could not be read, without sentences; the namespace that could be read has another name."""
    return tuple(
        msgspec.structs.replace(missing, reason=REDACTED, namespace=missing.namespace and names.text(missing.namespace))
        for missing in objects.origin.missing
    )


def _put_digest_right(item: Mapping[str, Any], redacted_claim: Any) -> None:
    """Let the annotation of the redacted allocation have its digest, if that of the allocation has."""
    before, after = _frozen(item), _frozen(redacted_claim)
    if before is not None and after is not None and before["digest"] == _digest(item, before):
        after["digest"] = _digest(redacted_claim, after)
        redacted_claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION] = msgspec.json.encode(after).decode()


def _frozen(item: Mapping[str, Any]) -> Any:
    metadata = item.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(SNAPSHOT_ANNOTATION) if isinstance(annotations, dict) else None
    try:
        snapshot = msgspec.json.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return None
    return snapshot if isinstance(snapshot, dict) and "digest" in snapshot else None


def _digest(item: Mapping[str, Any], frozen: Mapping[str, Any]) -> str | None:
    """Return the digest of the allocation at the time that the annotation has: some API servers store no time."""
    try:
        results = msgspec.convert(item["status"]["allocation"]["devices"]["results"], tuple[DeviceResult, ...])
    except (KeyError, TypeError, msgspec.ValidationError):
        return None
    time = frozen.get("allocationTimestamp")
    return allocation_digest(results, time if isinstance(time, str) else None)
