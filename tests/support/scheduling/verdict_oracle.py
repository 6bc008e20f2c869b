"""What may be allocated beside what, read from KEP-5963, KEP-4815 and KEP-5075; uses nothing of the program.

A device is one member of each counter set that it draws on, however many shares of it there are.  It counts as it was when it
was allocated: with its snapshots if there are some (all group lists, the highest amounts), else as it is published now.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Groups = tuple[str, ...]
View = Mapping[str, tuple[int, frozenset[Groups]]]
"""Counter set -> (units, the group lists that the device has there)."""
PHYSICAL = "physical-device/"


@dataclass(frozen=True)
class Thing:
    """A device as it is published now, with what the policy says of it; without `memory` it has no such capacity."""

    parts: Mapping[str, tuple[int, Groups]]
    shared: bool = False
    memory: int | None = None


@dataclass(frozen=True)
class Given:
    """One allocation of a device; `frozen` is its snapshot, None without any."""

    device: str
    share: bool = False
    memory: int = 0
    admin: bool = False
    frozen: View | None = None


@dataclass
class Oracle:
    """One pool: what is published, and what is allocated."""

    totals: dict[str, int] = field(default_factory=dict)
    things: dict[str, Thing] = field(default_factory=dict)
    given: list[Given] = field(default_factory=list)

    def today(self, device: str) -> View:
        """The device as it is published now."""
        parts = self.things[device].parts if device in self.things else {}
        return {name: (units, frozenset([groups])) for name, (units, groups) in parts.items()}

    def view(self, device: str, given: Iterable[Given]) -> View:
        """As what the device counts, which these allocations hold.

        A physical device that the policy names by now has it as a member, with the groups of one that was frozen, or with none.
        """
        found = merged(given)
        if found is None:
            return self.today(device)
        physical = frozenset().union(*(lists for name, (_, lists) in found.items() if name.startswith(PHYSICAL)))
        named = {name for name in self.today(device) if name.startswith(PHYSICAL) and name not in found}
        return {**found, **{name: (0, physical or frozenset([()])) for name in named}}

    def frozen_for(self, device: str) -> View:
        """The snapshot of an allocation of this device that is made now: that of its shares, else as it is published now."""
        found = merged(self.of(device))
        return self.today(device) if found is None else found

    def of(self, device: str) -> list[Given]:
        """Allocations that take something of the device."""
        return [each for each in self.given if each.device == device and not each.admin]

    def violates(self, added: Sequence[Given]) -> bool:
        """Whether these additions break a rule that would hold for what they touch without them, or join what is broken."""
        added = [each for each in added if not each.admin]
        devices = {each.device for each in added}
        return any(self.misuses(device, added) for device in devices) or any(
            self._breaks(name, [device for device in devices if not self.of(device)], added)
            for device in devices
            if not self.of(device)
            for name in self.view(device, [each for each in added if each.device == device])
        )

    def misuses(self, device: str, added: Sequence[Given]) -> bool:
        mine = [each for each in added if each.device == device]
        everybody = [*self.of(device), *mine]
        if len(everybody) > 1 and not all(each.share for each in everybody):
            return True
        there_is = self.things[device].memory if device in self.things else None
        taken = sum(each.memory for each in everybody)
        return there_is is not None and any(each.memory > 0 for each in mine) and taken > there_is

    def _breaks(self, name: str, joining: Sequence[str], added: Sequence[Given]) -> bool:
        """Whether the devices that join make, or find, this counter set overdrawn or its members without a common group."""
        members = dict(self.members(name))
        before = sum(units for units, _ in members.values())
        for device in joining:
            view = self.view(device, [each for each in added if each.device == device])
            if name in view:
                members[device] = view[name]
        drawn = sum(units for units, _ in members.values())
        overdrawn = name in self.totals and drawn > before and drawn > self.totals[name]
        return overdrawn or not meets(groups for _, lists in members.values() for groups in lists)

    def members(self, name: str) -> Iterator[tuple[str, tuple[int, frozenset[Groups]]]]:
        """Who holds something of this counter set."""
        for device in {each.device for each in self.given}:
            view = self.view(device, self.of(device)) if self.of(device) else {}
            if name in view:
                yield device, view[name]

    def sets(self) -> set[str]:
        """All counter sets on which somebody draws."""
        held = {each.device for each in self.given if not each.admin}
        return {name for device in held for name in self.view(device, self.of(device))}

    def overdrawn(self) -> bool:
        """Whether more is drawn of some counter than there is."""
        return any(sum(units for _, (units, _) in self.members(name)) > total for name, total in self.totals.items())

    def contradicts(self) -> bool:
        """Whether anything that is allocated should not be beside something else."""
        held = {each.device for each in self.given if not each.admin}
        return (
            self.overdrawn()
            or any(Oracle(self.totals, self.things).misuses(device, self.of(device)) for device in held)
            or any(not meets(g for _, (_, lists) in self.members(name) for g in lists) for name in self.sets())
        )


def merged(given: Iterable[Given]) -> View | None:
    """What the snapshots of one device say together; None without any."""
    snapshots = [each.frozen for each in given if each.frozen is not None]
    found: dict[str, tuple[int, frozenset[Groups]]] = {}
    for snapshot in snapshots:
        for name, (units, lists) in snapshot.items():
            before, others = found.get(name, (0, frozenset()))
            found[name] = (max(before, units), others | lists)
    return found if snapshots else None


def meets(lists: Iterable[Groups]) -> bool:
    """KEP-5963: all have no groups, or some group is in every list."""
    found = list(lists)
    return all(not each for each in found) or any(all(group in each for each in found) for group in "abc")
