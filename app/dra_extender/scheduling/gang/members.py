"""The members of a gang that still need an assignment, and what is known of each."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dra_extender.allocator.state.reasons import SUMMARY_BEGIN, Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.extended_need import existing_claim, planned_uid
from dra_extender.scheduling.claims.pod_claims import PodClaims, find_pod_claims

_MOST_NAMED: Final = 3
_REPORT_BEGIN: Final = "0/"
_PREEMPTION: Final = " preemption: "
_MOST_GATES: Final = 4
MOST_PARTS: Final = 5_000
"""The most waiting members of a gang, their claims and their requests for extended resources, counted together."""
MOST_NEEDS: Final = 32
"""Members of a gang that need different things of a node, of which it is judged whether any node takes them."""


@dataclass(frozen=True, slots=True)
class GangMember:
    """A pod of the gang.

    `claims` are the UIDs of its claims that have no allocation yet, and `claim_kinds` says of each what it asks for; `shared`
    are the claims that other members have, too.  Members with equal `kind` want the same of their own, share the
    same claims, and may go to the same nodes.
    """

    uid: str
    claims: tuple[str, ...]
    kind: Hashable
    claim_kinds: tuple[Hashable, ...]
    shared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GangSnapshot:
    """A gang at one moment: the members to assign, how many at least (0 or less: enough are assigned), and why others wait.

    `limited`: the budget was spent before all members were judged.
    """

    candidates: tuple[PodClaims, ...]
    needed: int
    unready: tuple[tuple[Pod, Rejection], ...]
    limited: bool = False

    @property
    def cannot_start(self) -> bool:
        return self.needed > len(self.candidates)


def lacking_text(unready: Sequence[tuple[Pod, Rejection]]) -> str:
    """Name members that cannot be placed, and why: `pod c: pod has scheduling gates: example.com/wait`."""
    texts = [f"pod {pod.name}: {rejection.text}" for pod, rejection in unready[:_MOST_NAMED]]
    if len(unready) > _MOST_NAMED:
        texts.append(f"{len(unready) - _MOST_NAMED} more")
    return "; ".join(texts)


def why_too_large(group: PodGroup, ledger: Ledger) -> Rejection | None:
    """Return why the gang is not planned, which cannot be paused; None if it is small enough."""
    parts = ledger.pods.unbound_parts(*group.metadata.key)
    if parts <= MOST_PARTS:
        return None
    detail = (
        f"PodGroup {group.metadata.name}: waiting members and their claims come to {parts}, {MOST_PARTS} are looked at"
    )
    return Rejection(code=Code.TOO_MUCH, detail=detail)


def existing_members(group: PodGroup, ledger: Ledger) -> Sequence[Pod]:
    """Return the members that are bound or may yet be, by name."""
    return [pod for pod in ledger.pods.members(*group.metadata.key) if not pod.ending]


def find_obstacles(
    group: PodGroup, members: Collection[Pod], offered: str, ledger: Ledger, budget: CallBudget
) -> tuple[Mapping[str, Rejection], bool]:
    """Return by UID what keeps waiting members from every node, whatever their claims are, as far as objects and reports tell.

    Also return whether the budget was spent before all were judged.  Members beyond MOST_NEEDS, and members that are not judged,
    pass for members that some node takes.  Nothing keeps the pod `offered` (UID).  May raise SearchPaused.
    """
    fit, limited = ledger.member_fit, False
    waiting = [pod for pod in members if not pod.node_name]
    judged = frozenset(islice(dict.fromkeys(fit.digest(pod.uid) for pod in waiting), MOST_NEEDS))
    names = {pod.scheduler_name for pod in members}
    acting = {name for name in names if ledger.pods.has_acted(name)}
    # Where none of them has acted, the gang is new to this process.
    absent = names - acting if acting else set()

    def is_spent() -> bool:
        nonlocal limited
        limited = limited or budget()
        return limited

    obstacles: dict[str, Rejection] = {}
    for pod in waiting:
        if pod.uid == offered:
            continue
        if pod.gates:
            gates = ", ".join(pod.gates[:_MOST_GATES]) + (", ..." if len(pod.gates) > _MOST_GATES else "")
            obstacles[pod.uid] = Rejection(code=Code.POD_GATED, detail=gates)
        elif pod.scheduler_name in absent:
            obstacles[pod.uid] = Rejection(code=Code.SCHEDULER_ABSENT, detail=pod.scheduler_name)
        else:
            refusal = fit.refusal(pod.uid, is_spent) if fit.digest(pod.uid) in judged else ""
            # A scheduler that places the group as one asks about all members before it binds one: nothing is held for its reports.
            if not refusal and not group.scheduled_as_group:
                report = ledger.pods.report_on(pod)
                if report.startswith(_REPORT_BEGIN) and SUMMARY_BEGIN not in report:
                    refusal = report.partition(_PREEMPTION)[0]
            if refusal:
                obstacles[pod.uid] = Rejection(code=Code.NO_NODE, detail=refusal)
    return obstacles, limited


def take_snapshot(group: PodGroup, ledger: Ledger, budget: CallBudget, offered: str = "") -> GangSnapshot:
    """Return the state of every member of the gang; the group's holds must have been released before.

    Members that are bound, whose claims are all allocated, or that need no devices need no assignment, and count as assigned.  The
    others must be placeable now, but for the pod with the UID `offered`: kube-scheduler offers nodes for it in this call.

    Raises:
        SearchPaused: the slice of time is over.  What was found of members is kept for the next snapshot.
    """
    candidates: list[PodClaims] = []
    unready: list[tuple[Pod, Rejection]] = []
    members = existing_members(group, ledger)
    # Of all members first: a snapshot after a pause begins anew with the candidates.
    obstacles, limited = find_obstacles(group, members, offered, ledger, budget)
    for pod in members:
        if pod.node_name:
            continue
        candidate = obstacles.get(pod.uid) or (candidate_of(pod, ledger) if pod.needs_devices else None)
        if isinstance(candidate, Rejection):
            unready.append((pod, candidate))
        elif candidate is not None:
            candidates.append(candidate)
    assigned = len(members) - len(unready) - len(candidates)
    return GangSnapshot(tuple(candidates), (group.min_count or 0) - assigned, tuple(unready), limited)


def candidate_of(pod: Pod, ledger: Ledger) -> PodClaims | Rejection | None:
    """Return what a member that is not bound asks for, or why the member has to wait; None if it needs no assignment."""
    candidate = find_pod_claims(pod, ledger)
    if isinstance(candidate, Rejection):
        return candidate
    existing = None if candidate.need is None else existing_claim(pod, ledger)
    if existing is not None:
        candidate = candidate.adopting(existing)
    return candidate if candidate.open or planned_claim(candidate) else None


def planned_claim(candidate: PodClaims) -> str:
    """Return the UID under which a claim for the member's extended resources is planned; empty if none can be needed."""
    return "" if candidate.need is None or candidate.need.is_met else planned_uid(candidate.pod)


