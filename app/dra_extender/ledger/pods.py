from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from dra_extender.ledger.set_index import discard_member
from dra_extender.model.metadata import version_number
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache

_MOST_DELETED_UIDS: Final = 20_000
_MOST_SCHEDULERS: Final = 1_000


class PodIndex:
    """Pods by UID, by name and by PodGroup, the pods that were deleted, and the pods that wait for a node."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Pod] = {}
        self._by_key: dict[tuple[str, str], str] = {}
        self._by_group: dict[tuple[str, str], set[str]] = {}
        self._running: dict[tuple[str, str], set[str]] = {}
        self._group_parts: Counter[tuple[str, str]] = Counter()
        self._being_bound: dict[str, Pod] = {}
        self._deleted: LruCache[str, None] = LruCache(_MOST_DELETED_UIDS)
        # How many pods wait for a node, by scheduler and namespace.
        self._waiting: dict[str, dict[str, int]] = {}
        # Those of them that need devices, by scheduler and UID.
        self._needing_devices: dict[str, dict[str, Pod]] = {}
        # Names of schedulers that have bound a pod, reported on one, or asked about one.
        self._acting: LruCache[str, None] = LruCache(_MOST_SCHEDULERS)
        # UIDs of pods for which kube-scheduler has offered nodes since it reported that none takes them.
        self._asked: set[str] = set()

    def __len__(self) -> int:
        return len(self._by_uid)

    def all(self) -> Iterable[Pod]:
        return self._by_uid.values()

    def by_uid(self, uid: str) -> Pod | None:
        return self._by_uid.get(uid)

    def by_key(self, namespace: str, name: str) -> Pod | None:
        uid = self._by_key.get((namespace, name))
        return None if uid is None else self._by_uid.get(uid)

    def members(self, namespace: str, group: str) -> tuple[Pod, ...]:
        uids = self._by_group.get((namespace, group), ())
        return tuple(sorted((self._by_uid[uid] for uid in uids), key=lambda pod: pod.name))

    def unbound_parts(self, namespace: str, group: str) -> int:
        """Return how many pods of this PodGroup wait for a node and need devices, with all their claims and extended resources."""
        return self._group_parts[namespace, group]

    def has_running_member(self, namespace: str, group: str, excluding: str = "") -> bool:
        """Return whether a pod of this PodGroup, the one with the UID `excluding` excepted, is bound and not finished."""
        running = self._running.get((namespace, group))
        return running is not None and (len(running) > 1 or excluding not in running)

    def note_asked(self, pod: Pod) -> bool:
        """Note that kube-scheduler offers nodes for this pod; return whether that is news about the pod or its scheduler."""
        news = pod.scheduler_name not in self._acting
        self._acting[pod.scheduler_name] = None
        stored = self._by_uid.get(pod.uid)
        if stored is not None and stored.unschedulable and pod.uid not in self._asked:
            self._asked.add(pod.uid)
            return True
        return news

    def has_acted(self, scheduler: str) -> bool:
        """Return whether a scheduler of this name has bound a pod, reported on one, or asked about one."""
        return scheduler in self._acting

    def report_on(self, pod: Pod) -> str:
        """Return why no node takes the pod as kube-scheduler reports it; empty if it has offered nodes for the pod since."""
        return "" if pod.uid in self._asked else pod.unschedulable

    def begin_binding(self, pod: Pod) -> None:
        """Count a Binding of the pod that is about to be posted, until the watch delivers the pod bound or deleted."""
        if not self.was_deleted(pod.uid):
            self._being_bound[pod.uid] = pod

    def binding_failed(self, uid: str) -> None:
        """Forget a Binding that the API server did not accept, as far as is known."""
        self._being_bound.pop(uid, None)

    def is_being_bound(self, uid: str) -> bool:
        """Return whether a Binding of the pod was posted and the watch has not delivered its result."""
        return uid in self._being_bound

    def another_runs(self, pod: Pod, group: str) -> bool:
        """Return whether a member of this PodGroup other than the pod is bound or is being bound."""
        return self.has_running_member(pod.namespace, group, excluding=pod.uid) or any(
            (member.namespace, member.pod_group) == (pod.namespace, group)
            for uid, member in self._being_bound.items()
            if uid != pod.uid
        )

    def put(self, pod: Pod) -> Pod | None:
        """Add or replace; returns the previous state.  A pod of the same name with another UID is gone."""
        key = (pod.namespace, pod.name)
        previous = self._by_key.get(key)
        if previous is not None and previous != pod.uid:
            self._unindex(self._by_uid.pop(previous, None))
            self._note_deletion(previous)
        self._by_key[key] = pod.uid
        # The watch delivers a deleted pod: the server's store was set back.
        self._deleted.pop(pod.uid, None)
        old = self._by_uid.get(pod.uid)
        if old is not None and (old.namespace, old.name) != key:
            self._by_key.pop((old.namespace, old.name), None)
        self._by_uid[pod.uid] = pod
        if old is not None and old.unschedulable != pod.unschedulable:
            self._asked.discard(pod.uid)
        if pod.attempted and pod.scheduler_name not in self._acting:
            self._acting[pod.scheduler_name] = None
        if pod.node_name:
            self._being_bound.pop(pod.uid, None)
        self._unindex(old)
        if pod.pod_group is not None:
            group = (pod.namespace, pod.pod_group)
            self._by_group.setdefault(group, set()).add(pod.uid)
            if pod.node_name and not pod.finished:
                self._running.setdefault(group, set()).add(pod.uid)
            if parts := _parts(pod):
                self._group_parts[group] += parts
        if pod.waits_for_node:
            of_scheduler = self._waiting.setdefault(pod.scheduler_name, {})
            of_scheduler[pod.namespace] = of_scheduler.get(pod.namespace, 0) + 1
            if pod.needs_devices:
                self._needing_devices.setdefault(pod.scheduler_name, {})[pod.uid] = pod
        return old

    def drop(self, namespace: str, name: str, uid: str) -> Pod | None:
        """Remove a pod and return it."""
        uid = uid or self._by_key.get((namespace, name), "")
        self._note_deletion(uid)
        pod = self._by_uid.pop(uid, None)
        self._unindex(pod)
        if pod is not None and self._by_key.get((pod.namespace, pod.name)) == uid:
            del self._by_key[pod.namespace, pod.name]
        return pod

    def is_resolved(self, uid: str) -> bool:
        """Return whether the watch shows that the pod needs no node any more: it is bound, finished or deleted."""
        pod = self.by_uid(uid)
        return self.was_deleted(uid) or (pod is not None and (bool(pod.node_name) or pod.finished))

    def was_deleted(self, uid: str) -> bool:
        """Return whether the watch delivered the deletion of this pod; False for a pod that it has not delivered yet."""
        return uid in self._deleted

    def waiting_in_other_namespaces(self, pod: Pod) -> bool:
        """Return whether pods of other namespaces wait for the scheduler of this pod."""
        waiting = self._waiting.get(pod.scheduler_name)
        return waiting is not None and len(waiting) > (pod.namespace in waiting)

    def others_waiting_in_namespace(self, pod: Pod) -> bool:
        """Return whether other pods of its namespace wait for the scheduler of this pod to find nodes for them."""
        waiting = self._waiting.get(pod.scheduler_name, {}).get(pod.namespace, 0)
        stored = self._by_uid.get(pod.uid)
        return waiting > (stored is not None and stored.waits_for_node)

    def waiting_for_devices(self, excluding: Collection[str]) -> Iterator[Pod]:
        """Yield the pods that need devices and wait for a node, without those of the schedulers `excluding`."""
        for scheduler, pods in self._needing_devices.items():
            if scheduler not in excluding:
                yield from pods.values()

    def _unindex(self, pod: Pod | None) -> None:
        """Remove the pod from the indexes by group and by scheduler."""
        if pod is not None and pod.pod_group is not None:
            group = (pod.namespace, pod.pod_group)
            for index in (self._by_group, self._running):
                discard_member(index, group, pod.uid)
            if parts := _parts(pod):
                self._group_parts[group] -= parts
                if not self._group_parts[group]:
                    del self._group_parts[group]
        if pod is None or not pod.waits_for_node:
            return
        if pod.needs_devices:
            needing = self._needing_devices[pod.scheduler_name]
            del needing[pod.uid]
            if not needing:
                del self._needing_devices[pod.scheduler_name]
        of_scheduler = self._waiting[pod.scheduler_name]
        of_scheduler[pod.namespace] -= 1
        if not of_scheduler[pod.namespace]:
            del of_scheduler[pod.namespace]
            if not of_scheduler:
                del self._waiting[pod.scheduler_name]

    def _note_deletion(self, uid: str) -> None:
        self._being_bound.pop(uid, None)
        self._asked.discard(uid)
        self._deleted[uid] = None

    def newest(self, pod: Pod) -> Pod:
        """Return the later version of this pod: the given one, or the one that the watch delivered."""
        stored = self._by_uid.get(pod.uid)
        if stored is None or stored is pod or stored.resource_version == pod.resource_version:
            return pod
        if version_number(stored.resource_version) > version_number(pod.resource_version):
            return stored
        return pod


def _parts(pod: Pod) -> int:
    return 1 + pod.parts if pod.waits_for_node and pod.needs_devices else 0
