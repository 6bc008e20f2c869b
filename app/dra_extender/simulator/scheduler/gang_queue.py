"""Gangs in the embedded scheduler: their members are scheduled together, as kube-scheduler's GangScheduling does it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, group_name, part
from dra_extender.simulator.apiserver.store import Store


class Unit(NamedTuple):
    """What is scheduled at once: one pod, or the waiting members of a gang.  At least `needed` of them must fit.

    `wait` says why the gang is not tried yet.
    """

    pods: Sequence[Key]
    needed: int = 0
    wait: str | None = None

    @property
    def is_gang(self) -> bool:
        """Return whether this is a gang, even if just one member waits."""
        return self.needed > 0 or self.wait is not None


def units(store: Store, queue: Sequence[Key]) -> list[Unit]:
    """Return the queue with the members of each gang put together at the place of the first of them."""
    gangs: dict[Key, list[Key]] = {}
    order: list[Key] = []
    for key in queue:
        pod = store.peek(key)
        group = None if pod is None else _gang_key(store, pod)
        if group is None:
            order.append(key)
            continue
        if group not in gangs:
            order.append(group)
        gangs.setdefault(group, []).append(key)
    return [_unit(store, unit_key, gangs[unit_key]) if unit_key in gangs else Unit((unit_key,)) for unit_key in order]


def with_mates(pending: Sequence[Json], is_due: Callable[[Json], bool]) -> list[Json]:
    """Return the pods that are due, and all pods of a group that has a member that is due, in the order given."""
    due = {pod["metadata"]["uid"] for pod in pending if is_due(pod)}
    groups = {_group_name(pod) for pod in pending if pod["metadata"]["uid"] in due} - {None}
    return [pod for pod in pending if pod["metadata"]["uid"] in due or _group_name(pod) in groups]


def _group_name(pod: Json) -> tuple[str, str] | None:
    name = group_name(pod)
    return (pod["metadata"]["namespace"], name) if name else None


def _gang_key(store: Store, pod: Json) -> Key | None:
    """Return the pod's group, unless that is known and no gang."""
    named = _group_name(pod)
    if named is None:
        return None
    key = Key(StoredKind.POD_GROUP, *named)
    group = store.peek(key)
    return key if group is None or _min_count(group) else None


def _unit(store: Store, key: Key, waiting: Sequence[Key]) -> Unit:
    group = store.peek(key)
    if group is None:
        return Unit(waiting, wait=f"waiting for PodGroup {key.name} to appear")
    own = (key.namespace, key.name)
    bound = sum(_group_name(pod) == own and bool(pod["spec"].get("nodeName")) for pod in store.peek_all(StoredKind.POD))
    needed = _min_count(group)
    if bound + len(waiting) < needed:
        return Unit(
            waiting, wait=f"waiting for {needed} pods of PodGroup {key.name} to appear, {bound + len(waiting)} are here"
        )
    return Unit(waiting, needed=max(needed - bound, 1))


def _min_count(group: Json) -> int:
    return int(part(group, "spec", "schedulingPolicy", "gang").get("minCount") or 0)
