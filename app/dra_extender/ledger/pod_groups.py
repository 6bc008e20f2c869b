"""PodGroups, and whether their claims are reserved for the group or for each of its pods."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from dra_extender.model.node import Node
from dra_extender.model.pod_group import PodGroup

GROUP_RESERVATIONS_FEATURE: Final = "DRAWorkloadResourceClaims"
"""What a node declares if its kubelet runs pods whose claims are reserved for their PodGroup; no release declares it yet."""
START_LABEL: Final = "dra-extender.io/pod-group-claims"
"""A label by which an administrator says of a node whether its kubelet starts such pods: `true` or `false`."""


def known_on(node: Node) -> bool | None:
    """Return what the node's label or its kubelet says of pods that are reserved only through their PodGroup, if anything."""
    label = node.labels.get(START_LABEL)
    if label in ("true", "false"):
        return label == "true"
    return True if GROUP_RESERVATIONS_FEATURE in node.declared_features else None


class GroupEntryPolicy(StrEnum):
    """When pods get the entry of their PodGroup in `reservedFor` of a claim instead of entries of their own (256 at most).

    A kubelet whose gate is off refuses pods that are reserved only through their group.  AUTO reserves for the group on nodes
    that declare the feature, and where a claim has many entries already (`GroupEntryTrials`).  Such a kubelet also refuses
    a claim that was generated from a template of the group, whatever its reservations are.  So AUTO reserves that claim for the
    group, and with NEVER no pod can use it.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"

    def applies_on(self, node: Node | None) -> bool:
        """Return whether to reserve for the group; without a node, when it is not known yet where the pod will run."""
        if self is GroupEntryPolicy.AUTO:
            return node is not None and known_on(node) is True
        return self is GroupEntryPolicy.ALWAYS

    @property
    def may_apply(self) -> bool:
        """Return whether some kubelet may start pods with what was generated for their group."""
        return self is not GroupEntryPolicy.NEVER


class PodGroupIndex:
    """PodGroups by name.

    `served`: whether the cluster has PodGroups at all; without them a pod's group is nothing but a name.  `have_claims` is the
    feature KEP-5729: without it a group has no claims.  `entry_policy`: which consumer their claims are reserved for.
    `ends_entries`: whether a controller removes the entry of a PodGroup that is gone; otherwise AUTO adds none to make room.
    """

    def __init__(self) -> None:
        self.served = False
        self.have_claims = True
        self.ends_entries = True
        self.entry_policy = GroupEntryPolicy.AUTO
        self._by_key: dict[tuple[str, str], PodGroup] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def all(self) -> Iterable[PodGroup]:
        return self._by_key.values()

    def get(self, namespace: str, name: str) -> PodGroup | None:
        return self._by_key.get((namespace, name))

    def put(self, group: PodGroup) -> PodGroup | None:
        """Add or replace a group; return its previous state."""
        old = self._by_key.get(group.metadata.key)
        self._by_key[group.metadata.key] = group
        return old

    def drop(self, namespace: str, name: str, uid: str) -> PodGroup | None:
        """Remove a group and return it.  A group of the same name with another UID stays."""
        group = self._by_key.get((namespace, name))
        if group is None or (uid and group.metadata.uid != uid):
            return None
        return self._by_key.pop((namespace, name))
