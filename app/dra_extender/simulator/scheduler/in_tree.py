"""What kube-scheduler itself says of nodes before the extender is asked, and the sentence in which it reports reasons."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from dra_extender.model.api_json import ModelError
from dra_extender.model.device_class import device_class_from
from dra_extender.model.quantity import NANO
from dra_extender.nodefit.node_facts import FitNode, fit_node_from, reported
from dra_extender.nodefit.node_fit import NodeFit
from dra_extender.nodefit.pod_needs import PodNeeds, pod_needs_from
from dra_extender.nodefit.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from dra_extender.simulator.apiserver.objects import Json, StoredKind
from dra_extender.simulator.apiserver.store import Store

NO_NODES: Final = "no nodes available to schedule pods"
UNLISTED: Final = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE, PODS), 2**63 * NANO)
"""What a node has of these if its manifest does not say: no kubelet reports it here, and stories are about devices."""


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


def aggregated(total: int, reasons: Iterable[str]) -> str:
    """The sentence of the FailedScheduling event: every reason with the number of nodes, sorted as text.

    As FitError.Error of kube-scheduler, without the note that preemption adds.
    """
    if total == 0:
        return NO_NODES
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    return f"0/{total} nodes are available:" + (f" {', '.join(counted)}." if counted else "")


def _nodes(nodes: Iterable[Json]) -> Iterator[FitNode]:
    for each in nodes:
        with suppress(ModelError):
            yield fit_node_from(each, UNLISTED)


def _bound(pods: Iterable[Json]) -> Iterator[PodNeeds]:
    for each in pods:
        if each["spec"].get("nodeName"):
            with suppress(ModelError):
                yield pod_needs_from(each)
