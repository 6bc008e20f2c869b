"""Which pods may be ended so that they land elsewhere, and why the others may not."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from dra_extender.inspection.defrag.report import StayingPods
from dra_extender.inspection.pod_facts import PodFacts, read_pod_facts
from dra_extender.inspection.what_if.applied_changes import stays_on_its_node
from dra_extender.inspection.what_if.changes import PodKey
from dra_extender.inspection.what_if.trial import Trial
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import device_id_of
from dra_extender.model.pod import Pod
from dra_extender.simulator.apiserver.objects import StoredKind

SYSTEM_PRIORITY: Final = 2_000_000_000
"""The least priority of the classes system-cluster-critical and system-node-critical."""


class MovingPods(NamedTuple):
    """Pods that move together: one pod, or all running members of a gang.

    `nodes`: where an end may free something; None if that may be any node.  `lost`: so many have no controller, which would make
    another one.  `plain`: none of them asks for devices.  `exchange_key`: that of a single pod, empty for the members of a gang.
    """

    pods: tuple[PodFacts, ...]
    nodes: frozenset[str] | None
    lost: int
    priority: int
    plain: bool
    exchange_key: bytes

    @property
    def keys(self) -> tuple[PodKey, ...]:
        return tuple(pod.key for pod in self.pods)


def movable_pods(
    trial: Trial, most_priority: int, own_group: tuple[str, str] | None
) -> tuple[Sequence[MovingPods], tuple[StayingPods, ...]]:
    """Return which running pods may be moved, the preferred first, and those that may not.

    Pods of a priority above `most_priority` stay, and so do members of `own_group`, the PodGroup of the pod that is to fit.
    """
    groups: defaultdict[tuple[str, ...], list[tuple[Pod, PodFacts]]] = defaultdict(list)
    staying: defaultdict[str, list[str]] = defaultdict(list)
    for pod, facts in _running(trial):
        gang = pod.pod_group if trial.needed_members(pod) is not None else None
        groups[(pod.namespace, pod.name, "") if gang is None else (pod.namespace, gang)].append((pod, facts))
    moving = []
    for group, members in groups.items():
        pods = tuple(facts for _, facts in sorted(members, key=lambda member: member[1].key))
        priority = max(pod.priority for pod, _ in members)
        reason = ""
        if group == own_group:
            reason = "member of the PodGroup that is to fit"
        elif priority > most_priority:
            reason = f"priority above {most_priority}"
        else:
            reason = forbidding_budget(trial, pods)
        if reason:
            staying[reason] += ["/".join(facts.key) for facts in pods]
        else:
            lost = sum(not facts.controller for facts in pods)
            exchange_key = trial.exchange_key(members[0][0]) if len(members) == 1 else b""
            plain = not any(pod.needs_devices for pod, _ in members)
            moving.append(
                MovingPods(pods, _nodes_freed(trial, [pod for pod, _ in members]), lost, priority, plain, exchange_key)
            )
    # Preferred are moves by which nothing is lost, then low priorities, then few pods.
    return (
        sorted(moving, key=lambda unit: (unit.lost, unit.priority, len(unit.pods), unit.keys)),
        tuple(StayingPods(reason=reason, pods=tuple(sorted(pods))) for reason, pods in sorted(staying.items())),
    )


def forbidding_budget(trial: Trial, pods: Collection[PodFacts]) -> str:
    """Return which budget forbids to evict these pods together; empty if none does."""
    forbidding = trial.copy.budgets.forbidding(pods)
    if not forbidding:
        return ""
    (namespace, _), budget = min(forbidding.items())
    return f"PodDisruptionBudget {namespace}/{budget} forbids it"


def forbidden_together(reason: str, pods: Collection[PodFacts]) -> StayingPods:
    return StayingPods(reason=f"{reason} together", pods=tuple("/".join(facts.key) for facts in pods))


def _running(trial: Trial) -> Iterator[tuple[Pod, PodFacts]]:
    """Yield the pods that take something of a node, do not belong to it, and do not leave by themselves."""
    for key, data in sorted(trial.copy.store.keyed(StoredKind.POD).items()):
        pod = trial.view.pod(key.namespace, key.name)
        if pod is not None and pod.node_name and not pod.ending:
            with suppress(ModelError):
                facts = read_pod_facts(data)
                if not stays_on_its_node(msgspec.json.decode(data)):
                    yield pod, facts


def _nodes_freed(trial: Trial, pods: Sequence[Pod]) -> frozenset[str] | None:
    """Return the nodes where the end of the pods may free something; None if that may be any node."""
    nodes = {pod.node_name for pod in pods}
    for pod in pods:
        for device in trial.outcome_of(pod).devices:
            reached = trial.view.ledger.slices.nodes_of(device_id_of(device)[:2])
            if reached is None:
                return None
            nodes |= reached
    return frozenset(nodes)
