"""Holds whose bind does not come: which they are, and how a pod that fits only without them gets their devices."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.holds import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.scheduling.fairness.hold_shares import HoldShares
from dra_extender.scheduling.permit.permit import Permit, WaitingMembers
from dra_extender.scheduling.ports.cluster import Clock

GATE_SECONDS: Final = 15.0
"""A gang at the gate to which no member has come for so long is stale: kube-scheduler backs off pods for 10 s at most."""


class RevocationScope(Enum):
    """Which stale holds are revoked: those on the very devices, those in their pools, or all."""

    DEVICES = auto()
    POOLS = auto()
    ALL = auto()


@dataclass(frozen=True, slots=True)
class HoldViews:
    """UIDs of claims with holds that may end any moment: all such (`loose`), those with several nodes, and stale ones.

    `freed` is allocated for members of stale gangs that wait at the gate.
    """

    loose: frozenset[str]
    multi_node: frozenset[str]
    stale: frozenset[str]
    freed: tuple[DeviceHolding, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look behind."""
        return not (self.loose or self.freed)

    @property
    def has_stale(self) -> bool:
        """Whether something can be revoked."""
        return bool(self.stale or self.freed)

    def without_loose(self, ledger: Ledger) -> Usage:
        """What is in use when every hold that may end has ended."""
        return ledger.usage_without(self.loose, self.freed)

    def without_stale(self, ledger: Ledger) -> Usage:
        """What is in use when everything stale is revoked."""
        return ledger.usage_without(self.stale, self.freed)

    def without_multi_node(self, ledger: Ledger) -> Usage:
        """What is in use without holds that are about to settle on one of several nodes."""
        return ledger.usage_without(self.multi_node)


_NOTHING: Final = HoldViews(frozenset(), frozenset(), frozenset())


class StaleHolds:
    """Finds and revokes holds that are held for longer than binds take, that no nomination keeps, and whose bind has not begun.

    What belongs together is revoked together: all holds of a pod, the whole plan of a gang with its members at the gate.
    """

    def __init__(
        self, ledger: Ledger, shares: HoldShares, gate: Permit, binding: Collection[str], clock: Clock
    ) -> None:
        """`binding`: UIDs of the pods that are being bound, as they are at the time of each question."""
        self._ledger = ledger
        self._shares = shares
        self._gate = gate
        self._binding = binding
        self._clock = clock
        self._progress: dict[str, float] = {}
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Call the handler with the UID of each pod or PodGroup whose holds are revoked."""
        self._subscribers.append(handler)

    def progressed(self, unit: str) -> None:
        """A further member of this gang was told its node."""
        self._progress[unit] = self._clock.monotonic()
        if len(self._progress) > 2 * len(self._ledger.holds) + 1:
            units = {each.unit for each in self._ledger.holds.all()}
            self._progress = {each: at for each, at in self._progress.items() if each in units or each == unit}

    def views(self, besides: str = "") -> HoldViews:
        """The holds as they are now, `besides` those of this gang or pod."""
        if not len(self._ledger.holds) and not self._gate.has_members:
            return _NOTHING
        holds = [hold for hold in self._ledger.holds.all() if not besides or hold.unit != besides]
        loose = [hold for hold in holds if self._is_loose(hold)]
        gangs = [each for each in self._stale_gangs() if each.uid != besides]
        return HoldViews(
            loose=frozenset(each.claim_uid for each in loose),
            multi_node=frozenset(each.claim_uid for each in holds if not each.is_single_node),
            stale=frozenset(each.claim_uid for each in loose if self._is_stale(each)),
            freed=tuple(holding for each in gangs for holding in self._allocated(each)),
        )

    def revoke(self, wanted: Sequence[ClaimPlacement], scope: RevocationScope) -> None:
        """Revoke what is stale and in the way of these placements."""
        holds = self._ledger.holds
        wanted_holdings = [holding for each in wanted for holding in each.holdings]
        for claim_uid in self.views().stale:
            hold = holds.get(claim_uid)
            if hold is not None and _conflict(wanted_holdings, holds.kept(claim_uid), scope):
                self._end(hold)
        for meeting in self._stale_gangs():
            if _conflict(wanted_holdings, list(self._allocated(meeting)), scope):
                self._send_away(meeting)

    def _is_loose(self, hold: Hold) -> bool:
        return not hold.nominated and not any(uid in self._binding for uid in hold.pods)

    def _is_stale(self, hold: Hold) -> bool:
        """Whether nothing has happened for too long; a gang of which a member is being bound has until that is at the gate."""
        since = max(hold.since, self._progress.get(hold.unit, hold.since))
        if self._clock.monotonic() - since <= self._shares.stale_after:
            return False
        if hold.unit in hold.pods or not hold.unit:
            return True
        meeting = self._gate.waiting_gang(hold.unit)
        if meeting is None:
            return not self._member_is_being_bound(hold)
        return self._is_stale_at_the_gate(meeting)

    def _member_is_being_bound(self, hold: Hold) -> bool:
        """Whether some member of the hold's gang is on its way to the gate."""
        if not self._binding:
            return False
        groups = {
            (pod.namespace, pod.pod_group) for uid in hold.pods if (pod := self._ledger.pods.by_uid(uid)) is not None
        }
        return any(
            (pod.namespace, pod.pod_group) in groups
            for uid in self._binding
            if (pod := self._ledger.pods.by_uid(uid)) is not None and pod.pod_group is not None
        )

    def _stale_gangs(self) -> Sequence[WaitingMembers]:
        return [each for each in self._gate.waiting_gangs() if self._is_stale_at_the_gate(each)]

    def _is_stale_at_the_gate(self, meeting: WaitingMembers) -> bool:
        now, key = self._clock.monotonic(), (meeting.namespace, meeting.name)
        since = max(meeting.since, self._progress.get(meeting.uid, meeting.since))
        if now - since <= GATE_SECONDS:
            return False
        members = self._ledger.pods.members(*key)
        return not any(each.uid in self._binding and each.uid not in meeting.members for each in members)

    def _allocated(self, meeting: WaitingMembers) -> Iterable[DeviceHolding]:
        """What the members at the gate have, and give back when they are sent away."""
        consumers = {*meeting.members, meeting.uid}
        records = {
            record.claim.metadata.uid: record
            for uid in consumers
            for record in self._ledger.claims.of_consumer(uid)
            if all(each.uid in consumers for each in record.claim.status.reserved_for)
        }
        for record in records.values():
            yield from record.holdings

    def _end(self, hold: Hold) -> None:
        self._publish_revoked(hold.unit)
        if hold.unit and hold.unit not in hold.pods:
            meeting = self._gate.waiting_gang(hold.unit)
            if meeting is not None:
                self._gate.evict(meeting)
        for uid in tuple(hold.pods):
            self._ledger.holds.release_pod(uid)

    def _send_away(self, meeting: WaitingMembers) -> None:
        self._publish_revoked(meeting.uid)
        self._gate.evict(meeting)

    def _publish_revoked(self, unit: str) -> None:
        self._shares.revoked(unit)
        for handler in self._subscribers:
            handler(unit)


def _conflict(wanted: Iterable[DeviceHolding], kept: Sequence[DeviceHolding], scope: RevocationScope) -> bool:
    if scope is RevocationScope.ALL:
        return bool(kept)
    if scope is RevocationScope.POOLS:
        return not {each.pool_id for each in wanted}.isdisjoint(each.pool_id for each in kept)
    devices = {(*each.pool_id, each.device) for each in wanted}
    return any((*each.pool_id, each.device) in devices for each in kept)
