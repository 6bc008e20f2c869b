from dataclasses import dataclass

from app.ledger.ledger import Ledger
from app.model.pod import Pod
from app.model.rejection import Code
from app.scheduling.attempt import Attempt
from app.scheduling.ports import Events
from app.scheduling.refusal_words import RefusalWords
from app.telemetry.metrics import Metrics

REASON = "DevicesUnavailable"
_ABOUT_CLAIMS = frozenset(
    {
        Code.CLAIM_NOT_CREATED,
        Code.CLAIM_MISSING,
        Code.CLAIM_DELETING,
        Code.CLAIM_FOREIGN,
        Code.CLAIM_FULLY_RESERVED,
        Code.POD_GROUP_MISSING,
        Code.GANG_INCOMPLETE,
    }
)

_BY_HOLDS = frozenset({Code.CLAIM_HELD_ELSEWHERE, Code.GANG})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that was turned away, and how far each kind of change had come at that moment."""

    pod: Pod
    devices: int
    claims: int
    classes: int
    holds: int
    by_holds: bool
    about_claims: bool
    by_allocation: bool


class Refusals:
    """The pods that were turned away and have not been placed since: who could be helped by what."""

    def __init__(self, ledger: Ledger, words: RefusalWords, events: Events, metrics: Metrics) -> None:
        self._ledger = ledger
        self._words = words
        self._events = events
        self._metrics = metrics
        self._refused: dict[str, Refusal] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._refused

    def turned_away(self, pod: Pod, attempt: Attempt) -> None:
        """Remember the refusal and tell people why, with all details, by an Event on the pod.

        A claim that is still being made from its template is no news: it happens to every such pod for a moment.
        """
        progress = self._ledger.progress
        reasons = attempt.why()
        codes = {each.rejection.code for each in reasons}
        self._refused[pod.uid] = Refusal(
            pod=pod,
            devices=progress.devices,
            claims=progress.claims,
            classes=progress.classes,
            holds=self._ledger.holds.ended,
            by_holds=attempt.unsettled or bool(codes & _BY_HOLDS),
            about_claims=bool(codes & _ABOUT_CLAIMS),
            by_allocation=Code.CLAIM_ON_OTHER_NODE in codes,
        )
        for each in reasons:
            self._metrics.rejected(each.rejection.code.name.lower(), each.nodes)
        self._metrics.waiting(len(self._refused))
        if codes - {Code.CLAIM_NOT_CREATED}:
            self._events.about_pod(pod, warning=True, reason=REASON, message=self._words(attempt))

    def settled(self, pod_uid: str) -> None:
        """The pod was offered a node, was bound, or is gone."""
        if self._refused.pop(pod_uid, None) is not None:
            self._metrics.waiting(len(self._refused))

    def helped_since(self) -> str | None:
        """What has changed since some refusal so that trying again may end differently; None if nothing has."""
        progress, ended = self._ledger.progress, self._ledger.holds.ended
        for refusal in self._refused.values():
            if progress.devices != refusal.devices:
                return "devices"
            if progress.classes != refusal.classes:
                return "classes"
            if refusal.by_holds and ended != refusal.holds:
                return "holds"
            if refusal.about_claims and progress.claims != refusal.claims:
                return "claims"
        return None

    def tied_down(self) -> tuple[Pod, ...]:
        """Pods that fit nowhere where a claim allocated for other nodes is among the reasons."""
        return tuple(each.pod for each in self._refused.values() if each.by_allocation)

    def poked(self) -> None:
        """kube-scheduler has been told: what changed up to now needs no further telling."""
        progress, ended = self._ledger.progress, self._ledger.holds.ended
        self._refused = {
            uid: Refusal(
                pod=each.pod,
                devices=progress.devices,
                claims=progress.claims,
                classes=progress.classes,
                holds=ended,
                by_holds=each.by_holds,
                about_claims=each.about_claims,
                by_allocation=each.by_allocation,
            )
            for uid, each in self._refused.items()
        }

    def forget_settled(self) -> None:
        """Drop pods that are gone, over, or bound by somebody else."""
        known = self._ledger.pods
        for uid in list(self._refused):
            pod = known.by_uid(uid)
            if known.gone(uid) or (pod is not None and (pod.node_name or pod.finished or pod.deleting)):
                self.settled(uid)
