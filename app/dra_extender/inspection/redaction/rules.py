"""How a field of an object is redacted: rules that are put together as the objects are."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dra_extender.inspection.redaction.names import REDACTED, ClusterNames
from dra_extender.nodefit.node_facts import CONDITION_TAINTS

Rule = Callable[[Any, ClusterNames], Any]
"""From a value in decoded JSON to what stands in its place.  A text in a place where the API has none is a name."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_NUMBER: Final = re.compile(r"-?\d{1,20}")
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


def record(**fields: Rule) -> Rule:
    """An object that keeps these fields and no others."""

    def rule(value: Any, names: ClusterNames) -> Any:
        if not isinstance(value, Mapping):
            return _misplaced(value, names)
        return {name: each(value[name], names) for name, each in fields.items() if name in value}

    return rule


def each(of: Rule) -> Rule:
    """A list."""

    def rule(value: Any, names: ClusterNames) -> Any:
        return [of(item, names) for item in value] if isinstance(value, list) else _misplaced(value, names)

    return rule


def table(keys: Rule, values: Rule) -> Rule:
    """An object whose fields are names."""

    def rule(value: Any, names: ClusterNames) -> Any:
        if not isinstance(value, Mapping):
            return _misplaced(value, names)
        return {keys(name, names): values(item, names) for name, item in value.items()}

    return rule


def _of_text(of: Callable[[str, ClusterNames], str | None]) -> Rule:
    def rule(value: Any, names: ClusterNames) -> Any:
        return of(value, names) if isinstance(value, str) else _misplaced(value, names)

    return rule


def _misplaced(value: Any, names: ClusterNames) -> Any:
    """A number or nothing stays; a text becomes a name, and of anything else the type is left."""
    if isinstance(value, str):
        return names.text(value)
    return type(value)() if isinstance(value, list | dict) else value


def _word(text: str, names: ClusterNames) -> str:
    return text if text in _OF_THE_API else names.text(text)


def _number_text(text: str, names: ClusterNames) -> str:
    return text if _NUMBER.fullmatch(text) else names.text(text)


def _path(text: str, names: ClusterNames) -> str:
    return "/".join(map(names.text, text.split("/")))


name: Final = _of_text(lambda text, names: names.text(text))
driver: Final = _of_text(lambda text, names: names.driver(text))
member: Final = _of_text(lambda text, names: names.member(text))
qualified: Final = _of_text(lambda text, names: names.qualified(text))
resource: Final = _of_text(lambda text, names: names.resource(text))
amount: Final = _of_text(lambda text, names: names.amount(text))
version: Final = _of_text(lambda text, names: names.version(text))
expression: Final = _of_text(lambda text, names: names.expression(text))
word: Final = _of_text(_word)
number_text: Final = _of_text(_number_text)
path: Final = _of_text(_path)
"""Names that slashes join, such as request/alternative."""
sentence: Final = _of_text(lambda text, _: REDACTED if text else text)
time: Final = _of_text(lambda text, _: text if _TIME.fullmatch(text) else None)
number: Final[Rule] = _misplaced
nothing: Final = record()
"""An object that keeps no field."""
