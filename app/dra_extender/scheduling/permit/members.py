"""The members of a gang that still need an assignment, and what is known of each."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.scheduling.claims.preconditions import ClaimsByState, excluded, fully_reserved, sort_claims
from dra_extender.scheduling.extended_resources.need import (
    ExtendedClaimNeed,
    ExtendedNeed,
    existing_claim,
    extended_need,
    special_uid,
)

MOST_PARTS: Final = 5_000
"""How many waiting members of a gang, claims of them and requests for extended resources are looked at, counted together."""


@dataclass(frozen=True, slots=True)
class GangMember:
    """A pod of the gang.

    `claims` are the UIDs of its claims that have no allocation yet, and `asks` says of each what it asks for; `shared` are those
    of them that other members have, too.  Members with equal `kind` want the same of their own, share the same claims, and may go
    to the same nodes.
    """

    uid: str
    claims: tuple[str, ...]
    kind: Hashable
    asks: tuple[Hashable, ...]
    shared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MemberCandidate:
    """A member with claims to be allocated, or with extended resources that device classes may have to serve (`need`)."""

    pod: Pod
    claims: ClaimsByState
    need: ExtendedNeed | None

    @property
    def special(self) -> str:
        """UID under which a claim for extended resources is planned, empty if none can be needed."""
        return "" if self.need is None or self.need.is_met else special_uid(self.pod)

    def refusal(self, node: Node, ledger: Ledger) -> Rejection | None:
        """Why what is decided already keeps the member off this node."""
        special = self.special_on(node)
        return special if isinstance(special, Rejection) else excluded(self.pod, node, self.claims, ledger)

    def special_on(self, node: Node) -> ExtendedClaimNeed | Rejection | None:
        """The claim for extended resources that the member needs on this node."""
        return None if self.need is None else self.need.on(node)


@dataclass(frozen=True, slots=True)
class GangSnapshot:
    """A gang at one moment: the members to assign, how many at least (0 or less: enough are assigned), and why others wait."""

    candidates: tuple[MemberCandidate, ...]
    needed: int
    missing: tuple[tuple[Pod, Rejection], ...]


def gang_of(pod: Pod, ledger: Ledger) -> PodGroup | None:
    """The pod's group if that is a gang."""
    if pod.pod_group is None:
        return None
    group = ledger.pod_groups.get(pod.namespace, pod.pod_group)
    return group if group is not None and group.min_count is not None else None


def too_large(group: PodGroup, ledger: Ledger) -> Rejection | None:
    """Why the gang is not planned, which cannot be paused; None if it is small enough."""
    parts = ledger.pods.unbound_parts(*group.metadata.key)
    if parts <= MOST_PARTS:
        return None
    detail = (
        f"PodGroup {group.metadata.name}: waiting members and their claims come to {parts}, {MOST_PARTS} are looked at"
    )
    return Rejection(code=Code.TOO_MUCH, detail=detail)


def existing_members(group: PodGroup, ledger: Ledger) -> Iterator[Pod]:
    """The members that are bound or may yet be, by name."""
    return (pod for pod in ledger.pods.members(*group.metadata.key) if not (pod.finished or pod.deleting))


def take_snapshot(group: PodGroup, ledger: Ledger) -> GangSnapshot:
    """The state of every member of the gang; the group's holds must have been released before.

    Members that are bound, whose claims are all allocated, or that need no devices need no assignment, and count as assigned.
    """
    candidates: list[MemberCandidate] = []
    missing: list[tuple[Pod, Rejection]] = []
    assigned = 0
    for pod in existing_members(group, ledger):
        if pod.node_name or not pod.needs_devices:
            assigned += 1
            continue
        candidate = candidate_of(pod, ledger)
        if isinstance(candidate, Rejection):
            missing.append((pod, candidate))
        elif candidate is not None:
            candidates.append(candidate)
        else:
            assigned += 1
    return GangSnapshot(tuple(candidates), (group.min_count or 0) - assigned, tuple(missing))


def candidate_of(pod: Pod, ledger: Ledger) -> MemberCandidate | Rejection | None:
    """What is known of a member that is not bound, or why it has to wait; None if it needs no assignment."""
    found = find_claims(pod, ledger)
    refusal = found if isinstance(found, Rejection) else fully_reserved(found, ledger)
    if refusal is not None or isinstance(found, Rejection):
        return refusal
    candidate = _candidate(pod, sort_claims(found, ledger), ledger)
    return candidate if candidate.claims.open or candidate.special else None


def _candidate(pod: Pod, claims: ClaimsByState, ledger: Ledger) -> MemberCandidate:
    need = extended_need(pod, ledger)
    left = None if need is None else existing_claim(pod, ledger)
    if need is None or left is None:
        return MemberCandidate(pod, claims, need)
    return MemberCandidate(pod, claims.with_allocated(left), need.met_by(left))


def members_of(candidates: Sequence[MemberCandidate], offered: Callable[[str], frozenset[str]]) -> list[GangMember]:
    """The candidates as a plan takes them: those that want most first, then those with fewest nodes; equal kinds in a row.

    `offered` returns the nodes to which the pod with this UID may go.
    """
    users = Counter(uid for each in candidates for uid in _open(each))
    members = [_member(each, users, offered(each.pod.uid)) for each in candidates]
    size = {each.pod.uid: _devices(each) for each in candidates}
    row: dict[Hashable, int] = {}
    for each in members:
        row.setdefault(each.kind, len(row))
    return sorted(members, key=lambda each: (-size[each.uid], len(offered(each.uid)), row[each.kind]))


def _member(candidate: MemberCandidate, users: Counter[str], offered: frozenset[str]) -> GangMember:
    digests: dict[str, Hashable] = {
        each.record.claim.metadata.uid: each.record.spec_digest for each in candidate.claims.open
    }
    digests |= {candidate.special: candidate.pod.extended_requests} if candidate.special else {}
    shared = frozenset(uid for uid in digests if users[uid] > 1)
    asks = {uid: uid if uid in shared else digest for uid, digest in digests.items()}
    decided = (*candidate.claims.allocated, *candidate.claims.held)
    kind = (
        tuple(asks.values()),
        frozenset(each.record.claim.metadata.uid for each in decided),
        candidate.pod.extended_requests,
        candidate.pod.extended_claim,
        offered,
    )
    return GangMember(candidate.pod.uid, tuple(asks), kind, tuple(asks.values()), shared)


def _open(candidate: MemberCandidate) -> tuple[str, ...]:
    """UIDs of what has to be allocated for the member."""
    uids = tuple(each.record.claim.metadata.uid for each in candidate.claims.open)
    return (*uids, candidate.special) if candidate.special else uids


def _devices(candidate: MemberCandidate) -> int:
    """How many devices the member asks for, roughly: mode All counts as many."""
    asked = sum(each.amount for one in candidate.pod.extended_requests for each in one.requests)
    return asked + sum(each.record.devices for each in candidate.claims.open)
