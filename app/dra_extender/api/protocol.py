"""The JSON that kube-scheduler and its extenders exchange (k8s.io/kube-scheduler/extender/v1).

The Go structs there have no JSON tags, so keys are capitalised Go names, all present, unused ones null.  Answers have exactly these
keys; requests are read with other capitalisation too, as Go does.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from dra_extender.api.decoding import NULL, Name, Namespace, Uid
from dra_extender.model.metadata import encoded_moment
from dra_extender.scheduling.ports.filter_response import OneText


class NodeList(Struct, frozen=True, gc=False):
    """Whole nodes, as `nodeCacheCapable: false` sends them; items are kept as they came, to be sent back."""

    items: tuple[Raw, ...] | None = None


class ExtenderArgs(Struct, frozen=True, gc=False):
    """Request of filter and prioritize; one of the two lists of nodes is null.

    Nothing is read yet: the pod is mostly known from the watch, and of thousands of names only the first few matter.
    """

    pod: Raw = field(name="Pod")
    nodes: Raw = field(name="Nodes", default=NULL)
    node_names: Raw = field(name="NodeNames", default=NULL)


class FeasibleNodes(Struct, frozen=True, gc=False):
    """The nodes that fit, as they came."""

    items: list[Raw]
    metadata: dict[str, str] = {}


class WireFilterResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """Answer to filter; a missing list of nodes would mean that none fits."""

    nodes: FeasibleNodes | None = field(name="Nodes", default=None)
    node_names: list[str] | tuple[str, ...] | None = field(name="NodeNames", default=None)
    failed_and_unresolvable_nodes: Raw | Mapping[str, str] | None = field(
        name="FailedAndUnresolvableNodes", default=None
    )


class ErrorResult(Struct, frozen=True, gc=False):
    """An answer that is nothing but the reason why there is none; filter and bind have this field in the protocol."""

    error: str = field(name="Error")


class WireHostPriority(Struct, frozen=True, gc=False):
    """One entry of the answer to prioritize; the score is an integer from 0 to 10."""

    host: str = field(name="Host")
    score: int = field(name="Score")


class ExtenderBindingArgs(Struct, frozen=True, gc=False):
    """Request of bind."""

    pod_name: Name = field(name="PodName")
    pod_namespace: Namespace = field(name="PodNamespace")
    pod_uid: Uid = field(name="PodUID")
    node: Name = field(name="Node")


class MetaPod(Struct, frozen=True, gc=False):
    """A victim."""

    uid: Uid = field(name="UID")


class WireMetaVictims(Struct, frozen=True, gc=False):
    """Victims on one node by descending priority, and how many disruption budgets their eviction would break."""

    pods: tuple[MetaPod, ...] | None = field(name="Pods", default=None)
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class _VictimMetadata(Struct, frozen=True, gc=False):
    uid: Uid


class _VictimPod(Struct, frozen=True, gc=False):
    metadata: _VictimMetadata


class Victims(Struct, frozen=True, gc=False):
    """As MetaVictims, with whole pods."""

    pods: tuple[_VictimPod, ...] | None = field(name="Pods", default=None)
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class ExtenderPreemptionArgs(Struct, frozen=True, gc=False):
    """Request of preempt; `nodeCacheCapable` decides which of the two maps (node -> Victims or MetaVictims) is used."""

    pod: Raw = field(name="Pod")
    node_name_to_victims: Raw = field(name="NodeNameToVictims", default=NULL)
    node_name_to_meta_victims: Raw = field(name="NodeNameToMetaVictims", default=NULL)


class ExtenderPreemptionResult(Struct, frozen=True, gc=False):
    """Answer to preempt, in either mode; a node that is left out is not preempted on."""

    node_name_to_meta_victims: dict[str, WireMetaVictims] = field(name="NodeNameToMetaVictims")


class _NodeMetadata(Struct, frozen=True, gc=False):
    name: Name


class NamedNode(Struct, frozen=True, gc=False):
    """The name inside a whole node."""

    metadata: _NodeMetadata


encode: Final = msgspec.json.Encoder(enc_hook=encoded_moment).encode


def encode_texts(texts: Mapping[str, str], *, plain: bool) -> Raw | Mapping[str, str] | None:
    """Encode the texts by name of node as JSON; return None if there are none.

    One text for all nodes is encoded once: it has quotes, which have to be escaped.  `plain`: the names need no escapes.
    """
    if not texts or not isinstance(texts, OneText):
        return texts or None
    if not plain:
        return texts.as_dict()
    text = encode(texts.text).decode()
    names = f'":{text},"'.join(texts.nodes)
    return Raw(f'{{"{names}":{text}}}'.encode())
