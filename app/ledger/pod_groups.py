from app.model.pod_group import PodGroup


class PodGroupIndex:
    """PodGroups by name.

    `served` tells whether the cluster has PodGroups at all; without them a pod's group is nothing but a name.
    """

    __slots__ = ("_by_key", "served")

    def __init__(self) -> None:
        self.served = False
        self._by_key: dict[tuple[str, str], PodGroup] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, namespace: str, name: str) -> PodGroup | None:
        """The PodGroup with this name."""
        return self._by_key.get((namespace, name))

    def put(self, group: PodGroup) -> PodGroup | None:
        """Add or replace; returns the previous state."""
        self.served = True
        old = self._by_key.get(group.metadata.key)
        self._by_key[group.metadata.key] = group
        return old

    def drop(self, namespace: str, name: str, uid: str) -> PodGroup | None:
        """Remove; returns what was there.  A group of the same name with another UID stays."""
        known = self._by_key.get((namespace, name))
        if known is None or (uid and known.metadata.uid != uid):
            return None
        return self._by_key.pop((namespace, name))
