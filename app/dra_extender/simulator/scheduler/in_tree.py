"""What kube-scheduler itself says of nodes before the extender is asked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from dra_extender.model.api_json import ModelError
from dra_extender.model.device_class import device_class_from
from dra_extender.nodefit.node_facts import UNLISTED, FitNode, fit_node_from, reported
from dra_extender.nodefit.node_fit import NodeFit
from dra_extender.nodefit.pod_needs import PodNeeds, pod_needs_from
from dra_extender.simulator.apiserver.objects import Json, StoredKind
from dra_extender.simulator.apiserver.store import Store


class InTree(NamedTuple):
    """The nodes that kube-scheduler's own filters let the pod on, and the reasons against each other one."""

    fitting: list[str]
    reasons: Mapping[str, Sequence[str]]


def judged(pod: Json, store: Store, *, classes_serve: bool) -> InTree:
    """All nodes, by the filters of `nodefit`.

    `classes_serve`: kube-scheduler leaves extended resources that a device class backs to others where the node has none.

    Raises:
        ModelError: the pod cannot be read; the message names the field.
    """
    needs = pod_needs_from(pod)
    classes = store.all(StoredKind.CLASS) if classes_serve else ()
    served = frozenset(name for each in classes for name in device_class_from(each).extended_resources)
    nodes = store.all(StoredKind.NODE)
    fit = NodeFit(_nodes(nodes), _bound(store.all(StoredKind.POD)), served)
    names = [each["metadata"]["name"] for each in nodes]
    reasons = {name: said for name in names if (said := reported(fit.refusals(needs, name)))}
    return InTree([name for name in names if name not in reasons], reasons)


def _nodes(nodes: Iterable[Json]) -> Iterator[FitNode]:
    """No kubelet reports what a node has, and stories are about devices: of what a manifest does not list there is plenty."""
    for each in nodes:
        with suppress(ModelError):
            yield fit_node_from(each, UNLISTED)


def _bound(pods: Iterable[Json]) -> Iterator[PodNeeds]:
    for each in pods:
        if each["spec"].get("nodeName"):
            with suppress(ModelError):
                yield pod_needs_from(each)
