"""The rules of kube-scheduler itself that matter beside devices, and its way of putting reasons into one sentence."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from dra_extender.model.api_json import ModelError
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.pod import is_extended
from dra_extender.model.quantity import NANO, QuantityError, parse_quantity
from dra_extender.simulator.apiserver.objects import Json, part
from dra_extender.simulator.controllers.generated_claims import is_finished

NO_NODES = "no nodes available to schedule pods"
_CHECKED = ("cpu", "memory", "ephemeral-storage")


def misfit(pod: Json, node: Json, others: Iterable[Json], backed: Collection[str] = ()) -> str | None:
    """Why the pod cannot run on the node beside the `others` there, as the in-tree plugins say it; None if it can.

    `backed`: extended resources that device classes back, which NodeResourcesFit leaves to others where the node has none.
    """
    if part(node, "spec").get("unschedulable"):
        return "node(s) were unschedulable"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    allocatable = part(node, "status", "allocatable")
    wanted = _checked(requests_of(pod), allocatable, backed)
    if not allocatable:
        return next((f"Insufficient {name}" for name in wanted if is_extended(name)), None)
    neighbours = list(others)
    if "pods" in allocatable and len(neighbours) + 1 > amount(allocatable["pods"]) // NANO:
        return "Too many pods"
    used: Counter[str] = Counter()
    for neighbour in neighbours:
        used.update(requests_of(neighbour))
    for name, more in wanted.items():
        if used[name] + more > amount(allocatable.get(name, "0")):
            return f"Insufficient {name}"
    return None


def _checked(requests: Mapping[str, int], allocatable: Json, backed: Collection[str]) -> dict[str, int]:
    """What NodeResourcesFit compares with what the node has."""
    return {
        name: wanted
        for name, wanted in requests.items()
        if wanted > 0 and (name not in backed or amount(allocatable.get(name, "0")))
    }


def requests_of(pod: Json) -> dict[str, int]:
    """CPU, memory, ephemeral storage and extended resources that the pod asks for, in nano-units; nothing for a pod that has ended.

    Containers add up; an init container counts where it alone asks for more.
    """
    if is_finished(pod):
        return {}
    total: Counter[str] = Counter()
    for container in pod["spec"].get("containers") or []:
        total.update(_requests(container))
    for container in pod["spec"].get("initContainers") or []:
        for name, wanted in _requests(container).items():
            total[name] = max(total[name], wanted)
    return dict(total)


def aggregated(total: int, reasons: Iterable[str]) -> str:
    """The sentence of the FailedScheduling event: every reason with the number of nodes, sorted as text.

    As FitError.Error of kube-scheduler, without the note that preemption adds.
    """
    if total == 0:
        return NO_NODES
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    return f"0/{total} nodes are available:" + (f" {', '.join(counted)}." if counted else "")


def amount(text: str | float) -> int:
    """A quantity in nano-units; one that cannot be read counts as nothing."""
    try:
        return parse_quantity(str(text))
    except QuantityError:
        return 0


def _requests(container: Json) -> dict[str, int]:
    wanted = part(container, "resources", "requests")
    return {name: amount(wanted[name]) for name in sorted(wanted) if name in _CHECKED or is_extended(name)}


def _selected(pod: Json, node: Json) -> bool:
    labels = part(node, "metadata", "labels")
    if any(labels.get(name) != value for name, value in part(pod, "spec", "nodeSelector").items()):
        return False
    required = part(pod, "spec", "affinity", "nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    try:
        return msgspec.convert(required, NodeSelector).matches(node["metadata"]["name"], labels)
    except (msgspec.ValidationError, ModelError):
        return False
