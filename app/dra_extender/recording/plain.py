"""Values of the ports as a recording has them: JSON with the fields that decisions read, and no others."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dra_extender.inspection.kept_fields import cut_to, kept
from dra_extender.model import managed_fields
from dra_extender.model.api_json import decode_any
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup

_ANYTHING: Final = msgspec.json.Decoder()
KIND_OF_PORT: Final[Mapping[str, str]] = {
    "claims": "resourceclaims",
    "claim_templates": "resourceclaimtemplates",
    "pods": "pods",
    "pod_groups": "podgroups",
}
"""The plural kind of the objects that a port of the cluster reads and writes."""
UNREADABLE: Final = {"unreadable": True}
"""Stands for an object that is no JSON object."""


def object_of(kind: str, data: bytes) -> Any:
    """An object as it is recorded."""
    try:
        found = decode_any(_ANYTHING, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNREADABLE
    return recorded(kind, found) if isinstance(found, dict) else UNREADABLE


def recorded(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the fields that decisions read: those of a snapshot, and who wrote what of a claim."""
    found = kept(kind, item)
    metadata = item.get("metadata")
    managed = metadata.get("managedFields") if kind == "resourceclaims" and isinstance(metadata, dict) else None
    if managed is not None:
        found["metadata"]["managedFields"] = cut_to(managed, managed_fields.READ)
    return found


def argument_of(kind: str, value: Any) -> Any:
    """An argument of a method: objects of the model by their identity."""
    if isinstance(value, bytes):
        return object_of(kind, value)
    if isinstance(value, Pod):
        return {"namespace": value.namespace, "name": value.name, "uid": value.uid}
    if isinstance(value, PodGroup):
        meta: ObjectMeta = value.metadata
        return {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid, "version": meta.resource_version}
    return msgspec.to_builtins(value)


def result_of(kind: str, value: Any) -> Any:
    """What a method returned."""
    return object_of(kind, value) if isinstance(value, bytes) else msgspec.to_builtins(value, enc_hook=list)


def call_body(verb: str, body: bytes) -> Any:
    """The body of a call: its pods and nodes as objects are recorded, names as they are; None if it is no JSON object."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or verb == "bind":
        return found if isinstance(found, dict) else None
    if isinstance(found.get("Pod"), dict):
        found["Pod"] = kept("pods", found["Pod"])
    if isinstance(found.get("Nodes"), dict):
        found["Nodes"] = _nodes(found["Nodes"])
    victims = found.get("NodeNameToVictims")
    for each in victims.values() if isinstance(victims, dict) else ():
        if isinstance(each, dict) and isinstance(each.get("Pods"), list):
            each["Pods"] = [kept("pods", pod) if isinstance(pod, dict) else pod for pod in each["Pods"]]
    return found


def answer_text(verb: str, answer: bytes) -> str:
    """The answer to a call; whole nodes in it as in the call."""
    if verb == "filter" and answer.startswith(b'{"Nodes":{'):
        found = msgspec.json.decode(answer)
        return msgspec.json.encode({**found, "Nodes": _nodes(found["Nodes"])}).decode()
    return answer.decode()


def _nodes(nodes: dict[str, Any]) -> dict[str, Any]:
    items = nodes.get("items")
    found = [kept("nodes", each) if isinstance(each, dict) else each for each in items or ()]
    return {**nodes, "items": found if isinstance(items, list) else items}
