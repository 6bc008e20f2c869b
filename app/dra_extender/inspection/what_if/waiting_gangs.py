"""Why gangs wait, as `why` says it of the cluster with the changes and with the pods that landed."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.what_if.changes import PodKey
from dra_extender.inspection.what_if.report import OutcomeKind, PodRow, WaitingGang
from dra_extender.inspection.what_if.trial import Trial
from dra_extender.inspection.why.cause import cause_of
from dra_extender.inspection.why.gang import GangAccount, account_of_gang, gang_summary
from dra_extender.inspection.why.report import MemberState
from dra_extender.model.metadata import split_key

MOST_GANGS: Final = 3
"""Gangs that are explained."""
NAMESPACE_SECONDS: Final = 5.0
"""Time after which the gangs of a namespace whose pods took so long to place are not explained."""
_WITH_PLACE: Final = frozenset({MemberState.BOUND, MemberState.ALLOCATED, MemberState.PLACED})


class ExplainedGangs(NamedTuple):
    """The gangs that are explained, and how many more wait."""

    gangs: tuple[WaitingGang, ...] = ()
    left_out: int = 0


def explain_gangs(trial: Trial, policy: PolicyOverlay | None, rows: Iterable[PodRow]) -> ExplainedGangs:
    """Explain the gangs of the pods in these rows that wait, after the pods that fit have landed in the trial.

    A gang of a namespace whose pods took long to place is left out, because its members would be searched for as long again.
    """
    members = defaultdict[str, list[PodKey]](list)
    for row in rows:
        if row.gang and row.after.kind is OutcomeKind.WAITS:
            members[row.gang].append(split_key(row.pod))
    quick = [keys for keys in members.values() if trial.seconds_of(keys[0][0]) <= NAMESPACE_SECONDS]
    chosen = quick[:MOST_GANGS]
    if not chosen:
        return ExplainedGangs(left_out=len(members))
    # The trial goes on, so `why` asks a view of its own, which may plan and hold.
    view = ClusterView(trial.copy.objects())
    if policy is not None:
        view.use_policy(policy)
    gangs = (_explained(view, keys) for keys in chosen)
    return ExplainedGangs(tuple(gang for gang in gangs if gang is not None), len(members) - len(chosen))


def _explained(view: ClusterView, members: Iterable[PodKey]) -> WaitingGang | None:
    """Explain one gang; return None if `why` finds a place for all members, or can ask for none of these."""
    for key in members:
        pod = view.pod(*key)
        cause = None if pod is None or not pod.needs_devices else cause_of(view, pod, view.facts(*key))
        if pod is None or cause is None or cause.result is None:
            continue
        account = account_of_gang(view, pod, cause.result, cause.node_reasons)
        if account is not None:
            return _as_waiting(account)
    return None


def _as_waiting(account: GangAccount) -> WaitingGang | None:
    notes = tuple(filter(None, (account.crowded, account.diagnosis.limit, *account.reasons.notes)))
    if not notes and all(member.state in _WITH_PLACE for member in account.gang.members):
        return None
    return WaitingGang(
        summary=gang_summary(account.gang),
        gang=account.gang,
        branches=account.reasons.branches(),
        beside=account.node_reasons,
        notes=notes,
    )
