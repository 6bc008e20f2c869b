"""Names of objects as people type them: `NAME`, `NAMESPACE/NAME` as answers print them, and `KIND/NAME` as kubectl takes them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import typer

_MOST_SHOWN: Final = 100
_GROUP: Final = ".resource.k8s.io"


class NamedKind(StrEnum):
    """Kinds that a command line can name."""

    POD = "pod"
    CLAIM = "resourceclaim"
    TEMPLATE = "resourceclaimtemplate"
    NODE = "node"


_SPELLED: Final[Mapping[str, NamedKind]] = MappingProxyType(
    {
        "po": NamedKind.POD,
        "no": NamedKind.NODE,
        **{f"{kind}{plural}": kind for kind in NamedKind for plural in ("", "s")},
        **{f"{kind}{plural}{_GROUP}": kind for kind in (NamedKind.CLAIM, NamedKind.TEMPLATE) for plural in ("", "s")},
    }
)
"""Kinds by what may stand before the slash; `kubectl get -o name` prints claims with their group."""


class ObjectName(NamedTuple):
    """An object that a command line names; a node has no namespace."""

    kind: NamedKind
    namespace: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def object_name(text: str, namespace: str, *kinds: NamedKind) -> ObjectName:
    """Read the name of an object of one of these kinds; a name without a kind is of the first, without a namespace in this one.

    `KIND/NAMESPACE/NAME` names an object in a namespace that is called as a kind is.

    Raises:
        BadParameter: the text is no name of an object of these kinds.
    """
    before, slash, path = text.partition("/")
    kind = _SPELLED.get(before.lower()) if slash else None
    if kind is None:
        kind, path = kinds[0], text
    *space, name = path.split("/")
    is_node = kind is NamedKind.NODE
    if kind not in kinds or not name or len(space) > (0 if is_node else 1) or not all(space):
        expected = [
            "NAME",
            *(() if kinds == (NamedKind.NODE,) else ("NAMESPACE/NAME",)),
            *(f"{candidate}/NAME" for candidate in kinds),
        ]
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
        raise typer.BadParameter(f"expected {', '.join(expected[:-1])} or {expected[-1]}, got {shown!r}")
    return ObjectName(kind, "" if is_node else (space or [namespace])[0], name)


def pod_key(text: str, namespace: str) -> tuple[str, str]:
    """Return namespace and name of a pod; see `object_name`."""
    return object_name(text, namespace, NamedKind.POD).key


def pod_text(key: str) -> str:
    """Return `NAMESPACE/NAME` of a pod so that `pod_key` reads it: with its kind if the namespace is called as a kind is."""
    return f"{NamedKind.POD}/{key}" if key.partition("/")[0].lower() in _SPELLED else key


def node_name(text: str) -> str:
    """Return the name of a node; see `object_name`."""
    return object_name(text, "", NamedKind.NODE).name