def members_of(
    candidates: Sequence[PodClaims], offered: Callable[[str], frozenset[str]], node_needs: Callable[[str], bytes]
) -> list[GangMember]:
    """Return the members in the order of planning: most devices first, then fewest nodes; members of one kind in a row.

    `offered` returns the nodes to which the pod with this UID may go.  `node_needs` returns what is equal for pods that need the
    same of a node besides devices.
    """
    kinds_by_pod: dict[str, dict[str, Hashable]] = {}
    for candidate in candidates:
        kinds = kinds_by_pod[candidate.pod.uid] = {claim.uid: claim.record.spec_digest for claim in candidate.open}
        if planned := planned_claim(candidate):
            kinds[planned] = candidate.pod.extended_requests
    users = Counter(uid for kinds in kinds_by_pod.values() for uid in kinds)
    members = []
    for candidate in candidates:
        pod = candidate.pod
        kinds = kinds_by_pod[pod.uid]
        shared = frozenset(uid for uid in kinds if users[uid] > 1)
        claim_kinds = tuple(uid if uid in shared else digest for uid, digest in kinds.items())
        decided = frozenset(claim.uid for claim in (*candidate.allocated, *candidate.held))
        kind = (
            claim_kinds,
            decided,
            pod.extended_requests,
            pod.extended_claim,
            node_needs(pod.uid),
            offered(pod.uid),
        )
        members.append(GangMember(pod.uid, tuple(kinds), kind, claim_kinds, shared))
    devices = {candidate.pod.uid: _devices_asked(candidate) for candidate in candidates}
    row: dict[Hashable, int] = {}
    for member in members:
        row.setdefault(member.kind, len(row))
    return sorted(members, key=lambda member: (-devices[member.uid], len(offered(member.uid)), row[member.kind]))


def _devices_asked(candidate: PodClaims) -> int:
    """Return about how many devices the member asks for; mode All counts as many."""
    extended = sum(request.amount for container in candidate.pod.extended_requests for request in container.requests)
    return extended + sum(claim.record.devices for claim in candidate.open)
