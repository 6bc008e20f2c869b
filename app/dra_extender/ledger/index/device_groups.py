from collections.abc import Iterable
from typing import Generic, TypeVar

from dra_extender.model.resource_slice import ResourceSlice

K = TypeVar("K")


class GroupedSlices(Generic[K]):
    """Slices in groups, each in order of names; a group is sorted again when it was asked for and has changed since."""

    __slots__ = ("_members", "_sorted")

    def __init__(self) -> None:
        self._members: dict[K, dict[str, ResourceSlice]] = {}
        self._sorted: dict[K, tuple[ResourceSlice, ...]] = {}

    def of(self, key: K) -> tuple[ResourceSlice, ...]:
        """The slices of a group."""
        found = self._sorted.get(key)
        if found is None:
            members = self._members.get(key)
            if members is None:
                return ()
            found = self._sorted[key] = tuple(members[name] for name in sorted(members))
        return found

    def unordered(self, key: K) -> Iterable[ResourceSlice]:
        """The slices of a group in any order."""
        return self._members.get(key, {}).values()

    def put(self, key: K, item: ResourceSlice) -> None:
        """Add a slice to a group, in place of one of the same name."""
        self._sorted.pop(key, None)
        self._members.setdefault(key, {})[item.name] = item

    def drop(self, key: K, name: str) -> None:
        """Remove a slice from a group."""
        self._sorted.pop(key, None)
        members = self._members.get(key)
        if members is not None:
            members.pop(name, None)
            if not members:
                del self._members[key]
